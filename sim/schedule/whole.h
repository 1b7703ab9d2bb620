// Parameters whole on one GPU, each with a gradient of its own: what PyTorch does where nothing is
// sharded (strategy none), and what strategies that reduce whole gradients are built on.
//
// `.grad` follows AccumulateGrad: the first gradient is stolen, later ones are added in place until
// zero_grad drops it. A strategy that has hooks on gradients overrides hooks_gradients() and
// accumulated(), which is then called between backward's operators, as each parameter's gradient is
// there.
// Worked example: a linear [1024, 1024] with bias in fp32 holds 4,198,400 B of parameters, and as
// much of gradients from its backward to zero_grad.
#pragma once

#include <utility>
#include <vector>

#include "sim/schedule/runtime.h"

namespace shardsim {

class Whole : public Runtime {
 public:
  Whole(Host& host, const Model& model, const Plan& plan, const Training& training);

  void initialize() override;
  void begin_micro_batch(bool) override {}
  bool keeps_gradients_whole() const override { return true; }
  bool holds_gradient(ParamId p) const override { return grads_[p.v].valid(); }
  bool differentiates(ParamId p) const override { return !model_.params[p.v].frozen; }

  void root_pre_forward(uint32_t) override {}
  bool pre_forward(uint32_t) override { return false; }
  bool post_forward(uint32_t, ModuleId, bool) override { return false; }
  void pre_backward(uint32_t) override {}
  void post_backward(uint32_t) override {}
  void end_of_backward() override {}

  void set_used(std::vector<bool> by_param) override { used_ = std::move(by_param); }
  void set_unsharded_grad(ParamId param, BufferId buffer, EventId made) override;
  void gradient_added(ParamId param) override { accumulated(param); }

  const std::vector<Sharded>& sharded() const override { return sharded_; }
  bool has_grad(uint32_t index) const override { return holds_gradient(sharded_[index].id); }
  void drop_grads() override;
  void clip_grad_norm(const std::vector<uint32_t>& with_grad) override;
  std::vector<bool> unsharded() const override {
    return std::vector<bool>(plan_.groups.size(), true);
  }

 protected:
  // What register_post_accumulate_grad_hook calls.
  virtual void accumulated(ParamId) {}

  int64_t numel(ParamId p) const { return model_.params[p.v].shape.numel(); }
  DType dtype(ParamId p) const {
    return model_.params[p.v].dtype.value_or(training_.precision.storage);
  }
  Bytes bytes(ParamId p) const { return numel(p) * bytes_of(dtype(p)); }
  // Forward has an operator that takes it, and from there a path to the loss.
  bool used(ParamId p) const { return used_[p.v]; }

  struct Tensor {
    BufferId buffer;
    Bytes bytes = 0;
    DType dtype = DType::fp32;
  };
  const std::vector<Tensor>& module_buffers() const { return module_buffers_; }
  GroupId group(ParamId p) const { return {static_cast<uint32_t>(plan_.group_of_param[p.v])}; }

  Host& host_;
  const Model& model_;
  const Plan& plan_;
  const Training& training_;
  std::vector<BufferId> params_;  // by parameter; a tied one has its first name's only
  std::vector<BufferId> grads_;   // by parameter; .grad
  std::vector<Sharded> sharded_;  // those that require a gradient

 private:
  std::vector<Tensor> module_buffers_;  // the root's
  std::vector<bool> used_;              // by parameter
};

}  // namespace shardsim
