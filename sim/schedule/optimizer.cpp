#include "sim/schedule/optimizer.h"

#include <algorithm>
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
WorkId OptimizerStep::work(const char* name, double passes, int64_t numel, DType dtype) {
  for (const Named& n : works_)
    if (n.name == name && n.passes == passes && n.numel == numel && n.dtype == dtype) return n.work;
  Work w;
  w.kernel = KernelClass::foreach_op;
  w.dtype = dtype;
  w.bytes = static_cast<Bytes>(passes * static_cast<double>(numel * bytes_of(dtype)));
  w.name = name;
  works_.push_back({name, passes, numel, dtype, host_.work(w)});
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
  const WorkId w = work(name, passes, numel_ / launches, type(params_[active_.front()]));
  for (int64_t l = 0; l < launches; ++l) host_.launch(kCompute, w);
}

void OptimizerStep::each(size_t i, const char* name, double passes) {
  host_.launch(kCompute, work(name, passes, params_[i].numel, type(params_[i])));
}

void OptimizerStep::make_state() {
  const bool fused = options_.implementation == Optimizer::Implementation::fused;
  for (uint32_t i : active_) {
    if (has_state_[i]) continue;
    has_state_[i] = true;
    const OptimizerParam& p = params_[i];
    const Bytes size = bytes(p);
    const auto zeros = [&](Bytes n) {
      host_.alloc(host_.buffer(n, kCompute, Category::optimizer_state, p.group));
      host_.launch(kCompute, zeros_of(n));
    };
    if (fused) zeros(4);  // the step counter lives on the device
    zeros(size);
    zeros(size);
    if (options_.amsgrad) zeros(size);
  }
}

BufferId OptimizerStep::allocate(uint32_t i) {
  const BufferId b =
      host_.buffer(bytes(params_[i]), kCompute, Category::optimizer, params_[i].group);
  host_.alloc(b);
  return b;
}

// torch._foreach_add of gradients and parameters: a new list.
std::vector<BufferId> OptimizerStep::decayed_grads() {
  std::vector<BufferId> sums;
  sums.reserve(active_.size());
  for (uint32_t i : active_) sums.push_back(allocate(i));
  kernels("foreach_add", 3, 3);
  return sums;
}

// A list goes from its end.
void OptimizerStep::free_list(const std::vector<BufferId>& list) {
  for (auto b = list.rbegin(); b != list.rend(); ++b) host_.free(*b);
}

