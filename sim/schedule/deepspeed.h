// What DeepSpeed's engine does whatever the stage (deepspeed/runtime/engine.py, runtime/utils.py;
// 0.19.8, bf16 enabled): it casts the model to bf16 and broadcasts it, divides the loss by the
// micro-batches and multiplies it by the loss scale, times the throughput, and in its step looks for an
// overflow, takes the global norm, clips, and runs torch's optimizer on fp32 partitions.
// Worked number: a step without clipping waits 4 times for the device: the overflow flag, two tables of
// one number in mask_nan_or_inf_with_val_inplace, and the norm's validity; with clipping 5 times.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "sim/schedule/optimizer.h"
#include "sim/schedule/runtime.h"

namespace shardsim {

// DeepSpeed's streams beside the default one; the communicator's own come behind (kInternal).
inline constexpr StreamId kZeroAllGather = 2;
inline constexpr StreamId kReduction = 3;

class DeepSpeedEngine : public Runtime {
 public:
  void begin_micro_batch(bool last) override { boundary_ = last; }
  bool hooks_gradients() const override { return true; }
  bool differentiates(ParamId p) const override { return !model_.params[p.v].frozen; }

  void scale_loss() override;
  BufferId scaled_gradient(BufferId ones) override;
  bool steps_itself() const override { return true; }
  void engine_step() override;

  // What the training program's own optimizer would see: nothing.
  const std::vector<Sharded>& sharded() const override { return none_; }
  bool has_grad(uint32_t) const override { return false; }
  void drop_grads() override {}
  void clip_grad_norm(const std::vector<uint32_t>&) override {}

 protected:
  DeepSpeedEngine(Host& host, const Model& model, const Plan& plan, const Training& training,
                  int sms);

  virtual void optimizer_step() = 0;

  // _forward_prologue: the throughput timer starts.
  void forward_prologue();
  void end_of_loss();

  // _configure_distributed_model and _broadcast_model: leaves the parameters in bf16, each in the
  // buffer returned at its id.
  std::vector<BufferId> cast_and_broadcast();

  // A tensor: a buffer of this size that nothing uses now.
  BufferId make(Bytes bytes, StreamId pool, Category category, GroupId group = {});
  void drop(BufferId b);

  WorkId kernel(const char* name, KernelClass cls, Bytes bytes, GroupId group = {});
  WorkId copy(WorkKind kind, const char* name, Bytes bytes, GroupId group = {});
  WorkId collective(WorkKind kind, const char* name, Bytes bytes, DType type, GroupId group = {},
                    uint32_t tensors = 0, int32_t root = 0);
  void pointwise(const char* name, Bytes bytes, StreamId stream = kCompute) {
    host_.launch(stream, kernel(name, KernelClass::pointwise, bytes));
  }
  // Kernels on a tensor of one number.
  void scalars(const char* name, int count) {
    for (int i = 0; i < count; ++i) pointwise(name, 8);
  }
  void zeros(Bytes bytes, StreamId stream = kCompute);
  // .item(): a copy to pinned memory, and a wait.
  void item(Bytes bytes);
  // A reduction of all elements to one of `element` bytes.
  void full_reduction(const char* name, int64_t numel, Bytes bytes, Bytes element);
  // torch.cat, and the view that it is of a single tensor: false where nothing was launched.
  bool cat(StreamId stream, size_t tensors, Bytes bytes, const char* name);

  // runtime/utils.py: has_inf_or_nan on a gradient of so many elements, added to a count.
  void has_inf_or_nan(int64_t numel, DType type);
  // The flag of all ranks, read.
  void reduce_overflow();
  // get_grad_norm_direct on gradients of these sizes, and combine_grad_norm_groups.
  enum class Norm : uint8_t { stages12, stage3 };
  void norm_of(const std::vector<int64_t>& numels, DType type, Norm norm);
  void combine_norms(size_t groups, Bytes element);
  void is_invalid_grad_norm();
  void unscale_and_clip(int64_t numel);

  Host& host_;
  const Model& model_;
  const Plan& plan_;
  const Training& training_;
  const ZeroOptions& options_;
  const int sms_;
  const int64_t ranks_;
  CommId comm_;
  bool boundary_ = true;

 private:
  std::vector<Sharded> none_;
  std::vector<BufferId> losses_;
  std::map<std::tuple<int, int, const char*, Bytes, uint32_t, int32_t>, WorkId> works_;
  std::map<std::tuple<Bytes, StreamId, int, uint32_t>, std::vector<BufferId>> idle_;
  std::vector<Bytes> pinned_;
  BufferId global_grad_norm_;
  bool timing_ = false;
  int64_t global_steps_ = 0;
};

}  // namespace shardsim
