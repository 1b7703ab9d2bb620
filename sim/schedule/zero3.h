// ZeRO stage 3 as DeepSpeed plays it (deepspeed/runtime/zero: stage3.py, parameter_offload.py,
// partitioned_param_coordinator.py, partition_parameters.py; 0.19.8;
// spec/fsdp1-ddp-zero-runtime.md 4.3): each parameter is cut into parts of its own; hooks on every
// module gather what the module owns, fetch ahead along the recorded trace, and release.
// Worked example, a 1024 x 1024 linear with bias on 8 ranks: its module gathers 2,099,200 B into a
// staging buffer and copies them out as 2,097,152 and 2,048 B; its gradients go into the bucket on the
// reduction stream, and come back as 262,144 and 256 B.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "sim/plan/plan_zero.h"
#include "sim/schedule/deepspeed.h"

namespace shardsim {

// Queues of events of the host's.
inline constexpr StreamId kFetchEvents = 0;
inline constexpr StreamId kReductionEvents = 1;

class Zero3 final : public DeepSpeedEngine {
 public:
  Zero3(Host& host, const Model& model, const Plan& plan, const Training& training, int sms);

  void initialize() override;
  BufferId scaled_gradient(BufferId ones) override {
    in_backward_ = true;
    return DeepSpeedEngine::scaled_gradient(ones);
  }
  bool linears_are_functions() const override { return true; }
  bool outer_pre_backward_first() const override { return true; }
  bool hooks_checkpoints() const override { return true; }
  void root_pre_forward(uint32_t state) override;
  bool pre_forward(uint32_t state) override;
  bool post_forward(uint32_t state, ModuleId member, bool output_requires_grad) override;
  void pre_backward(uint32_t state) override;
  void post_backward(uint32_t state) override;
  void set_unsharded_grad(ParamId param, BufferId buffer, EventId made) override;
  void end_of_backward() override;
  std::vector<bool> unsharded() const override;

 protected:
  void optimizer_step() override;

 private:
  enum class Status : uint8_t { not_available, inflight, available };
  enum class TraceMode : uint8_t { invalid, record, complete };
  // AllGatherCoalescedHandle, or that of a single parameter, which is gathered in place.
  struct Handle {
    std::vector<ParamId> params;
    EventId end;
    BufferId staging;
    bool complete = false;
    int references = 0;  // parameters in flight that have not been taken
  };
  struct Parameter {
    int64_t numel = 0, part = 0;  // part: ceil(numel / N)
    bool persists = false, trains = false;
    GroupId group;
    Status status = Status::not_available;
    BufferId data;
    std::shared_ptr<Handle> handle;
    std::set<uint32_t> active;  // ds_active_sub_modules
    int64_t fetched_for = INT64_MIN;
    BufferId grad;  // of its own; none while it lies in the bucket
    bool has_grad = false;
  };
  struct SubGroup {
    std::vector<ParamId> params;
    int64_t numel = 0;
    std::unique_ptr<OptimizerStep> optimizer;
  };

  Bytes low(int64_t numel) const { return numel * bytes_of(DType::bf16); }
  Parameter& at(ParamId p) { return params_[p.v]; }
  const std::vector<ParamId>& owned_by(uint32_t module) const;
  int64_t numel_of(uint32_t module) const;

  // PartitionedParameterCoordinator.
  void reset_step();
  void assert_ints_same_as_other_ranks(size_t count);
  void fetch_sub_module(uint32_t module);
  void release_sub_module(uint32_t module, bool forward);
  void release_backward_leftovers();
  void release_and_reset_all();
  const std::set<uint32_t>& params_to_release(uint32_t module);
  void all_gather(std::vector<ParamId> params);
  void take_from_flight(ParamId p, StreamId stream);
  void wait(Handle& handle, StreamId stream);
  // In a rerun of `holder`'s forward, whose saved tensors keep the storage until its backward.
  void release_param(ParamId p, int64_t holder = -1);
  void let_go(uint32_t module);
  void prefetch(uint32_t module);

  // The optimizer's buckets.
  void add_grad_to_ipg_bucket(ParamId param);
  void reduce_and_partition_ipg_grads();
  void avg_scatter_grads();
  void avg_scatter_contiguous_grads();
  void partition_grads();
  void gather_persistent_parameters();

  const StreamId gathers_, reduces_;
  std::vector<Parameter> params_;
  std::vector<std::vector<ParamId>> owned_;  // by state
  std::vector<ParamId> all_, persistent_;
  std::vector<SubGroup> sub_groups_;

  TraceMode trace_ = TraceMode::invalid;
  std::vector<uint32_t> module_order_;
  std::vector<std::pair<ParamId, int64_t>> param_order_;
  std::deque<std::pair<ParamId, int64_t>> queue_;
  std::map<std::pair<uint32_t, int64_t>, std::set<uint32_t>> releases_;  // module and step
  int64_t step_ = 0, available_ = 0;
  std::vector<uint32_t> active_backward_;           // modules, the latest last
  std::vector<std::pair<int64_t, BufferId>> held_;  // by the saved tensors of a module's rerun
  bool in_backward_ = false;

  ReduceBucket bucket_;
  std::vector<ParamId> bucket_params_;
  BufferId bucket_buffer_;
  std::vector<BufferId> reduced_;  // of the flush that runs
  bool ran_epilogue_ = false;
  int64_t micro_step_ = 0;
};

}  // namespace shardsim
