#include "sim/schedule/host_optimizer.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace shardsim {
namespace {

constexpr Bytes kLargestKept = 32 * kMiB;  // DEFAULT_MMAP_THRESHOLD_MAX of glibc on 64 bits

bool has_state(const Optimizer& o) { return o.name != Optimizer::Name::sgd || o.momentum; }

}  // namespace

void add_passes(HostWork& work, const HostPasses& passes, int64_t numel, DType dtype) {
  const Bytes bytes = numel * bytes_of(dtype);
  work.elements += numel;
  work.accesses += passes.accesses * numel;
  work.bytes += passes.accesses * bytes;
  if (bytes >= kLargestKept) work.fresh += passes.fresh * bytes;
  work.operators += static_cast<uint32_t>(passes.operators);
}

HostPasses optimizer_passes(const Optimizer& o) {
  const bool fused = o.implementation == Optimizer::Implementation::fused;
  const bool l2 = o.name != Optimizer::Name::adamw && o.weight_decay > 0;
  if (o.name == Optimizer::Name::sgd) {
    if (fused) return {o.momentum ? 5 : 3, 0, 0};
    HostPasses p{3, 0, 1};             // param.add_(grad)
    if (o.momentum) p.add({5, 0, 2});  // buf.mul_().add_(grad)
    if (l2) p.add({3, 1, 1});          // grad.add(param)
    return p;
  }
  if (fused) return {o.amsgrad ? 9 : 7, 0, 0};
  HostPasses p{19, 2, 8};  // the step counter, and lerp_ to addcdiv_
  if (o.name == Optimizer::Name::adamw) p.add({2, 0, 1});  // param.mul_()
  if (l2) p.add({3, 1, 1});                                // grad.add(param)
  if (o.amsgrad) p.add({3, 0, 1});                         // maximum
  return p;
}

HostOptimizer::HostOptimizer(Host& host, const Optimizer& options, DType dtype,
                             std::vector<OptimizerParam> params)
    : host_(host), options_(options), dtype_(dtype), params_(std::move(params)) {
  has_state_.assign(params_.size(), false);
}

void HostOptimizer::work(const char* name, const HostPasses& passes,
                         const std::vector<uint32_t>& with_grad, bool makes_state) {
  HostWork w;
  w.name = name;
  for (const uint32_t i : with_grad) {
    const OptimizerParam& p = params_[i];
    if (p.numel == 0) continue;
    const DType type = p.dtype.value_or(dtype_);
    add_passes(w, passes, p.numel, type);
    if (!makes_state || has_state_[i]) continue;
    has_state_[i] = true;
    // Moments are filled with zeros, a momentum is a copy of the gradient; both are kept, so new pages.
    const int tensors = options_.name == Optimizer::Name::sgd ? 1 : options_.amsgrad ? 3 : 2;
    w.accesses += 2 * tensors * p.numel;
    w.bytes += 2 * tensors * p.numel * bytes_of(type);
    w.fresh += tensors * p.numel * bytes_of(type);
    w.operators += static_cast<uint32_t>(tensors);
  }
  if (w.elements == 0) return;
  for (const Made& m : made_)
    if (std::string_view(m.work.name) == name && m.work.accesses == w.accesses &&
        m.work.bytes == w.bytes && m.work.fresh == w.fresh && m.work.operators == w.operators)
      return host_.work_on_host(m.id);
  made_.push_back({w, host_.host_work(w)});
  host_.work_on_host(made_.back().id);
}

void HostOptimizer::step(const std::vector<uint32_t>& with_grad) {
  if (options_.name == Optimizer::Name::none) return;
  work("CPU optimizer", optimizer_passes(options_), with_grad, has_state(options_));
}

void HostOptimizer::zero(const std::vector<uint32_t>& with_grad) {
  work("CPU zero_grad", kHostScan, with_grad);
}

}  // namespace shardsim
