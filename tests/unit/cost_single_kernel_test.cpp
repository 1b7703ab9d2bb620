// Vectors are those of spec/cost-model.md section F, by their numbers; tolerance 0.1 %.
#include "sim/cost/single_kernel.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/cluster/catalogue.h"

namespace shardsim {
namespace {

SingleKernel product(int64_t m, int64_t n, int64_t k, DType dtype = DType::bf16) {
  SingleKernel s;
  s.m = m, s.n = n, s.k = k, s.dtype = dtype;
  return s;
}

SingleKernel attention(const char* implementation, bool backward, bool causal, int64_t length,
                       int64_t head_dim) {
  SingleKernel s;
  s.kind = SingleKernel::Kind::attention;
  s.implementation = implementation;
  s.backward = backward, s.causal = causal;
  s.batch = 2, s.heads = 16, s.length = length, s.head_dim = head_dim;
  return s;
}

// Only one tile, no fixed time, no k0: the bare roofline of vectors 26 to 28.
KernelCalibration bare(double efficiency, double memory) {
  KernelCalibration c;
  c.gemm_efficiency = efficiency;
  c.gemm_memory_fraction = memory;
  c.gemm_wave_weight = 0;
  c.gemm_k_half = 0;
  c.gemm_tile_128 = c.gemm_tile_64 = c.gemm_tile_64x64 = .01;
  c.gemm_fixed_us = 4;
  return c;
}

double us(const char* gpu, const KernelCalibration& c, const SingleKernel& s) {
  return single_kernel_us(find_gpu(gpu).value(), c, s).value();
}

TEST(SingleKernel, Vectors26To28Roofline) {
  const KernelCalibration hopper = bare(.70, .80), ampere = bare(.74, .75);
  EXPECT_NEAR(us("h100-sxm5-80gb", hopper, product(4096, 57344, 8192)), 5562.7, 5.5);
  EXPECT_NEAR(us("h100-sxm5-80gb", hopper, product(16, 57344, 8192)), 355.4, .35);
  EXPECT_NEAR(us("a100-sxm4-80gb", ampere, product(4096, 57344, 8192)), 16671.9, 16);
}

// Vector 29: 4096 x 4096 in tiles of 128 x 256 is 512 tiles: 4 waves of 132 SMs, 5 of 108. By hand, with
// the whole tail counted, q = 4 / (512/132) = 1.03125 and 5 / (512/108) = 1.0546875; no memory bound.
TEST(SingleKernel, Vector29Waves) {
  KernelCalibration c = bare(.8, 1);
  c.gemm_wave_weight = 1;
  c.gemm_fixed_us = 0;
  c.gemm_split_us = 1e4;  // k whole
  const double flops = 2.0 * 4096 * 4096 * 4096;
  EXPECT_NEAR(us("h100-sxm5-80gb", c, product(4096, 4096, 4096)), flops * 1.03125 / (989e6 * .8),
              1e-6);
  EXPECT_NEAR(us("a100-sxm4-80gb", c, product(4096, 4096, 4096)), flops * 1.0546875 / (312e6 * .8),
              1e-6);
}

// Vector 33, the exact wave count of SM stealing: 1536 x 2816 in tiles of 128 x 256 is 132 tiles, one wave
// of 132 SMs. 24 thread blocks leave 108 SMs and their part of the peak: two waves, twice the time.
TEST(SingleKernel, Vector33WavesThatACollectiveLeaves) {
  KernelCalibration c = bare(.8, 1);
  c.gemm_wave_weight = 1;
  c.gemm_fixed_us = 0;
  c.gemm_split_us = 1e4;
  const SingleKernel one_wave = product(1536, 2816, 4096);
  Gpu whole = find_gpu("h100-sxm5-80gb").value(), left = whole;
  left.sms = whole.sms - 24;
  for (double* peak : {&left.bf16_tflops, &left.fp16_tflops})
    *peak *= left.sms / static_cast<double>(whole.sms);
  const double slowdown =
      single_kernel_us(left, c, one_wave).value() / single_kernel_us(whole, c, one_wave).value();
  EXPECT_NEAR(slowdown, 2.00, 1e-9);
}

// By hand: 128 x 128 x 8192 is one tile of 132 SMs' worth. In 8 parts of 1024: waves 8/132, q 16.5,
// 1 + 15.5 = 16.5 times 2 128 128 8192 / 989e6 = 0.27142 us is 4.4784 us, and 2 us for the split; whole,
// q 132 and 35.83 us.
TEST(SingleKernel, AFewTilesSplitK) {
  KernelCalibration c = bare(1, 1);
  c.gemm_wave_weight = 1;
  c.gemm_tile_128 = 1;
  c.gemm_fixed_us = 0;
  c.gemm_split_us = 2;
  EXPECT_NEAR(us("h100-sxm5-80gb", c, product(128, 128, 8192)), 4.4784 + 2, 1e-3);
}

TEST(SingleKernel, Fp8RunsAtTwiceThePeakFromAdaOn) {
  KernelCalibration c = bare(.8, 1);
  c.gemm_fixed_us = 0;
  c.gemm_fp8 = .9;
  const double half = us("h100-sxm5-80gb", c, product(8192, 8192, 8192));
  EXPECT_NEAR(us("h100-sxm5-80gb", c, product(8192, 8192, 8192, DType::fp8)), half / 2 / .9, 1e-6);
  EXPECT_FALSE(single_kernel_us(find_gpu("a100-sxm4-80gb").value(), c,
                                product(8192, 8192, 8192, DType::fp8)));
}

TEST(SingleKernel, RowsThatAreNoMultipleOf16BytesLose30Percent) {
  KernelCalibration c = bare(.8, 1);
  c.gemm_fixed_us = 0;
  const double aligned = us("a100-sxm4-80gb", c, product(4096, 4096, 4096));
  EXPECT_NEAR(us("a100-sxm4-80gb", c, product(4096, 4096, 4092)), aligned * 4092 / 4096 / .7, 1e-6);
}

TEST(SingleKernel, Vector30Attention) {
  KernelCalibration c;
  c.attention_fixed_us = 0;
  c.attention = {{"fa3", false, 646, 0, 1, 0, 1, 1}};
  const SingleKernel forward = attention("fa3", false, false, 8192, 128);
  EXPECT_NEAR(forward.flops(), 1.0995e12, 1e8);
  EXPECT_NEAR(us("h100-sxm5-80gb", c, forward), 1702.0, 1.7);
  EXPECT_NEAR(attention("fa3", true, false, 8192, 128).flops(), 2.7488e12, 1e8);
  EXPECT_NEAR(attention("fa3", false, true, 8192, 128).flops(), 1.0995e12 / 2, 1e8);
}

// By hand: 4 2 16 1024^2 64 = 8.5899e9 FLOPs; without a mask 400 x 1024 / 1124 x .8 = 291.53 TFLOPS:
// 29.465 us; causal half of it at 400 x .9 x 1024 / 1424 x .8 = 207.10: 20.739 us.
TEST(SingleKernel, AttentionByLengthHeadAndMask) {
  KernelCalibration c;
  c.attention_fixed_us = 0;
  c.attention = {{"fa2", false, 400, 100, .9, 400, .8, 1.1}};
  EXPECT_NEAR(us("h100-sxm5-80gb", c, attention("fa2", false, false, 1024, 64)), 29.465, 1e-3);
  EXPECT_NEAR(us("h100-sxm5-80gb", c, attention("fa2", false, true, 1024, 64)), 20.739, 1e-3);
  const Gpu gpu = find_gpu("h100-sxm5-80gb").value();
  EXPECT_FALSE(single_kernel_us(gpu, c, attention("fa2", true, false, 1024, 64)));
  EXPECT_FALSE(single_kernel_us(gpu, c, attention("fa3", false, false, 1024, 64)));
}

TEST(SingleKernel, Vector31RmsNorm) {
  KernelCalibration c;
  c.vec = 1;
  c.rms_norm = .32;
  c.kernel_fixed_us = 0;
  SingleKernel s;
  s.kind = SingleKernel::Kind::memory_bound;
  s.memory = MemoryKernel::rms_norm;
  s.bytes = Bytes{2} * 2 * 4096 * 8192;
  EXPECT_NEAR(us("h100-sxm5-80gb", c, s), 125.2, .1);
  s.bytes = 16;
  EXPECT_EQ(us("h100-sxm5-80gb", c, s), 2.5);
}

}  // namespace
}  // namespace shardsim
