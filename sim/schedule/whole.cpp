#include "sim/schedule/whole.h"

#include "sim/schedule/clip.h"
#include "sim/schedule/streams.h"

namespace shardsim {

Whole::Whole(Host& host, const Model& model, const Plan& plan, const Training& training)
    : host_(host), model_(model), plan_(plan), training_(training) {
  params_.resize(model.params.size());
  grads_.resize(model.params.size());
  for (uint32_t i = 0; i < model.params.size(); ++i)
    if (!model.params[i].alias.valid() && !model.params[i].frozen)
      sharded_.push_back({{i}, numel({i}), group({i})});
}

// Module.to_empty makes a module's parameters behind those of its children. Tied weights are made
// twice and tied again afterwards.
void Whole::initialize() {
  std::vector<BufferId> untied;
  const auto make = [&](auto& self, ModuleId m) -> void {
    const Module& x = model_.modules[m.v];
    for (uint32_t c = m.v + 1; c < x.end; c = model_.modules[c].end) self(self, {c});
    for (uint32_t i = x.first_param; i < x.first_param + x.own_params; ++i) {
      const BufferId b = host_.buffer(bytes({i}), kCompute, Category::parameters, group({i}));
      host_.alloc(b);
      if (model_.params[i].alias.valid())
        untied.push_back(b);
      else
        params_[i] = b;
    }
  };
  make(make, {0});
  for (int64_t n : model_.architecture.buffers) {
    const DType type = training_.precision.storage;
    const Bytes bytes = n * bytes_of(type);
    const BufferId b = host_.buffer(bytes, kCompute, Category::parameters);
    host_.alloc(b);
    module_buffers_.push_back({b, bytes, type});
  }
  for (BufferId b : untied) host_.free(b);
}

void Whole::set_unsharded_grad(ParamId param, BufferId buffer, EventId) {
  BufferId& grad = grads_[param.v];
  if (grad.valid()) {
    Work add;
    add.bytes = 3 * bytes(param);
    add.dtype = dtype(param);
    add.name = "add";
    add.group = group(param);
    host_.launch(kCompute, host_.work(add));
    host_.free(buffer);
  } else {
    host_.schedule().buffers[buffer.v].category = Category::gradients;
    grad = buffer;
  }
  accumulated(param);
}

void Whole::drop_grads() {
  for (const Sharded& p : sharded_) {
    BufferId& grad = grads_[p.id.v];
    if (grad.valid()) host_.free(grad);
    grad = {};
  }
}

void Whole::clip_grad_norm(const std::vector<uint32_t>& with_grad) {
  std::vector<int64_t> numels;
  numels.reserve(with_grad.size());
  for (uint32_t i : with_grad) numels.push_back(sharded_[i].local);
  clip_whole_grads(host_, training_.precision.storage, numels);
}

}  // namespace shardsim
