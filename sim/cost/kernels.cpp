#include "sim/cost/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/base/error.h"

namespace shardsim {
namespace {

double fraction_of(const Calibration& c, KernelClass k) {
  switch (k) {
    case KernelClass::pointwise:
    case KernelClass::embedding:
    case KernelClass::attention: return 1.0;
    case KernelClass::strided: return c.strided;
    case KernelClass::reduction: return c.reduction;
    case KernelClass::softmax: return c.softmax;
    case KernelClass::fused: return c.fused;
    case KernelClass::foreach_op:
    case KernelClass::copy_out:
    case KernelClass::chunk_cat:
    case KernelClass::cat: return c.foreach_copy;
  }
  return 1.0;
}

// Waves rounded up / waves x padded area / area of a tiling; >= 1.
double waste(double sms, int64_t m, int64_t n, int64_t batch, int64_t tile_m, int64_t tile_n) {
  const int64_t across = ceil_div(m, tile_m), down = ceil_div(n, tile_n);
  const double waves = static_cast<double>(across * down * batch) / sms;
  const double padded = static_cast<double>(across * tile_m) * static_cast<double>(down * tile_n);
  return std::ceil(waves) / waves * padded / (static_cast<double>(m) * static_cast<double>(n));
}

double peak_of(const GpuRates& gpu, DType dtype) {
  switch (dtype) {
    case DType::bf16: return gpu.bf16_flops_per_us;
    case DType::fp16:
    case DType::fp8: return gpu.fp16_flops_per_us;
    default: return gpu.fp32_flops_per_us;
  }
}

double flops_of(int64_t m, int64_t n, int64_t k, int64_t batch) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
         static_cast<double>(batch);
}

// cuBLAS's kernels move 16 bytes at a time where rows allow it; each halving of that costs.
double alignment(const Calibration& c, int64_t m, int64_t k, DType dtype) {
  const int64_t rows = (m | k) * bytes_of(dtype);
  double rate = 1;
  for (int64_t bytes = 16; bytes > 1 && rows % bytes != 0; bytes /= 2) rate *= c.gemm_unaligned;
  return rate;
}

double attention_rate(const GpuRates& gpu, int64_t length) {
  const auto& rate = gpu.attention_flops_per_us;
  if (length <= 512) return rate[0];
  if (length >= 16384) return rate[5];
  const int octave = std::bit_width(static_cast<uint64_t>(length)) - 1;  // 9 for 512
  const int i = octave - 9;
  const double base = static_cast<double>(int64_t{1} << octave);
  if (static_cast<double>(length) == base) return rate[i];
  return rate[i] + (rate[i + 1] - rate[i]) * std::log2(static_cast<double>(length) / base);
}

// The measured rates are of 16-bit types; fp32 runs the memory-efficient kernels, at a rate that
// follows its peak (an assumption).
double attention_work_us(const GpuRates& gpu, const Work& w) {
  const bool half = bytes_of(w.dtype) <= 2;
  const double backend = half ? gpu.constants.attention_backend : gpu.constants.attention_efficient;
  const double flops = static_cast<double>(w.flops) / backend *
                       std::max(1.0, gpu.bf16_flops_per_us / peak_of(gpu, w.dtype));
  if (w.m > 0 && w.k > 0) {
    const double area = static_cast<double>(w.m) * static_cast<double>(w.n) *
                        static_cast<double>(w.k) * static_cast<double>(w.batch);
    const double ratio = static_cast<double>(w.flops) / area;
    return attention_us(gpu, flops, w.n, w.k, ratio > 4.5);
  }
  // Forward, as many key heads as query heads: FLOPs 2 b h s^2 d, bytes 4 e b h s d.
  const double per_byte =
      w.bytes > 0 ? static_cast<double>(w.flops) / static_cast<double>(w.bytes) : 0;
  const auto length = static_cast<int64_t>(2 * bytes_of(w.dtype) * per_byte);
  return attention_us(gpu, flops, length, 128, false);
}

}  // namespace

