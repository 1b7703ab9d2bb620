#include "sim/cost/roofline.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

#include "sim/base/error.h"

namespace shardsim {
namespace {

constexpr double kProductFixedUs = 3.0;
constexpr double kThinFixedUs = 4.0;
constexpr double kProductMemoryFraction = 0.8;
constexpr double kAttentionFixedUs = 3.0;
constexpr double kKernelFixedUs = 1.5;
constexpr double kKernelFloorUs = 2.5;
constexpr double kCopyFixedUs = 2.0;
constexpr double kHostLinkFraction = 0.8;
constexpr double kHostCallUs = 45.0;
constexpr double kUnalignedFraction = 0.7;

constexpr std::array<double, 6> kAmpereAttention{120, 150, 172, 184, 190, 192};
constexpr std::array<double, 6> kHopperAttention{220, 260, 298, 318, 328, 335};
constexpr double kHopperBf16Tflops = 989;
constexpr double kAttentionFit = 1.03;
constexpr double kSmallHeadFraction = 0.82;

struct Generation {
  double ec, wave_weight, k_half, thin, thin_memory, vec, attention_backward, attention_scale;
  const std::array<double, 6>* attention;
};

Generation generation_of(const Gpu& gpu) {
  if (gpu.compute_capability == 80)
    return {.796, 0, 256, .74, .75, .8408, .86, 1, &kAmpereAttention};
  if (gpu.compute_capability == 90) {
    // 2.4 TB/s against 3.35 and more tells the parts apart: both have 132 SMs and the same peaks.
    if (gpu.memory_gbps < 2800) return {.636, .75, 0, .70, .80, .9168, .78, .90, &kHopperAttention};
    return {.691, .75, 128, .70, .80, .8183, .78, 1, &kHopperAttention};
  }
  const double peak = std::max(gpu.bf16_tflops, gpu.fp16_tflops);
  return {.691, .75, 128, .70, .80, .82, .78, peak / kHopperBf16Tflops, &kHopperAttention};
}

constexpr double fraction_of(KernelClass k) {
  switch (k) {
    case KernelClass::pointwise:
    case KernelClass::embedding:
    case KernelClass::attention: return 1.0;
    case KernelClass::strided: return 0.40;
    case KernelClass::reduction: return 0.90;
    case KernelClass::softmax: return 0.85;
    case KernelClass::foreach_op:
    case KernelClass::copy_out:
    case KernelClass::chunk_cat:
    case KernelClass::cat: return 0.92;
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

double alignment(int64_t m, int64_t k, DType dtype) {
  const int64_t e = bytes_of(dtype);
  return m * e % 16 != 0 || k * e % 16 != 0 ? kUnalignedFraction : 1.0;
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

// The measured rates are of 16-bit types; another type's follows its peak (an assumption).
double attention_work_us(const GpuRates& gpu, const Work& w) {
  const double flops =
      static_cast<double>(w.flops) * std::max(1.0, gpu.bf16_flops_per_us / peak_of(gpu, w.dtype));
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

Error no_link(const Cluster& cluster, const Comm& comm) {
  const bool inside = (comm.size - 1) * comm.stride < cluster.gpus_per_node;
  return Error("cluster " + cluster.name + " has no bandwidth " +
                   (inside ? "inside a node" : "between nodes") + ", but communicator " +
                   comm.name + " of " + std::to_string(comm.size) + " ranks needs it",
               {}, inside ? "give cluster.intra" : "give cluster.inter, or use one node");
}

}  // namespace

GpuRates rates_of(const Gpu& gpu) {
  const Generation g = generation_of(gpu);
  GpuRates r;
  // 1e12 operations a second are 1e6 a microsecond, 1e9 bytes a second 1e3.
  r.fp32_flops_per_us = gpu.fp32_tflops * 1e6;
  r.bf16_flops_per_us = gpu.bf16_tflops * 1e6;
  r.fp16_flops_per_us = gpu.fp16_tflops * 1e6;
  if (r.bf16_flops_per_us == 0) r.bf16_flops_per_us = r.fp32_flops_per_us;
  if (r.fp16_flops_per_us == 0) r.fp16_flops_per_us = r.bf16_flops_per_us;
  r.sustained = g.ec;
  r.thin = g.thin;
  r.thin_bytes_per_us = g.thin_memory * gpu.memory_gbps * 1e3;
  r.wave_weight = g.wave_weight;
  r.k_half = g.k_half;
  r.sms = std::max(1, gpu.sms);
  r.product_bytes_per_us = kProductMemoryFraction * gpu.memory_gbps * 1e3;
  r.vec_bytes_per_us = g.vec * gpu.memory_gbps * 1e3;
  r.host_link_bytes_per_us = kHostLinkFraction * gpu.pcie_gbps * 1e3;
  for (size_t i = 0; i < g.attention->size(); ++i)
    r.attention_flops_per_us[i] = (*g.attention)[i] * kAttentionFit * g.attention_scale * 1e6;
  r.attention_backward = g.attention_backward;
  return r;
}

double thin_product_us(const GpuRates& gpu, int64_t m, int64_t n, int64_t k, int64_t batch,
                       DType dtype, Bytes bytes) {
  const double rate = peak_of(gpu, dtype) * gpu.thin * alignment(m, k, dtype);
  return std::max(flops_of(m, n, k, batch) / rate,
                  static_cast<double>(bytes) / gpu.thin_bytes_per_us) +
         kThinFixedUs;
}

double product_us(const GpuRates& gpu, int64_t m, int64_t n, int64_t k, int64_t batch, DType dtype,
                  Bytes bytes) {
  if (m <= 0 || n <= 0 || k <= 0 || batch <= 0) return kProductFixedUs;
  if (m < kThinProduct || n < kThinProduct)
    return thin_product_us(gpu, m, n, k, batch, dtype, bytes);
  double factor = 1;
  if (gpu.wave_weight > 0) {
    const double q =
        std::min({waste(gpu.sms, m, n, batch, 128, 256), waste(gpu.sms, m, n, batch, 256, 128),
                  1.08 * waste(gpu.sms, m, n, batch, 128, 128)});
    factor = 1 + (q - 1) * gpu.wave_weight;
  }
  const auto inner = static_cast<double>(k);
  const double rate =
      peak_of(gpu, dtype) * gpu.sustained * inner / (inner + gpu.k_half) * alignment(m, k, dtype);
  return std::max(flops_of(m, n, k, batch) * factor / rate,
                  static_cast<double>(bytes) / gpu.product_bytes_per_us) +
         kProductFixedUs;
}

double attention_us(const GpuRates& gpu, double flops, int64_t length, int64_t head_dim,
                    bool backward) {
  double rate = attention_rate(gpu, length);
  if (head_dim <= 64) rate *= kSmallHeadFraction;
  if (backward) rate *= gpu.attention_backward;
  return flops / rate + kAttentionFixedUs;
}

double memory_bound_us(const GpuRates& gpu, KernelClass kernel, Bytes bytes) {
  const double rate = gpu.vec_bytes_per_us * fraction_of(kernel);
  return std::max(kKernelFloorUs, static_cast<double>(bytes) / rate + kKernelFixedUs);
}

double ring_us(WorkKind kind, const Link& link, int64_t ranks, Bytes bytes) {
  if (ranks <= 1) return kKernelFloorUs;
  const auto n = static_cast<double>(ranks);
  const double steps = (n - 1) * link.alpha_us;
  const double whole = static_cast<double>(bytes) / (link.bus_gbps * 1e3);
  switch (kind) {
    case WorkKind::AllReduce: return 2 * (steps + (n - 1) / n * whole);
    case WorkKind::Broadcast:
    case WorkKind::Reduce: return steps + whole;
    default: return steps + (n - 1) / n * whole;
  }
}

Link link_of(const Cluster& cluster, int64_t ranks, int64_t stride) {
  const int64_t node = std::max(1, cluster.gpus_per_node);
  if ((ranks - 1) * stride < node) return cluster.intra;
  Link rail = cluster.rail;
  if (rail.bus_gbps <= 0) {
    rail.alpha_us = cluster.inter.alpha_us;
    rail.bus_gbps = cluster.inter.bus_gbps / static_cast<double>(node);
  }
  const int64_t per_node = stride >= node ? 1 : node / stride;
  if (per_node <= 1) return rail;
  if (per_node >= node) return cluster.inter;
  return {cluster.inter.alpha_us,
          std::min(cluster.inter.bus_gbps, static_cast<double>(per_node) * rail.bus_gbps)};
}

CostTable roofline_costs(const Cluster& cluster, const Schedule& schedule) {
  const GpuRates gpu = rates_of(cluster.gpu);
  CostTable table;
  table.work.reserve(schedule.works.size());
  for (const Work& w : schedule.works) {
    double us = 0;
    switch (w.kind) {
      case WorkKind::Gemm: us = product_us(gpu, w.m, w.n, w.k, w.batch, w.dtype, w.bytes); break;
      case WorkKind::Kernel:
        us = w.kernel == KernelClass::attention ? attention_work_us(gpu, w)
                                                : memory_bound_us(gpu, w.kernel, w.bytes);
        break;
      case WorkKind::AllGather:
      case WorkKind::ReduceScatter:
      case WorkKind::AllReduce:
      case WorkKind::Broadcast:
      case WorkKind::Reduce: {
        SHARDSIM_ASSERT(w.comm.v < schedule.comms.size(), "a collective has a communicator");
        const Comm& comm = schedule.comms[w.comm.v];
        const Link link = link_of(cluster, comm.size, comm.stride);
        if (comm.size > 1 && link.bus_gbps <= 0) throw no_link(cluster, comm);
        us = ring_us(w.kind, link, comm.size, w.bytes);
        break;
      }
      case WorkKind::CopyH2D:
      case WorkKind::CopyD2H:
        us = kCopyFixedUs + static_cast<double>(w.bytes) / gpu.host_link_bytes_per_us;
        break;
      case WorkKind::CopyD2D: us = memory_bound_us(gpu, KernelClass::pointwise, 2 * w.bytes); break;
      case WorkKind::Memset: us = memory_bound_us(gpu, KernelClass::pointwise, w.bytes); break;
    }
    table.work.push_back(Time::from_us(us));
  }
  table.host_call = Time::from_us(kHostCallUs);
  table.device_malloc = table.host_call;
  return table;
}

}  // namespace shardsim
