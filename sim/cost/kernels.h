// The time of one kernel from its sizes, by a GPU's peaks and the constants of its calibration
// (sim/cluster/calibration.h has each with its source).
//
// Products with m and n of 512 and more (microseconds; P dense peak of the type, W memory rate):
//   t = max(2 m n k b (1 + (q-1) w) / (P ec k/(k+k0)), bytes / (M W)) + fixed
//   q = waves rounded up / waves x padded tile area / area, the least of tiles 128x256, 256x128 and
//   1.08 x that of 128x128
//   Thinner ones, where cuBLAS splits k: max(2 m n k b / (P ek), bytes / (W em)) + fixed.
// Attention: FLOPs / rate + fixed; rate by sequence length (512, 1k, 2k, 4k, 8k, 16k; between them
//   linear in log2 of the length). Without a mask the same rate holds. A Work of
//   KernelClass::attention says its sizes as m queries, n keys, k head dimension, batch heads x
//   sequences; backward is known by its 5 (or 10) FLOPs for each m n k batch, forward has 2 (or 4).
//   Without sizes: heads of 128, forward, the length that its FLOPs and bytes imply.
// Memory-bound kernels: max(floor, bytes / (W vec fraction) + fixed), the fraction by KernelClass.
// Copies: host link at a fraction of its line rate plus a fixed time; on the device a copy reads and
//   writes, at vec.
//
// Worked number: 5120 x 4096 x 5120 in bf16 on an H100 is 332.6 us; 8,192 tokens of FlashAttention,
// 32 heads of 128, causal, 1,630 us; 128 MiB of pointwise 50.5 us.
#pragma once

#include "sim/cluster/calibration.h"
#include "sim/cluster/cluster.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

// What the formulas above need of one GPU.
struct GpuRates {
  double fp32_flops_per_us = 0, bf16_flops_per_us = 0, fp16_flops_per_us = 0;  // dense peaks
  double sms = 1;
  double product_bytes_per_us = 0, thin_bytes_per_us = 0;
  double vec_bytes_per_us = 0;
  double host_link_bytes_per_us = 0;
  std::array<double, kAttentionLengths> attention_flops_per_us{};  // lengths 512 to 16k
  Calibration constants;
};

GpuRates rates_of(const Gpu& gpu, const Calibration& constants);

inline constexpr int64_t kThinProduct = 512;
double thin_product_us(const GpuRates& gpu, int64_t m, int64_t n, int64_t k, int64_t batch,
                       DType dtype, Bytes bytes);
double product_us(const GpuRates& gpu, int64_t m, int64_t n, int64_t k, int64_t batch, DType dtype,
                  Bytes bytes);
// length: keys a query sees at most; head_dim of one head.
double attention_us(const GpuRates& gpu, double flops, int64_t length, int64_t head_dim,
                    bool backward);
double memory_bound_us(const GpuRates& gpu, KernelClass kernel, Bytes bytes);

// Of a work that is no collective.
double kernel_us(const GpuRates& gpu, const Work& work);

}  // namespace shardsim