GpuRates rates_of(const Gpu& gpu, const Calibration& c) {
  GpuRates r;
  r.constants = c;
  // 1e12 operations a second are 1e6 a microsecond, 1e9 bytes a second 1e3.
  r.fp32_flops_per_us = gpu.fp32_tflops * 1e6;
  r.bf16_flops_per_us = gpu.bf16_tflops * 1e6;
  r.fp16_flops_per_us = gpu.fp16_tflops * 1e6;
  if (r.bf16_flops_per_us == 0) r.bf16_flops_per_us = r.fp32_flops_per_us;
  if (r.fp16_flops_per_us == 0) r.fp16_flops_per_us = r.bf16_flops_per_us;
  r.sms = std::max(1, gpu.sms);
  r.thin_bytes_per_us = c.thin_gemm_memory_fraction * gpu.memory_gbps * 1e3;
  r.product_bytes_per_us = c.gemm_memory_fraction * gpu.memory_gbps * 1e3;
  r.vec_bytes_per_us = c.vec * gpu.memory_gbps * 1e3;
  r.host_link_bytes_per_us = c.host_link_fraction * gpu.pcie_gbps * 1e3;
  for (size_t i = 0; i < c.attention_tflops.size(); ++i)
    r.attention_flops_per_us[i] = c.attention_tflops[i] * c.attention_scale * 1e6;
  return r;
}

double thin_product_us(const GpuRates& gpu, int64_t m, int64_t n, int64_t k, int64_t batch,
                       DType dtype, Bytes bytes) {
  const double rate = peak_of(gpu, dtype) * gpu.constants.thin_gemm_efficiency *
                      alignment(gpu.constants, m, k, dtype);
  return std::max(flops_of(m, n, k, batch) / rate,
                  static_cast<double>(bytes) / gpu.thin_bytes_per_us) +
         gpu.constants.thin_gemm_fixed_us;
}

double product_us(const GpuRates& gpu, int64_t m, int64_t n, int64_t k, int64_t batch, DType dtype,
                  Bytes bytes) {
  if (m <= 0 || n <= 0 || k <= 0 || batch <= 0) return gpu.constants.gemm_fixed_us;
  if (m < kThinProduct || n < kThinProduct)
    return thin_product_us(gpu, m, n, k, batch, dtype, bytes);
  double factor = 1;
  if (gpu.constants.gemm_wave_weight > 0) {
    const double q =
        std::min({waste(gpu.sms, m, n, batch, 128, 256), waste(gpu.sms, m, n, batch, 256, 128),
                  1.08 * waste(gpu.sms, m, n, batch, 128, 128)});
    factor = 1 + (q - 1) * gpu.constants.gemm_wave_weight;
  }
  const auto inner = static_cast<double>(k);
  const double rate = peak_of(gpu, dtype) * gpu.constants.gemm_efficiency * inner /
                      (inner + gpu.constants.gemm_k_half) * alignment(gpu.constants, m, k, dtype);
  return std::max(flops_of(m, n, k, batch) * factor / rate,
                  static_cast<double>(bytes) / gpu.product_bytes_per_us) +
         gpu.constants.gemm_fixed_us;
}

double attention_us(const GpuRates& gpu, double flops, int64_t length, int64_t head_dim,
                    bool backward) {
  double rate = attention_rate(gpu, length);
  if (head_dim <= 64) rate *= gpu.constants.attention_small_head;
  if (backward) rate *= gpu.constants.attention_backward;
  return flops / rate + gpu.constants.attention_fixed_us;
}

double memory_bound_us(const GpuRates& gpu, KernelClass kernel, Bytes bytes) {
  const double rate = gpu.vec_bytes_per_us * fraction_of(gpu.constants, kernel);
  return std::max(gpu.constants.kernel_floor_us,
                  static_cast<double>(bytes) / rate + gpu.constants.kernel_fixed_us);
}

double kernel_us(const GpuRates& gpu, const Work& w) {
  switch (w.kind) {
    case WorkKind::Gemm: return product_us(gpu, w.m, w.n, w.k, w.batch, w.dtype, w.bytes);
    case WorkKind::Kernel:
      return w.kernel == KernelClass::attention ? attention_work_us(gpu, w)
                                                : memory_bound_us(gpu, w.kernel, w.bytes);
    case WorkKind::CopyH2D:
    case WorkKind::CopyD2H:
      return gpu.constants.copy_fixed_us +
             static_cast<double>(w.bytes) / gpu.host_link_bytes_per_us;
    case WorkKind::CopyD2D: return memory_bound_us(gpu, KernelClass::pointwise, 2 * w.bytes);
    case WorkKind::Memset: return memory_bound_us(gpu, KernelClass::pointwise, w.bytes);
    default: break;
  }
  SHARDSIM_ASSERT(false, "a collective is priced by its communicator");
  return 0;
}

}  // namespace shardsim
