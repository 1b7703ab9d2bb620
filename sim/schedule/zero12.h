// ZeRO stages 1 and 2 as DeepSpeedZeroOptimizer plays them (deepspeed/runtime/zero/stage_1_and_2.py,
// 0.19.8; spec/fsdp1-ddp-zero-runtime.md 4.2): every rank has all bf16 parameters in one flat buffer
// and the fp32 master and moments of its part. Gradients are copied into a bucket as they become
// ready; what is in it is divided and reduced before one that does not fit comes in.
// Worked example, 3 blocks of two 1024 x 1024 layers with bias, bucket 3,000,000 elements, 8 ranks: the
// bucket takes two layers (4,200,448 B: the second flush comes before the third weight), so a backward
// reduces three times; rank 0 owns the first 787,200 elements, a part of the first weight, and keeps
// that whole gradient, 2,097,152 B.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/plan/plan_zero.h"
#include "sim/schedule/deepspeed.h"

namespace shardsim {

class Zero12 final : public DeepSpeedEngine {
 public:
  Zero12(Host& host, const Model& model, const Plan& plan, const Training& training, int sms);

  void initialize() override;
  void root_pre_forward(uint32_t) override { forward_prologue(); }
  bool pre_forward(uint32_t) override { return false; }
  bool post_forward(uint32_t, ModuleId, bool) override { return false; }
  void pre_backward(uint32_t) override {}
  void post_backward(uint32_t) override {}
  void set_unsharded_grad(ParamId param, BufferId buffer, EventId made) override;
  void end_of_backward() override;
  std::vector<bool> unsharded() const override { return {true}; }

 protected:
  void optimizer_step() override;

 private:
  // A piece of a parameter's gradient that lies in one rank's part.
  struct Slice {
    int64_t rank = 0, numel = 0;
    ParamId param;
  };
  // Where a parameter's .grad is.
  enum class Where : uint8_t { none, own, bucket, partition };
  struct Gradient {
    int64_t numel = 0;
    std::vector<Slice> slices;  // in the order of their ranks
    bool in_partition = false;  // of rank 0
    Where where = Where::none;
    BufferId own;  // a tensor of its own
  };
  // A gradient of averaged_gradients, or of all_grad_tensors before that.
  struct Averaged {
    int64_t numel = 0;
    BufferId zeros;  // where there was no gradient, or the padding
    bool padding = false;
  };

  Bytes low(int64_t numel) const { return numel * bytes_of(DType::bf16); }
  bool partitions_gradients() const { return stage_ == 2; }

  void setup_buckets();
  void reduce_independent_p_g_buckets_and_remove_grads(ParamId param);
  void reduce_ipg_grads();
  void average_tensor();
  std::vector<Slice> merged_slices() const;
  BufferId bucket_tensor() const;  // that is reduced now
  void allreduce_and_scatter(const std::vector<Slice>& slices, StreamId stream, int64_t owner);
  void reduce_slices(const std::vector<Slice>& slices, StreamId stream, int64_t owner);
  void copy_grads_in_partition(Gradient& g, StreamId stream);
  void clear_grad(Gradient& g);
  void epilogue();
  void get_all_grad_tensors();
  void get_flat_partition();
  void release_averaged();

  const int stage_;
  const GroupId group_{0};
  int64_t partition_ = 0, length_ = 0, padding_ = 0;
  std::vector<Gradient> gradients_;  // by parameter
  std::vector<ParamId> trainable_;   // registration order
  std::vector<ParamId> owned_;       // params_in_partition, in the buffer's order
  ReduceBucket bucket_;
  std::vector<ParamId> bucket_params_;
  std::vector<BufferId> bucket_buffers_;  // one, or two with overlap_comm
  size_t bucket_index_ = 0;
  ParamId extra_large_;          // reduced where it is
  BufferId flat_;                // all bf16 parameters
  BufferId grads_in_partition_;  // of this backward
  std::vector<Averaged> averaged_;
  std::vector<BufferId> kept_;  // what averaged_ are views of
  std::unique_ptr<OptimizerStep> optimizer_;
};

}  // namespace shardsim
