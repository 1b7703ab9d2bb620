#include "sim/schedule/optimizer.h"

#include <utility>

#include "sim/schedule/multi_tensor.h"
#include "sim/schedule/streams.h"

namespace shardsim {

OptimizerStep::OptimizerStep(Host& host, const Optimizer& options, DType dtype,
                             std::vector<OptimizerParam> params)
    : host_(host), options_(options), dtype_(dtype), params_(std::move(params)) {
  has_state_.assign(params_.size(), false);
}

void OptimizerStep::set_active(const std::vector<uint32_t>& with_grad) {
  active_.clear();
  numel_ = 0;
  for (uint32_t i : with_grad) {
    if (params_[i].numel == 0) continue;
    active_.push_back(i);
    numel_ += params_[i].numel;
  }
  for (int lists = 1; lists <= 5; ++lists) {
    ForeachLaunches pass(host_.behaviour(), lists);
    for (uint32_t i : active_) pass.add(params_[i].numel);
    launches_[lists - 1] = pass.count();
  }
}

// The work of this name over this many elements; made once, `passes` reads or writes an element.
WorkId OptimizerStep::work(const char* name, double passes, int64_t numel) {
  for (const Named& n : works_)
    if (n.name == name && n.passes == passes && n.numel == numel) return n.work;
  Work w;
  w.kernel = KernelClass::foreach_op;
  w.dtype = dtype_;
  w.bytes = static_cast<Bytes>(passes * static_cast<double>(numel * bytes_of(dtype_)));
  w.name = name;
  works_.push_back({name, passes, numel, host_.work(w)});
  return works_.back().work;
}

WorkId OptimizerStep::zeros_of(Bytes bytes) {
  for (const auto& [size, work] : zeros_)
    if (size == bytes) return work;
  Work w;
  w.kind = host_.behaviour().zeros_by_kernel ? WorkKind::Kernel : WorkKind::Memset;
  w.bytes = bytes;
  w.name = "zeros";
  zeros_.emplace_back(bytes, host_.work(w));
  return zeros_.back().second;
}

void OptimizerStep::kernels(const char* name, int lists, double passes) {
  const int64_t launches = launches_[lists - 1];
  const WorkId w = work(name, passes, numel_ / launches);
  for (int64_t l = 0; l < launches; ++l) host_.launch(kCompute, w);
}

void OptimizerStep::each(size_t i, const char* name, double passes) {
  host_.launch(kCompute, work(name, passes, params_[i].numel));
}

void OptimizerStep::make_state() {
  const bool fused = options_.implementation == Optimizer::Implementation::fused;
  for (uint32_t i : active_) {
    if (has_state_[i]) continue;
    has_state_[i] = true;
    const OptimizerParam& p = params_[i];
    const Bytes bytes = p.numel * bytes_of(dtype_);
    const auto zeros = [&](Bytes n) {
      host_.alloc(host_.buffer(n, kCompute, Category::optimizer_state, p.group));
      host_.launch(kCompute, zeros_of(n));
    };
    if (fused) zeros(4);  // the step counter lives on the device
    zeros(bytes);
    zeros(bytes);
  }
}

void OptimizerStep::adam() {
  make_state();
  const bool decays = options_.name == Optimizer::Name::adamw;
  if (temporaries_.empty())
    for (const OptimizerParam& p : params_)
      temporaries_.push_back(
          host_.buffer(p.numel * bytes_of(dtype_), kCompute, Category::optimizer, p.group));
  switch (options_.implementation) {
    case Optimizer::Implementation::fused:
      kernels("foreach_add", 1, 0.001);  // step counters
      kernels("fused_adamw", 4, 7);      // p, m, v read and written, g read
      return;
    case Optimizer::Implementation::foreach:
      if (decays) kernels("foreach_mul", 1, 2);
      kernels("foreach_lerp", 2, 3);
      kernels("foreach_mul", 1, 2);
      kernels("foreach_addcmul", 3, 4);
      for (uint32_t i : active_) host_.alloc(temporaries_[i]);
      kernels("foreach_sqrt", 2, 2);
      kernels("foreach_div", 1, 2);
      kernels("foreach_add", 1, 2);
      kernels("foreach_addcdiv", 3, 4);
      for (auto i = active_.rbegin(); i != active_.rend(); ++i) host_.free(temporaries_[*i]);
      return;
    case Optimizer::Implementation::forloop: {
      // denom = (v.sqrt() / c).add_(eps): the previous parameter's lives until the next is bound.
      BufferId previous;
      for (uint32_t i : active_) {
        if (decays) each(i, "mul", 2);
        each(i, "lerp", 3);
        each(i, "mul", 2);
        each(i, "addcmul", 4);
        const BufferId root = host_.buffer(params_[i].numel * bytes_of(dtype_), kCompute,
                                           Category::optimizer, params_[i].group);
        host_.alloc(root);
        each(i, "sqrt", 2);
        host_.alloc(temporaries_[i]);
        each(i, "div", 2);
        host_.free(root);
        each(i, "add", 2);
        if (previous.valid()) host_.free(previous);
        previous = temporaries_[i];
        each(i, "addcdiv", 4);
      }
      if (previous.valid()) host_.free(previous);
      return;
    }
  }
}

void OptimizerStep::sgd() {
  const bool forloop = options_.implementation == Optimizer::Implementation::forloop;
  bool first = false;
  // The momentum buffer begins as a copy of the gradient; true if it has just been made.
  const auto clone = [&](uint32_t i) {
    if (has_state_[i]) return false;
    has_state_[i] = true;
    const Bytes bytes = params_[i].numel * bytes_of(dtype_);
    host_.alloc(host_.buffer(bytes, kCompute, Category::optimizer_state, params_[i].group));
    Work w;
    w.kind = WorkKind::CopyD2D;
    w.bytes = bytes;
    w.name = "clone";
    host_.launch(kCompute, host_.work(w));
    return true;
  };
  if (forloop) {
    for (uint32_t i : active_) {
      if (options_.momentum && !clone(i)) {
        each(i, "mul", 2);
        each(i, "add", 3);
      }
      each(i, "add", 3);
    }
    return;
  }
  if (options_.momentum) {
    for (uint32_t i : active_) first = clone(i) || first;
    if (!first) {
      kernels("foreach_mul", 1, 2);
      kernels("foreach_add", 2, 3);
    }
  }
  kernels("foreach_add", 2, 3);
}

void OptimizerStep::step(const std::vector<uint32_t>& with_grad) {
  set_active(with_grad);
  if (active_.empty()) return;
  switch (options_.name) {
    case Optimizer::Name::adamw:
    case Optimizer::Name::adam: adam(); return;
    case Optimizer::Name::sgd: sgd(); return;
    case Optimizer::Name::none: return;
  }
}

void OptimizerStep::zero(const std::vector<uint32_t>& with_grad) {
  set_active(with_grad);
  if (!active_.empty()) kernels("foreach_zero", 1, 1);
}

}  // namespace shardsim
