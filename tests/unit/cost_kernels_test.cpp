// Vectors are those of spec/cost-model.md section F, by their numbers; tolerance 0.1 %.
#include "sim/cost/kernels.h"

#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/cluster/catalogue.h"
#include "sim/cost/collectives.h"
#include "sim/cost/price.h"

namespace shardsim {
namespace {

GpuRates rates(const char* name) {
  const Gpu gpu = find_gpu(name).value();
  return rates_of(gpu, calibration_of(gpu));
}

void expect_within(double got, double want, double fraction) {
  EXPECT_NEAR(got, want, want * fraction);
}

Bytes product_bytes(int64_t m, int64_t n, int64_t k) { return 2 * (m * k + k * n + m * n); }

double product(const char* gpu, int64_t m, int64_t n, int64_t k) {
  return product_us(rates(gpu), m, n, k, 1, DType::bf16, product_bytes(m, n, k));
}

TEST(Roofline, Vector36SustainedProducts) {
  expect_within(product("a100-sxm4-80gb", 4096, 8192, 4096), 1179.0, 1e-3);
  expect_within(product("h100-sxm5-80gb", 5120, 4096, 5120), 332.6, 1e-3);
  expect_within(product("h100-sxm5-96gb", 14336, 8192, 4096), 1568.4, 1e-3);
  expect_within(product("h100-sxm5-80gb", 14336, 8192, 4096), 1488.8, 1e-3);
}

TEST(Roofline, Vectors26To28ThinForm) {
  const auto thin = [](const char* gpu, int64_t m) {
    return thin_product_us(rates(gpu), m, 57344, 8192, 1, DType::bf16,
                           product_bytes(m, 57344, 8192));
  };
  expect_within(thin("h100-sxm5-80gb", 4096), 5562.7, 1e-3);
  expect_within(thin("h100-sxm5-80gb", 16), 355.4, 1e-3);
  expect_within(thin("a100-sxm4-80gb", 4096), 16671.9, 1e-3);
  // Below 512 rows it is the form that a schedule gets.
  expect_within(product("h100-sxm5-80gb", 16, 57344, 8192), 355.4, 1e-3);
}

// By hand, vector 29's grid: 4096 x 4096 in tiles of 128 x 256 is 512 tiles, 3.88 waves of 132 SMs,
// so 4 waves and q = 4 / 3.8788 = 1.03125; both tilings are alike, and 128 x 128 has 1,024 tiles in
// 7.758 waves, 1.08 * 8 / 7.758 = 1.11375.
TEST(Roofline, WavesAreRoundedUp) {
  const double flops = 2.0 * 4096 * 4096 * 4096;
  const double rate = 989e6 * .691 * 4096 / (4096 + 128);
  expect_within(product("h100-sxm5-80gb", 4096, 4096, 4096), flops * (1 + .03125 * .75) / rate + 3,
                1e-9);
}

TEST(Roofline, UnalignedRowsLose30Percent) {
  const GpuRates g = rates("a100-sxm4-80gb");  // no wave term, so only alignment differs
  const double aligned = product_us(g, 4096, 4096, 4096, 1, DType::bf16, 0) - 3;
  const double unaligned = product_us(g, 4092, 4096, 4096, 1, DType::bf16, 0) - 3;
  expect_within(unaligned, aligned * 4092 / 4096 / .7, 1e-9);
  // 4092 fp32 are a multiple of 16 bytes.
  const double fp32 = product_us(g, 4092, 4096, 4096, 1, DType::fp32, 0) - 3;
  expect_within(fp32, 2.0 * 4092 * 4096 * 4096 / (19.5e6 * .796 * 4096 / 4352), 1e-9);
}

TEST(Roofline, Vector37Attention) {
  // Causal, B 1, H 32, S 8192, D 128: 2 * 32 * 8192^2 * 128 FLOPs, backward 2.5 times that.
  const double f = 2.0 * 32 * 8192 * 8192 * 128;
  const auto us = [&](const char* gpu, bool backward) {
    return attention_us(rates(gpu), backward ? 2.5 * f : f, 8192, 128, backward);
  };
  expect_within(us("a100-sxm4-80gb", false), 2812, 2e-3);
  expect_within(us("a100-sxm4-80gb", true), 8169, 2e-3);
  expect_within(us("h100-sxm5-80gb", false), 1630, 2e-3);
  expect_within(us("h100-sxm5-80gb", true), 5219, 2e-3);
  expect_within(us("h100-sxm5-96gb", false), 1811, 2e-3);
  expect_within(us("h100-sxm5-96gb", true), 5798, 2e-3);
}

TEST(Roofline, AttentionRatesGoByLog2OfLength) {
  const GpuRates g = rates("h100-sxm5-80gb");
  const auto rate = [&](int64_t s) { return 1e12 / (attention_us(g, 1e12, s, 128, false) - 3); };
  expect_within(rate(100), 220e6 * 1.03, 1e-9);
  expect_within(rate(1024), 260e6 * 1.03, 1e-9);
  expect_within(rate(65536), 335e6 * 1.03, 1e-9);
  // log2(1448.15 / 1024) = 0.5 up to rounding of the length: halfway from 260 to 298.
  expect_within(rate(1448), 279e6 * 1.03, 1e-3);
  expect_within(1e12 / (attention_us(g, 1e12, 1024, 64, false) - 3), 260e6 * 1.03 * .82, 1e-9);
}

TEST(Roofline, Vector38MemoryBound) {
  const auto us = [](const char* gpu, KernelClass k) {
    return memory_bound_us(rates(gpu), k, 134'217'728);
  };
  expect_within(us("a100-sxm4-80gb", KernelClass::pointwise), 79.8, 1e-3);
  expect_within(us("a100-sxm4-80gb", KernelClass::strided), 197.2, 1e-3);
  expect_within(us("h100-sxm5-80gb", KernelClass::pointwise), 50.5, 1e-3);
  expect_within(us("h100-sxm5-80gb", KernelClass::strided), 123.9, 1e-3);
  expect_within(us("h100-sxm5-96gb", KernelClass::pointwise), 62.5, 1e-3);
  expect_within(us("h100-sxm5-96gb", KernelClass::strided), 154.0, 1e-3);
  EXPECT_EQ(memory_bound_us(rates("h100-sxm5-80gb"), KernelClass::pointwise, 16), 2.5);
}

TEST(Roofline, Table) {
  Schedule s;
  s.comms = {{8, 1, "shard"}};
  const auto add = [&](WorkKind kind, Bytes bytes) -> Work& {
    s.works.emplace_back();
    s.works.back().kind = kind;
    s.works.back().bytes = bytes;
    s.works.back().dtype = DType::bf16;
    return s.works.back();
  };
  Work& g = add(WorkKind::Gemm, product_bytes(5120, 4096, 5120));
  g.m = 5120, g.n = 4096, g.k = 5120;
  add(WorkKind::AllGather, 436'224'000).comm = {0};
  add(WorkKind::Kernel, 134'217'728);
  Work& forward = add(WorkKind::Kernel, 4 * 67'108'864);
  forward.kernel = KernelClass::attention;
  forward.flops = int64_t{2} * 32 * 8192 * 8192 * 128;
  forward.m = forward.n = 8192, forward.k = 128, forward.batch = 32;
  Work& backward = add(WorkKind::Kernel, 8 * 67'108'864);
  backward = s.works[3];
  backward.flops = backward.flops / 2 * 5;
  // Without sizes: 2 b h s^2 d FLOPs over 4 * 2 b h s d bytes are s / 4, so the length is 8192.
  Work& unsized = add(WorkKind::Kernel, 4 * 67'108'864);
  unsized.kernel = KernelClass::attention;
  unsized.flops = s.works[3].flops;
  add(WorkKind::CopyH2D, 50'400'000);
  add(WorkKind::CopyD2D, 67'108'864);
  add(WorkKind::Memset, 134'217'728);
  const Cluster dgx = find_system("dgx-h100").value();
  const CostTable t = roofline_costs(dgx, calibration_of(dgx.gpu), {}, s, false);
  ASSERT_EQ(t.work.size(), 9u);
  const auto us = [&](size_t i) { return t.work[i].as_us(); };
  expect_within(us(0), 332.6, 1e-3);
  expect_within(us(1), 1121.2, 1e-4);  // sim/cost/collectives.h
  expect_within(us(2), 50.5, 1e-3);
  expect_within(us(3), 1630, 2e-3);
  expect_within(us(4), 5219, 2e-3);
  expect_within(us(5), 1630, 2e-3);
  expect_within(us(6), 1002, 1e-6);  // 2 + 50.4e6 / (0.8 * 63e3)
  expect_within(us(7), 50.5, 1e-3);  // 64 MiB read and written
  expect_within(us(8), 50.5, 1e-3);
  EXPECT_EQ(t.host[HostCall::other], Time::us(1));
}

TEST(Roofline, ACommunicatorThatSpansNodesNeedsANetwork) {
  Cluster c = find_system("hgx-h100").value();
  c.nodes = 2;
  Schedule s;
  s.comms = {{16, 1, "shard"}};
  s.works.resize(1);
  s.works[0].kind = WorkKind::AllGather;
  s.works[0].comm = {0};
  try {
    roofline_costs(c, calibration_of(c.gpu), {}, s, false);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "cluster hgx-h100 has no bandwidth between nodes, but communicator shard of 16 "
                 "ranks needs it");
  }
}

}  // namespace
}  // namespace shardsim
