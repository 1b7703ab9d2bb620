// The optimizer step as launches and allocations, per implementation of torch.optim (2.15); rows of
// spec/kernel-sequence.md 9 and spec/memory-model.md B (Optimizers). State is made in the first step.
// Worked number: AdamW foreach on n tensors is 2n memsets in the first step and 8 kernels a step
// (more launches from 2300 chunks of 65,536 elements on); fused AdamW is 2 kernels.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/schedule/host.h"

namespace shardsim {

// A tensor that the optimizer updates: its local elements on this rank.
struct OptimizerParam {
  int64_t numel = 0;
  GroupId group;
  std::optional<DType> dtype = std::nullopt;  // other than the optimizer's
};

class OptimizerStep {
 public:
  OptimizerStep(Host& host, const Optimizer& options, DType dtype,
                std::vector<OptimizerParam> params);

  // Over the parameters that have a gradient, by their positions in `params`, in this order.
  void step(const std::vector<uint32_t>& with_grad);
  // zero_grad(set_to_none=False): one kernel over all gradients of a type.
  void zero(const std::vector<uint32_t>& with_grad);

 private:
  DType type(const OptimizerParam& p) const { return p.dtype.value_or(dtype_); }
  Bytes bytes(const OptimizerParam& p) const { return p.numel * bytes_of(type(p)); }
  std::vector<std::vector<uint32_t>> by_type(const std::vector<uint32_t>& all) const;
  void set_active(const std::vector<uint32_t>& with_grad);
  // `lists` of tensors, of whose elements `passes` are read or written.
  void kernels(const char* name, int lists, double passes);
  void each(size_t i, const char* name, double passes);
  void make_state();
  BufferId allocate(uint32_t i);
  std::vector<BufferId> decayed_grads();
  void drop_roots();
  void free_list(const std::vector<BufferId>& list);
  void adam();
  void sgd();

  Host& host_;
  const Optimizer options_;
  const DType dtype_;
  std::vector<OptimizerParam> params_;
  std::vector<uint32_t> active_;  // of them, those that have elements and a gradient
  int64_t numel_ = 0;
  std::array<int64_t, 5> launches_{};  // of a foreach kernel, by lists of tensors - 1
  std::vector<bool> has_state_;
  std::vector<BufferId> temporaries_;  // by parameter
  std::vector<uint32_t> roots_;        // of which type before holds temporaries
  struct Named {
    const char* name;
    double passes;
    int64_t numel;
    DType dtype;
    WorkId work;
  };
  std::vector<Named> works_;
  std::vector<std::pair<Bytes, WorkId>> zeros_;
  WorkId zeros_of(Bytes bytes);
  WorkId work(const char* name, double passes, int64_t numel, DType dtype);
};

}  // namespace shardsim
