#include "sim/config/limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardsim {
namespace {

constexpr double kMostParameters = 1e14;
constexpr double kMost = 4.6e18;              // 2^62
constexpr double kMostBlockPasses = 500'000;  // a schedule of about 1e8 instructions
constexpr double kMostSeconds = 1e6;          // Time holds 9.2e6

struct Sizes {
  double parameters = 0;
  double widest = 0;     // elements a token and block
  double attention = 0;  // FLOPs a token and block, forward
  double tokens = 0;
  double kernels = 0;  // a block
};

Sizes sizes_of(const Scenario& s) {
  const Architecture& a = s.model;
  Sizes out;
  const double rows = static_cast<double>(s.training.micro_batch);
  const double layers = static_cast<double>(a.layers);
  switch (a.family) {
    case Family::llama:
    case Family::transformer:
    case Family::t5:
    case Family::gpt2: {
      const double h = static_cast<double>(a.hidden), f = static_cast<double>(a.ffn);
      const double heads = static_cast<double>(a.heads) * static_cast<double>(a.head_dim);
      const double seq = static_cast<double>(s.training.seq_len);
      const double sides = a.family == Family::t5 ? 2 : 1;
      const double mixture = static_cast<double>(std::max<int64_t>(1, a.experts));
      const double vocab = static_cast<double>(a.vocab);
      out.parameters =
          2 * vocab * h + static_cast<double>(a.max_positions) * h +
          sides * layers * (4 * sides * heads * h + mixture * 3 * h * f + 8 * (h + heads + f)) + h;
      out.widest = 16 * (h + heads) + 8 * f + vocab / layers * 4;
      out.attention = 4 * seq * heads;
      out.tokens = rows * seq;
      out.kernels = 200;
      break;
    }
    case Family::stack:
    case Family::bag:
    case Family::vectors: {
      const auto add = [&](double n) { out.parameters += n; };
      const auto linear = [&](const LinearShape& l) {
        add(static_cast<double>(l.out) * static_cast<double>(l.in) + static_cast<double>(l.out));
        out.widest = std::max(out.widest, static_cast<double>(std::max(l.out, l.in)));
      };
      size_t parts = 0;
      linear(a.root_first);
      linear(a.root_last);
      for (const LinearShape& l : a.unused) linear(l);
      for (int64_t n : a.buffers) add(static_cast<double>(n));
      for (int64_t n : a.root_vectors) add(static_cast<double>(n));
      for (const auto& block : a.linear_blocks) {
        for (const LinearShape& l : block) linear(l);
        parts = std::max(parts, block.size());
      }
      for (const auto& block : a.bag_blocks) {
        for (const auto& shape : block) {
          double n = 1;
          for (int64_t side : shape) n *= static_cast<double>(side);
          add(n);
        }
        parts = std::max(parts, block.size());
      }
      out.widest =
          std::max(out.widest, static_cast<double>(a.hidden)) * 8 * static_cast<double>(parts + 1);
      out.tokens = rows;
      out.kernels = 50 * static_cast<double>(parts + 1);
      break;
    }
  }
  return out;
}

}  // namespace

std::string too_large(const Scenario& s) {
  const Sizes size = sizes_of(s);
  const double layers = static_cast<double>(s.model.layers);
  const double passes =
      static_cast<double>(s.training.grad_accum) * static_cast<double>(s.training.forwards);
  const double steps = static_cast<double>(s.options.max_steps);
  if (size.parameters > kMostParameters)
    return fmt::format("the model has about {:.3g} parameters, more than {:.0e}", size.parameters,
                       kMostParameters);
  const double activations = size.tokens * size.widest * layers * 64;
  if (activations > kMost)
    return fmt::format("activations of about {:.3g} bytes on one GPU are more than 2^62",
                       activations);
  const double flops =
      8 * size.parameters * size.tokens + 4 * layers * size.tokens * size.attention;
  if (flops > kMost)
    return fmt::format("about {:.3g} FLOPs of one pass on one GPU are more than 2^62", flops);
  const double block_passes = layers * passes * steps;
  if (block_passes > kMostBlockPasses)
    return fmt::format(
        "layers x grad_accum x forwards x options.max_steps is {:.0f}, more than {:.0f}",
        block_passes, kMostBlockPasses);

  const Cluster& c = s.cluster;
  const double ranks = static_cast<double>(c.world());
  double kernel_us = 10, host_us = 20;
  const Precision& p = s.training.precision;
  const DType compute = p.autocast.value_or(p.compute.value_or(p.storage));
  double tflops = compute == DType::bf16   ? c.gpu.bf16_tflops
                  : compute == DType::fp16 ? c.gpu.fp16_tflops
                                           : c.gpu.fp32_tflops;
  if (tflops == 0) tflops = c.gpu.fp32_tflops;
  double bus = c.intra.bus_gbps;
  double memory = c.gpu.memory_gbps;
  double alpha = c.intra.alpha_us;
  const auto slower = [](double& a, double b) {
    if (b > 0) a = a > 0 ? std::min(a, b) : b;
  };
  if (c.nodes > 1) {
    slower(bus, c.inter.bus_gbps);
    slower(bus, c.rail.bus_gbps > 0 ? c.rail.bus_gbps
                                    : c.inter.bus_gbps / static_cast<double>(c.gpus_per_node));
    alpha = std::max({alpha, c.inter.alpha_us, c.rail.alpha_us});
  }
  if (s.cost.model == CostChoice::Model::flat) {
    kernel_us = s.cost.flat.kernel_us;
    host_us = s.cost.flat.host_us;
    tflops = s.cost.flat.gemm_tflops;
    bus = s.cost.flat.bus_gbps;
    alpha = 20;
  }
  if (bus == 0) bus = 1;  // one GPU: nothing travels
  constexpr double kSlack = 4;
  const double once =
      kSlack * (flops / (tflops * 1e12) + activations / (memory * 1e9) +
                size.parameters * 16 / (bus * 1e9)) +
      (layers + 8) * (size.kernels * (kernel_us + 4 * host_us) + 8 * ranks * alpha) * 1e-6;
  const double seconds = once * (passes + 1) * steps;
  if (seconds > kMostSeconds)
    return fmt::format("the steps might take {:.3g} seconds, more than {:.0e}", seconds,
                       kMostSeconds);
  return {};
}

}  // namespace shardsim
