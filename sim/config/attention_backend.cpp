#include "sim/config/attention_backend.h"

#include <fmt/format.h>

#include "sim/plan/attention.h"

namespace shardsim {
namespace {

constexpr int kHopper = 90, kAmpere = 80;
constexpr SoftwareDate kFa3From = 202407, kCudnnFrom = 202401;

// What stands in the way of this kernel, and what to do; nothing: it can run.
struct Refusal {
  std::string what, hint;
};

Refusal by_model(const Architecture& model, AttentionBackend backend) {
  const bool efficient = backend == AttentionBackend::efficient;
  if (model.attention == AttentionForm::eager)
    return {"model.attention: eager writes attention out: there is no kernel to choose",
            "leave one of the two out"};
  if (!calls_sdpa(model))
    return {fmt::format("a {} model does not call scaled_dot_product_attention", model.model_type),
            "leave it out"};
  if (model.sdpa == Sdpa::math)
    return {"model.sdpa: math runs PyTorch's written out attention", "leave one of the two out"};
  if (model.sdpa == Sdpa::efficient && !efficient)
    return {"model.sdpa: efficient runs memory-efficient attention", "leave one of the two out"};
  if (model.sdpa == Sdpa::flash && backend != AttentionBackend::fa2 &&
      backend != AttentionBackend::fa3)
    return {"model.sdpa: flash runs FlashAttention", "fa2 or fa3, or leave model.sdpa out"};
  return {};
}

Refusal by_machine(const Scenario& s, AttentionBackend backend) {
  const Gpu& gpu = s.cluster.gpu;
  const SoftwareDate date = s.training.software;
  const auto before = [&](SoftwareDate from) { return date != 0 && date < from; };
  if (backend == AttentionBackend::fa3) {
    if (gpu.compute_capability != kHopper)
      return {fmt::format("FlashAttention-3 runs on Hopper alone, and {} has compute capability {}",
                          gpu.name, gpu.compute_capability),
              "auto takes what runs there"};
    if (before(kFa3From))
      return {"FlashAttention-3 was published in 2024-07, after training.software",
              "fa2, or a later training.software"};
  }
  if (backend == AttentionBackend::cudnn) {
    if (gpu.compute_capability < kAmpere)
      return {fmt::format("cuDNN's attention needs compute capability 80, and {} has {}", gpu.name,
                          gpu.compute_capability),
              "auto takes what runs there"};
    if (before(kCudnnFrom))
      return {"PyTorch calls cuDNN's attention since 2024, after training.software",
              "fa2, or a later training.software"};
  }
  return {};
}

}  // namespace

void check_attention_backend(const Value& training, const Scenario& scenario) {
  const AttentionBackend backend = scenario.training.attention_backend;
  if (backend == AttentionBackend::automatic) return;
  Refusal refusal = by_model(scenario.model, backend);
  const DType type = product_dtype(scenario.training.precision);
  if (refusal.what.empty() && bytes_of(type) > 2 && backend != AttentionBackend::efficient)
    refusal = {
        fmt::format("it takes bf16 and fp16, and attention is computed in {}", name_of(type)),
        "efficient is what fp32 runs; or set training.precision.compute"};
  if (refusal.what.empty()) refusal = by_machine(scenario, backend);
  if (!refusal.what.empty())
    Map(training, Map::any_key).fail_key("attention_backend", refusal.what, refusal.hint);
}

}  // namespace shardsim
