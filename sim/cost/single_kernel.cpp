#include "sim/cost/single_kernel.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace shardsim {
namespace {

using Constants = KernelCalibration;

constexpr int kFirstWithFp8 = 89;
constexpr int64_t kLeastPart = 256;  // elements of k
constexpr int kParts[] = {1, 2, 3, 4, 6, 8};

double number(int64_t n) { return static_cast<double>(n); }

// Dense, in FLOPs a microsecond; 0: the GPU has none.
double peak(const Gpu& gpu, DType dtype) {
  const double half = std::max(gpu.bf16_tflops, gpu.fp16_tflops) * 1e6;
  switch (dtype) {
    case DType::bf16:
    case DType::fp16: return half;
    case DType::fp8: return gpu.compute_capability >= kFirstWithFp8 ? 2 * half : 0;
    default: return gpu.fp32_tflops * 1e6;
  }
}

std::optional<double> product_us(const Gpu& gpu, const Constants& c, const SingleKernel& s) {
  const double dense = peak(gpu, s.dtype);
  if (dense <= 0) return std::nullopt;
  struct Tile {
    int64_t m, n;
    double rate;
  };
  const Tile tiles[] = {{256, 128, 1},
                        {128, 256, 1},
                        {128, 128, c.gemm_tile_128},
                        {128, 64, c.gemm_tile_64},
                        {64, 128, c.gemm_tile_64},
                        {64, 64, c.gemm_tile_64x64}};
  const int e = bytes_of(s.dtype);
  const double bytes = number(e) * (number(s.m) * number(s.k) + number(s.k) * number(s.n)) +
                       std::max(2, e) * number(s.m) * number(s.n);
  double rate = dense * c.gemm_efficiency;
  if (s.dtype == DType::fp8) rate *= c.gemm_fp8;
  if (s.n * e % 16 != 0 || s.k * e % 16 != 0) rate *= c.gemm_unaligned;
  const double memory = gpu.memory_gbps * 1e3 * c.gemm_memory_fraction;
  double least = std::numeric_limits<double>::infinity();
  for (const Tile& tile : tiles) {
    const int64_t across = ceil_div(s.m, tile.m), down = ceil_div(s.n, tile.n);
    const double padded = number(across * tile.m) * number(down * tile.n);
    for (const int parts : kParts) {
      if (parts > 1 && s.k < parts * kLeastPart) break;
      const double waves = number(across * down * parts) / std::max(1, gpu.sms);
      const double q = std::ceil(waves) / waves * padded / (number(s.m) * number(s.n));
      const double inner = number(s.k) / parts;
      const double compute = s.flops() * (1 + (q - 1) * c.gemm_wave_weight) /
                             (rate * tile.rate * inner / (inner + c.gemm_k_half));
      const double extra = parts > 1 ? 8.0 * parts * number(s.m) * number(s.n) : 0;
      least = std::min(
          least, std::max(compute, (bytes + extra) / memory) + (parts > 1 ? c.gemm_split_us : 0));
    }
  }
  return least + c.gemm_fixed_us;
}

std::optional<double> attention_us(const Constants& c, const SingleKernel& s) {
  if (bytes_of(s.dtype) != 2) return std::nullopt;
  const auto curve = std::find_if(c.attention.begin(), c.attention.end(), [&](const auto& a) {
    return a.implementation == s.implementation && a.backward == s.backward;
  });
  if (curve == c.attention.end()) return std::nullopt;
  double rate = curve->tflops * 1e6 * (s.causal ? curve->causal : 1);
  rate *= number(s.length) /
          (number(s.length) + (s.causal ? curve->causal_half_length : curve->half_length));
  if (s.head_dim <= 64) rate *= curve->head_64;
  if (s.head_dim > 128) rate *= curve->head_256;
  return s.flops() / rate + c.attention_fixed_us;
}

double memory_bound_us(const Gpu& gpu, const Constants& c, const SingleKernel& s) {
  double fraction = c.vec;
  if (s.memory == MemoryKernel::gated) fraction *= c.gated;
  if (s.memory == MemoryKernel::rms_norm) fraction *= c.rms_norm;
  return std::max(c.kernel_floor_us,
                  number(s.bytes) / (gpu.memory_gbps * 1e3 * fraction) + c.kernel_fixed_us);
}

}  // namespace

double SingleKernel::flops() const {
  if (kind == Kind::product) return 2 * number(m) * number(n) * number(k);
  if (kind == Kind::memory_bound) return 0;
  const double forward = 4 * number(batch) * number(heads) * number(length) * number(length) *
                         number(head_dim) * (causal ? .5 : 1);
  return backward ? 2.5 * forward : forward;
}

std::optional<double> single_kernel_us(const Gpu& gpu, const Constants& constants,
                                       const SingleKernel& kernel) {
  switch (kernel.kind) {
    case SingleKernel::Kind::product: return product_us(gpu, constants, kernel);
    case SingleKernel::Kind::attention: return attention_us(constants, kernel);
    case SingleKernel::Kind::memory_bound: break;
  }
  return memory_bound_us(gpu, constants, kernel);
}

}  // namespace shardsim
