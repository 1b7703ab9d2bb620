// DistributedDataParallel as a program of host calls: the module's forward hooks of PyTorch's
// torch/nn/parallel/distributed.py and the reducer of torch/csrc/distributed/c10d/reducer.cpp, by
// their names, written through a Host (spec fsdp1-ddp-zero-runtime 3). Each gradient is divided into
// its place in a bucket as AccumulateGrad leaves it; a bucket that is complete, and whose turn it
// is, is all-reduced on the process group's stream; at the end of backward each is waited for and
// copied back.
//
// Worked example, 12 parameters of 25,190,400 B in fp32 (three blocks of two linears [1024, 1024]
// with bias): one bucket in the first iteration; from the second on one of 4,198,400 B, the last
// layer's, and one of 20,992,000 B.
#pragma once

#include <utility>
#include <vector>

#include "sim/plan/buckets.h"
#include "sim/schedule/whole.h"

namespace shardsim {

class Ddp : public Whole {
 public:
  Ddp(Host& host, const Model& model, const Plan& plan, const Training& training);

  void initialize() override;
  void begin_micro_batch(bool last) override { sync_ = last || !options_.no_sync; }
  bool syncs_gradients() const override { return sync_; }
  bool hooks_gradients() const override { return true; }
  void set_grad_enabled(bool yes) override { grad_enabled_ = yes; }

  void root_pre_forward(uint32_t state) override;  // _pre_forward
  bool post_forward(uint32_t state, ModuleId member, bool output_requires_grad) override;
  bool clones_output() const override;
  void output_gradient() override;  // _DDPSink.backward
  void end_of_backward() override;

  void drop_grads() override;

  std::vector<GradientBucket> buckets(bool first_iteration) const override;

 protected:
  void accumulated(ParamId param) override { autograd_hook(index_[param.v]); }

  // Tensors in buckets of 250 MiB, each flattened, broadcast and copied back.
  void broadcast_coalesced(const std::vector<Tensor>& tensors, GroupId group);

  CommId comm_;

 private:
  struct Bucket {
    std::vector<uint32_t> variables;  // indices of sharded_
    Bytes bytes = 0;
    DType dtype = DType::fp32;
    GroupId group;       // of the parameter that completes it
    size_t storage = 0;  // in storages_
    bool allocated = false;
    size_t pending = 0;
    Host::AsyncWork work;
    EventId future;
    WorkId all_reduce, divide, compress, divide_compressed, decompress;
    BufferId compressed;
  };
  // What buckets and, with views, gradients hold.
  struct Storage {
    BufferId buffer;
    int references = 0;
  };
  // Of the iteration's timing.
  struct Events {
    EventId forward_start, backward_compute_start, backward_compute_end, backward_comm_start,
        backward_comm_end;
  };

  bool collects_runtime_stats() const {
    return iterations_ > 0 && (iterations_ <= 10 || iterations_ % 100 == 0);
  }
  bool dynamic_graph_find_unused() const {
    return options_.find_unused_parameters && !options_.static_graph;
  }
  bool static_graph_first_iteration() const {
    return options_.static_graph && backward_calls_ == 1;
  }
  bool static_graph_after_first_iteration() const {
    return options_.static_graph && backward_calls_ > 1;
  }
  bool should_rebuild_buckets() const { return !dynamic_graph_find_unused() && !rebuilt_; }

  void set_runtime_stats_and_log();
  void prepare_for_forward();
  void prepare_for_backward();
  void rebuild_buckets();
  void sync_bucket_indices(size_t buckets);
  void initialize_buckets(const Buckets& assignment);
  void allocate(Bucket& bucket);
  void autograd_hook(uint32_t index);
  void mark_variable_ready(uint32_t index);
  void mark_variable_ready_dense(uint32_t index);
  void copy_grads_to_bucket(Bucket& bucket);
  void mark_bucket_ready(size_t bucket);
  void all_reduce_bucket(Bucket& bucket);
  void all_reduce_local_used_map();
  void delay_all_reduce();
  void finalize_reduction();
  void finalize_bucket(Bucket& bucket);
  bool globally_unused(uint32_t index);
  std::vector<BucketTensor> tensors(const std::vector<uint32_t>& indices) const;

  ParamId id(uint32_t index) const { return sharded_[index].id; }
  BufferId& grad(uint32_t index) { return grads_[id(index).v]; }
  void point_at_bucket(uint32_t index);
  void release(size_t storage);
  void copy(Bytes bytes, const char* name, GroupId group);
  void kernel(const char* name, Bytes bytes, DType type, GroupId group);

  const DdpOptions& options_;
  std::vector<uint32_t> index_;  // by parameter: of sharded_
  Buckets first_assignment_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;  // by index
  std::vector<Storage> storages_;
  std::vector<int32_t> view_of_;  // by index: the storage that .grad is a view of, or -1
  Events events_;

  bool sync_ = true, grad_enabled_ = true;
  bool require_forward_param_sync_ = true;
  bool expect_autograd_hooks_ = false, first_autograd_hook_called_ = false;
  bool has_marked_unused_ = false, rebuilt_ = false, require_finalize_ = false;
  bool finalize_queued_ = false, delay_all_reduce_queued_ = false, delay_all_reduce_done_ = false;
  int64_t iterations_ = 0, backward_calls_ = 0;
  size_t next_bucket_ = 0;
  std::vector<uint32_t> unused_;                        // unused_parameters_
  std::vector<uint32_t> rebuilt_order_;                 // rebuilt_params_
  std::vector<uint32_t> hooks_triggered_, hooks_left_;  // static graph: numGradHooksTriggeredMap_

  std::vector<bool> local_used_;
  bool local_used_reduced_ = false;
  BufferId local_used_map_;
  Host::AsyncWork local_used_work_;
};

}  // namespace shardsim
