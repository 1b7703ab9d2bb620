// The constants of one type of GPU for single kernels: one shape at a time, launched again and again
// on a cool GPU. They are not those of a training step (sim/cluster/calibration.h), which is hotter,
// runs beside other work and finds its operands elsewhere: on a 700 W H100 the two differ by 14-25 %.
// So they are a type of their own, and nothing that prices a schedule takes it.
//
// The values below are what is assumed of any GPU before a fit, the spread beside a constant in
// kernel_constants() how far a fit may expect it to be off (one standard deviation of its
// logarithm; 0: never fitted). sim/cost/single_kernel.h has the formulas, sim/study/calibrate.h fits
// them to tables, scenarios/calibrations/*-kernel.yaml hold the results.
// Worked number: an AttentionCurve of 375 TFLOPS and half_length 80 runs 8,192 tokens at
// 375 x 8192 / 8272 = 371.4 TFLOPS.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardsim {

// The rate of one implementation's forward or backward: of heads of 128 elements without a mask
// tflops x s / (s + half_length) for sequences of s, under a causal mask (half the FLOPs counted)
// tflops x causal x s / (s + causal_half_length).
struct AttentionCurve {
  std::string implementation;  // fa2, fa3, fa4, cudnn
  bool backward = false;
  double tflops = 400;
  double half_length = 150;
  double causal = .95;
  double causal_half_length = 400;
  double head_64 = .85;  // of the rate, heads of 64 and less
  double head_256 = 1;   // heads above 128
};

struct KernelCalibration {
  std::string name;

  // Products.
  double gemm_efficiency = .75;  // of the dense peak, with full tiles of 128 x 256
  double gemm_k_half = 128;      // elements of k at which half the rate is reached
  double gemm_wave_weight = .5;  // how much the last wave's tail counts
  double gemm_tile_128 = .95;    // rate of tiles 128 x 128, 128 x 64 and 64 x 64 beside 128 x 256
  double gemm_tile_64 = .75;
  double gemm_tile_64x64 = .5;
  double gemm_split_us = 3;           // to add up the parts of a split k
  double gemm_memory_fraction = .85;  // of the memory rate
  double gemm_fixed_us = 3;
  double gemm_unaligned = .70;  // of the rate, rows no multiple of 16 bytes
  double gemm_fp8 = .90;        // of the efficiency, fp8 at twice the peak
  // The best 16-bit rate that anyone published for the GPU, any shape; 0: none known. A row above it
  // was measured in another state of the chip or on constant data.
  double gemm_best_tflops = 0;

  double attention_fixed_us = 3;

  // Memory-bound kernels: max(floor, bytes / (memory rate x vec x fraction) + fixed).
  double vec = .88;       // contiguous elementwise kernels, of the memory rate
  double gated = .70;     // of vec: SwiGLU's activation, silu(gate) x up
  double rms_norm = .45;  // of vec
  double kernel_fixed_us = 1.5;
  double kernel_floor_us = 2.5;

  std::vector<AttentionCurve> attention;
};

struct KernelConstantInfo {
  std::string_view name;
  double KernelCalibration::*member;
  double least, most;
  double spread;  // of the prior, in logarithms
  std::string_view meaning;
};
std::span<const KernelConstantInfo> kernel_constants();

struct CurveConstantInfo {
  std::string_view name;
  double AttentionCurve::*member;
  double least, most, spread;
};
std::span<const CurveConstantInfo> curve_constants();

}  // namespace shardsim
