// The time of one kernel of one shape, alone on a cool GPU, by sim/cluster/kernel_calibration.h: what
// a kernel benchmark measures, and never what a step is priced with (sim/cost/kernels.h).
//
// Products, the least over tiles 256x128, 128x256, 128x128, 128x64, 64x128, 64x64 of the rates given
// there and over k in 1, 2, 3, 4, 6 or 8 parts (of 256 elements and more):
//   t = max(2 m n k (1 + (q-1) w) / (P ec tile k'/(k'+k0)), bytes / (M W)) + split + fixed
//   k' = k / parts; q = waves rounded up / waves x padded tile area / area; P dense peak of the type
//   (fp8: twice the 16-bit peak from compute capability 8.9 on, not there before); bytes of both
//   operands and of the result, which is of 16 bits for fp8, and with a split 8 m n for each part
// Attention: FLOPs / rate of the implementation's curve + fixed; FLOPs 4 b h s^2 d forward, 2.5 times
//   that backward, half of it under a causal mask.
// Memory-bound: max(floor, bytes / (W vec fraction) + fixed).
//
// Worked numbers: 4 b h s^2 d of b 2, h 16, s 8192, d 128 is 1.0995e12 FLOPs, 1,702 us at 646 TFLOPS;
// RMSNorm of 4096 x 8192 in bf16 at .32 of 3,350 GB/s is 125.2 us.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/cluster/cluster.h"
#include "sim/cluster/kernel_calibration.h"

namespace shardsim {

// Elementwise kernels of contiguous tensors, and two that are slower.
enum class MemoryKernel : uint8_t { vec, gated, rms_norm };

struct SingleKernel {
  enum class Kind : uint8_t { product, attention, memory_bound } kind = Kind::product;
  DType dtype = DType::bf16;
  int64_t m = 0, n = 0, k = 0;  // products
  std::string implementation;   // attention: fa2, fa3, fa4, cudnn
  bool backward = false, causal = false;
  int64_t batch = 0, heads = 0, length = 0, head_dim = 0;
  MemoryKernel memory = MemoryKernel::vec;  // memory-bound
  Bytes bytes = 0;

  double flops() const;
};

// Nothing where the constants do not cover it: fp8 attention, fp8 on a GPU without it, an
// implementation of attention without a curve.
std::optional<double> single_kernel_us(const Gpu& gpu, const KernelCalibration& constants,
                                       const SingleKernel& kernel);

}  // namespace shardsim
