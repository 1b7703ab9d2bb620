#include "sim/cost/flat.h"

#include <gtest/gtest.h>

namespace shardsim {
namespace {

Work work(WorkKind kind, Bytes bytes) {
  Work w;
  w.kind = kind;
  w.bytes = bytes;
  return w;
}

TEST(Flat, KernelsAndProducts) {
  FlatCost c;  // 10 us, 600 TFLOPS, 200 GB/s
  EXPECT_EQ(flat_cost(c, work(WorkKind::Kernel, 1 << 30)), Time::us(10));
  Work g = work(WorkKind::Gemm, 0);
  g.m = g.n = g.k = 4096;
  // 3 + 2 * 4096^3 / 6e8 = 3 + 137,438,953,472 / 6e8 = 232.0649224533... us.
  EXPECT_EQ(flat_cost(c, g).ps, 232'064'922);
  g.batch = 3;
  // 3 + 3 * 229.0649224533 = 690.19476736 us.
  EXPECT_EQ(flat_cost(c, g).ps, 690'194'767);
}

TEST(Flat, CollectivesCopiesAndMemsets) {
  FlatCost c;
  // 20 + 67,108,864 / 2e5 = 355.54432 us, for each kind.
  for (WorkKind k : {WorkKind::AllGather, WorkKind::ReduceScatter, WorkKind::AllReduce,
                     WorkKind::Broadcast, WorkKind::Reduce})
    EXPECT_EQ(flat_cost(c, work(k, 64 << 20)).ps, 355'544'320);
  // 2 + 1e6 / 25e3 = 42 us.
  EXPECT_EQ(flat_cost(c, work(WorkKind::CopyH2D, 1'000'000)), Time::us(42));
  EXPECT_EQ(flat_cost(c, work(WorkKind::CopyD2H, 1'000'000)), Time::us(42));
  // 2 + 1.3e6 / 1.3e6 = 3; 2 + 2.6e6 / 2.6e6 = 3.
  EXPECT_EQ(flat_cost(c, work(WorkKind::CopyD2D, 1'300'000)), Time::us(3));
  EXPECT_EQ(flat_cost(c, work(WorkKind::Memset, 2'600'000)), Time::us(3));
}

TEST(Flat, Table) {
  Schedule s;
  s.works = {work(WorkKind::Kernel, 0), work(WorkKind::AllGather, 200'000)};
  FlatCost c;
  c.kernel_us = 7.5;
  c.host_us = 8;
  const CostTable t = flat_costs(c, s);
  ASSERT_EQ(t.work.size(), 2u);
  EXPECT_EQ(t.work[0].ps, 7'500'000);
  EXPECT_EQ(t.work[1], Time::us(21));
  EXPECT_EQ(t.host[HostCall::other], Time::us(8));
  EXPECT_EQ(t.host[HostCall::malloc], Time::us(8));
}

}  // namespace
}  // namespace shardsim