void OptimizerStep::adam() {
  const bool decays = options_.name == Optimizer::Name::adamw;
  const bool l2 = !decays && options_.weight_decay > 0;
  if (temporaries_.empty())
    for (const OptimizerParam& p : params_)
      temporaries_.push_back(host_.buffer(bytes(p), kCompute, Category::optimizer, p.group));
  switch (options_.implementation) {
    case Optimizer::Implementation::fused:
      kernels("foreach_add", 1, 0.001);  // step counters
      // p, m, v read and written, g read
      kernels("fused_adamw", options_.amsgrad ? 5 : 4, options_.amsgrad ? 9 : 7);
      return;
    case Optimizer::Implementation::foreach: {
      if (decays) kernels("foreach_mul", 1, 2);
      std::vector<BufferId> sums;
      if (l2) sums = decayed_grads();
      kernels("foreach_lerp", 2, 3);
      kernels("foreach_mul", 1, 2);
      kernels("foreach_addcmul", 3, 4);
      free_list(sums);
      if (options_.amsgrad) kernels("foreach_maximum", 2, 3);
      for (uint32_t i : active_) host_.alloc(temporaries_[i]);
      kernels("foreach_sqrt", 2, 2);
      drop_roots();
      kernels("foreach_div", 1, 2);
      kernels("foreach_add", 1, 2);
      kernels("foreach_addcdiv", 3, 4);
      roots_ = active_;
      return;
    }
    case Optimizer::Implementation::forloop: {
      // grad = grad.add(param): until the next parameter's gradient is bound.
      // denom = (v.sqrt() / c).add_(eps): the previous parameter's lives until the next is bound.
      BufferId previous, sum;
      for (uint32_t i : active_) {
        if (sum.valid()) host_.free(sum);
        if (decays) each(i, "mul", 2);
        if (l2) {
          sum = allocate(i);
          each(i, "add", 3);
        }
        each(i, "lerp", 3);
        each(i, "mul", 2);
        each(i, "addcmul", 4);
        if (options_.amsgrad) each(i, "maximum", 3);
        const BufferId root =
            host_.buffer(bytes(params_[i]), kCompute, Category::optimizer, params_[i].group);
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
      if (sum.valid()) host_.free(sum);
      if (previous.valid()) host_.free(previous);
      return;
    }
  }
}

void OptimizerStep::sgd() {
  const bool l2 = options_.weight_decay > 0;
  // The momentum buffer; true if it has just been made.
  const auto make_buffer = [&](uint32_t i) {
    if (has_state_[i]) return false;
    has_state_[i] = true;
    host_.alloc(
        host_.buffer(bytes(params_[i]), kCompute, Category::optimizer_state, params_[i].group));
    return true;
  };
  // It begins as a copy of the gradient.
  const auto clone = [&](uint32_t i) {
    if (!make_buffer(i)) return false;
    Work w;
    w.kind = WorkKind::CopyD2D;
    w.bytes = bytes(params_[i]);
    w.name = "clone";
    host_.launch(kCompute, host_.work(w));
    return true;
  };
  switch (options_.implementation) {
    case Optimizer::Implementation::fused:
      if (options_.momentum)
        for (uint32_t i : active_) make_buffer(i);
      kernels("fused_sgd", options_.momentum ? 3 : 2, options_.momentum ? 5 : 3);
      return;
    case Optimizer::Implementation::forloop: {
      BufferId sum;
      for (uint32_t i : active_) {
        if (sum.valid()) host_.free(sum);
        sum = {};
        if (l2) {
          sum = allocate(i);
          each(i, "add", 3);
        }
        if (options_.momentum) {
          if (!clone(i)) {
            each(i, "mul", 2);
            each(i, "add", 3);
          }
          // grad = buf
          if (sum.valid()) host_.free(sum);
          sum = {};
        }
        each(i, "add", 3);
      }
      if (sum.valid()) host_.free(sum);
      return;
    }
    case Optimizer::Implementation::foreach: break;
  }
  std::vector<BufferId> sums;
  if (l2) sums = decayed_grads();
  if (options_.momentum) {
    bool first = false;
    for (uint32_t i : active_) first = clone(i) || first;
    if (!first) {
      kernels("foreach_mul", 1, 2);
      kernels("foreach_add", 2, 3);
    }
    free_list(sums);
    sums.clear();
  }
  kernels("foreach_add", 2, 3);
  free_list(sums);
}

// The list of square roots goes where the next type's takes its name.
void OptimizerStep::drop_roots() {
  for (auto i = roots_.rbegin(); i != roots_.rend(); ++i) host_.free(temporaries_[*i]);
  roots_.clear();
}

// The given ones by their types; foreach and fused kernels take one type each. They stand in a hash
// table, the type that came last first (seen with two).
std::vector<std::vector<uint32_t>> OptimizerStep::by_type(const std::vector<uint32_t>& all) const {
  std::vector<std::vector<uint32_t>> out;
  if (options_.implementation == Optimizer::Implementation::forloop) return {all};
  for (uint32_t i : all) {
    const auto same = std::find_if(out.begin(), out.end(), [&](const auto& group) {
      return type(params_[group.front()]) == type(params_[i]);
    });
    if (same == out.end())
      out.insert(out.begin(), std::vector<uint32_t>{i});
    else
      same->push_back(i);
  }
  return out;
}

void OptimizerStep::step(const std::vector<uint32_t>& with_grad) {
  set_active(with_grad);
  const bool adam_state =
      options_.name == Optimizer::Name::adamw || options_.name == Optimizer::Name::adam;
  if (adam_state) make_state();
  for (const std::vector<uint32_t>& group : by_type(with_grad)) {
    set_active(group);
    if (active_.empty()) continue;
    switch (options_.name) {
      case Optimizer::Name::adamw:
      case Optimizer::Name::adam: adam(); break;
      case Optimizer::Name::sgd: sgd(); break;
      case Optimizer::Name::none: break;
    }
  }
  drop_roots();
}

void OptimizerStep::zero(const std::vector<uint32_t>& with_grad) {
  for (const std::vector<uint32_t>& group : by_type(with_grad)) {
    set_active(group);
    if (!active_.empty()) kernels("foreach_zero", 1, 1);
  }
}

}  // namespace shardsim
