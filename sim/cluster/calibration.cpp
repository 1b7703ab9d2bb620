#include "sim/cluster/calibration.h"

#include <algorithm>

namespace shardsim {
namespace {

using C = Calibration;

constexpr ConstantInfo kConstants[] = {
    {"gemm_efficiency", &C::gemm_efficiency, .01, 1.5, "of the dense peak, in a training step"},
    {"gemm_wave_weight", &C::gemm_wave_weight, 0, 1, "how much the last wave's tail counts"},
    {"gemm_k_half", &C::gemm_k_half, 0, 1e5, "inner dimension of half the rate"},
    {"gemm_memory_fraction", &C::gemm_memory_fraction, .01, 1.5, "of the memory rate"},
    {"gemm_fixed_us", &C::gemm_fixed_us, 0, 1e4, "of each product"},
    {"gemm_unaligned", &C::gemm_unaligned, .01, 1,
     "of the rate, each halving of alignment below 16 bytes"},
    {"thin_gemm_efficiency", &C::thin_gemm_efficiency, .01, 1.5, "m or n below 512"},
    {"thin_gemm_memory_fraction", &C::thin_gemm_memory_fraction, .01, 1.5, "of the memory rate"},
    {"thin_gemm_fixed_us", &C::thin_gemm_fixed_us, 0, 1e4, "of each thin product"},
    {"gemm_2022", &C::gemm_2022, .01, 1.5, "of the rate, with software of 2022"},
    {"gemm_2023", &C::gemm_2023, .01, 1.5, "of the rate, with software of 2023"},
    {"attention_scale", &C::attention_scale, .01, 10, "of the table of rates"},
    {"attention_backward", &C::attention_backward, .01, 10, "of the forward's rate"},
    {"attention_small_head", &C::attention_small_head, .01, 10, "heads of 64 and less"},
    {"attention_fixed_us", &C::attention_fixed_us, 0, 1e4, "of each attention kernel"},
    {"attention_fa3", &C::attention_fa3, .01, 100, "against FlashAttention-2"},
    {"attention_cudnn", &C::attention_cudnn, .01, 100, "against FlashAttention-2"},
    {"attention_triton", &C::attention_triton, .01, 100, "against FlashAttention-2"},
    {"attention_efficient", &C::attention_efficient, .01, 100, "against FlashAttention-2"},
    {"vec", &C::vec, .01, 1.5, "of the memory rate: contiguous elementwise kernels"},
    {"strided", &C::strided, .01, 2, "of vec: index arithmetic"},
    {"reduction", &C::reduction, .01, 2, "of vec"},
    {"softmax", &C::softmax, .01, 2, "of vec"},
    {"foreach_copy", &C::foreach_copy, .01, 2, "of vec: optimizers, FSDP's copies"},
    {"fused", &C::fused, .01, 2, "of vec: Inductor's kernels"},
    {"kernel_fixed_us", &C::kernel_fixed_us, 0, 1e4, "of each memory-bound kernel"},
    {"kernel_floor_us", &C::kernel_floor_us, 0, 1e4, "the least a kernel takes"},
    {"copy_fixed_us", &C::copy_fixed_us, 0, 1e4, "of each copy from or to the host"},
    {"host_link_fraction", &C::host_link_fraction, .01, 1, "of the host link's line rate"},
    {"collective_latency", &C::collective_latency, .01, 100, "of the model's latencies"},
    {"collective_bandwidth", &C::collective_bandwidth, .01, 100, "of the model's bandwidths"},
    {"sm_steal", &C::sm_steal, 0, 8, "SMs that a collective's thread block costs a product"},
    {"host_launch_us", &C::host_launch_us, 0, 1e5, "of the host, for each launch"},
    {"host_operator_us", &C::host_operator_us, 0, 1e5, "of the host, for each operator call"},
    {"host_collective_us", &C::host_collective_us, 0, 1e6, "a gather or scatter with its hooks"},
    {"host_product_operators", &C::host_product_operators, 0, 1e3, "operator calls of a product"},
    {"host_fused_operators", &C::host_fused_operators, 0, 1e3, "of an Inductor kernel"},
    {"host_parameter_operators", &C::host_parameter_operators, 0, 1e3, "of a gathered parameter"},
    {"host_recompute", &C::host_recompute, 0, 100, "what recomputation makes of an operator call"},
    {"host_reduction_us", &C::host_reduction_us, 0, 1e6, "a collective without a wrapper's hooks"},
    {"host_malloc_us", &C::host_malloc_us, 0, 1e6, "a cudaMalloc"},
    {"host_call_us", &C::host_call_us, 0, 1e5, "a record, wait or synchronization"},
    {"host_accesses_per_ns", &C::host_accesses_per_ns, .01, 1e3,
     "elements that a thread of the host reads or writes"},
    {"host_memory_fraction", &C::host_memory_fraction, .01, 1, "of the line rate of host memory"},
    {"host_page_gbps", &C::host_page_gbps, .01, 1e3, "new pages of host memory, of one thread"},
    {"host_page_most_gbps", &C::host_page_most_gbps, .01, 1e3, "new pages, of a process"},
    {"scale_tax", &C::scale_tax, 0, 1, "what each doubling of ranks beyond 8 adds, over nodes"},
};

constexpr double kHopperBf16Tflops = 989;
constexpr double kFastMemoryGbps = 2800;  // tells the 700 W H100 from the 500 W part of 2.4 TB/s

}  // namespace

std::span<const ConstantInfo> calibration_constants() { return kConstants; }

Calibration calibration_of(const Gpu& gpu) {
  Calibration c;
  if (gpu.compute_capability == 80) {
    c.name = "a100";
    c.gemm_efficiency = .796;
    c.gemm_wave_weight = 0;
    c.gemm_k_half = 256;
    c.thin_gemm_efficiency = .74;
    c.thin_gemm_memory_fraction = .75;
    c.vec = .8408;
    c.attention_tflops = {120, 150, 172, 184, 190, 192};  // from memory; a fit moved them by 3 %
    c.attention_backward = .86;
    return c;
  }
  if (gpu.compute_capability == 90) {
    c.name = "h100";
    c.vec = .8183;
    // Both parts have 132 SMs and the same peaks.
    if (gpu.memory_gbps >= kFastMemoryGbps) return c;
    c.name = "h100-500w";
    c.gemm_efficiency = .636;
    c.gemm_k_half = 0;
    c.vec = .9168;
    for (double& rate : c.attention_tflops) rate *= .90;
    return c;
  }
  // As an H100, attention by the peak (assumed).
  c.name = "assumed";
  const double peak = std::max(gpu.bf16_tflops, gpu.fp16_tflops);
  for (double& rate : c.attention_tflops) rate *= peak / kHopperBf16Tflops;
  return c;
}

}  // namespace shardsim
