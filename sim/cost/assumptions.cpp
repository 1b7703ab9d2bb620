#include "sim/cost/assumptions.h"

#include <fmt/format.h>

#include "sim/cluster/catalogue.h"
#include "sim/cost/host_work.h"
#include "sim/plan/attention.h"

namespace shardsim {
namespace {

constexpr SoftwareDate kCudnnFrom = 202503;
constexpr SoftwareDate kUntil2022 = 202305;  // torch 2.0 came in 2023-03 and was taken up by May
constexpr SoftwareDate kUntil2023 = 202402;  // torch 2.2 came in 2024-01
constexpr int kHopper = 90;

bool hopper_or_newer(const Scenario& s) { return s.cluster.gpu.compute_capability >= kHopper; }

// Nothing in the scenario says which kernel runs.
bool attention_is_open(const Scenario& s) {
  return s.training.attention_backend == AttentionBackend::automatic &&
         s.model.sdpa == Sdpa::best && bytes_of(product_dtype(s.training.precision)) <= 2;
}

}  // namespace

AttentionBackend attention_backend(const Scenario& s) {
  if (s.training.attention_backend != AttentionBackend::automatic)
    return s.training.attention_backend;
  if (s.model.sdpa == Sdpa::efficient || bytes_of(product_dtype(s.training.precision)) > 2)
    return AttentionBackend::efficient;
  if (s.model.sdpa == Sdpa::flash) return AttentionBackend::fa2;
  const bool old = s.training.software != 0 && s.training.software < kCudnnFrom;
  return hopper_or_newer(s) && !old ? AttentionBackend::cudnn : AttentionBackend::fa2;
}

const char* name_of(AttentionBackend backend) {
  switch (backend) {
    case AttentionBackend::automatic: return "auto";
    case AttentionBackend::fa2: return "FlashAttention-2";
    case AttentionBackend::fa3: return "FlashAttention-3";
    case AttentionBackend::cudnn: return "cuDNN";
    case AttentionBackend::triton: return "Triton flash attention of 2023";
    case AttentionBackend::efficient: return "memory-efficient kernels";
  }
  return "?";
}

Calibration own_calibration(const Scenario& s) {
  return s.cost.calibration.value_or(calibration_of(s.cluster.gpu));
}

Calibration effective_calibration(const Scenario& s) {
  Calibration c = own_calibration(s);
  switch (attention_backend(s)) {
    case AttentionBackend::fa3: c.attention_backend = c.attention_fa3; break;
    case AttentionBackend::cudnn:
      if (hopper_or_newer(s)) c.attention_backend = c.attention_cudnn;
      break;
    case AttentionBackend::triton:
      c.attention_backend = c.attention_triton;
      // Heads of 64 are what its blocks were made for; those of 128 spill registers.
      c.attention_small_head = 1;
      break;
    case AttentionBackend::efficient: c.attention_backend = c.attention_efficient; break;
    default: break;
  }
  const SoftwareDate date = s.training.software;
  if (date != 0 && date < kUntil2022)
    c.gemm_efficiency *= c.gemm_2022;
  else if (date != 0 && date < kUntil2023)
    c.gemm_efficiency *= c.gemm_2023;
  return c;
}

namespace {

std::string kernel_name(const Scenario& s) {
  const AttentionBackend backend = attention_backend(s);
  const bool as_fa2 = backend == AttentionBackend::cudnn && !hopper_or_newer(s);
  return as_fa2 ? "cuDNN, at FlashAttention-2's rate" : name_of(backend);
}

}  // namespace

std::vector<PricedWith> priced_with(const Scenario& s) {
  std::vector<PricedWith> out;
  if (s.cost.model == CostChoice::Model::flat) return out;
  const Training& t = s.training;
  if (s.cost.calibration)
    out.push_back({"constants", s.cost.calibration->name, false});
  else
    out.push_back(
        {"constants", fmt::format("of {}'s generation, not fitted", s.cluster.gpu.name), true});
  if (calls_sdpa(s.model)) {
    if (s.model.sdpa == Sdpa::math)
      out.push_back({"attention", "written out by PyTorch (math)", false});
    else
      out.push_back({"attention", kernel_name(s), attention_is_open(s)});
  }
  if (t.software == 0)
    out.push_back({"software", "of the constants' date", true});
  else
    out.push_back(
        {"software", fmt::format("{:04}-{:02}", t.software / 100, t.software % 100), false});
  if (!offloads(t)) return out;
  const HostRates host = host_rates(s.cluster);
  const int threads = host.threads;
  out.push_back({"CPU", fmt::format("{} {} a rank", threads, threads == 1 ? "thread" : "threads"),
                 s.cluster.host.threads == 0});
  out.push_back({"host memory", fmt::format("{:.4g} GB/s a rank", host.memory_gbps),
                 s.cluster.host.memory_gbps == 0});
  return out;
}

std::vector<std::string> assumptions(const Scenario& s) {
  std::vector<std::string> out;
  for (const PricedWith& p : priced_with(s))
    if (p.assumed) out.push_back(fmt::format("{}: {}", p.what, p.value));
  return out;
}

}  // namespace shardsim
