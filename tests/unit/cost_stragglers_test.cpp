// The host's costs and ranks that are not alike: vectors 35 and 40 of cost-model section F.
#include "sim/cost/stragglers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/cluster/catalogue.h"
#include "sim/cost/host.h"

namespace shardsim {
namespace {

// 1 + .045 x log2(128 / 8) / 4 = 1.045; one node, or 8 ranks on two, pay nothing.
TEST(Stragglers, Vector40ScaleTax) {
  const double per_doubling = Calibration{}.scale_tax;
  EXPECT_NEAR(scale_tax(per_doubling, 128, 16), 1.045, 1e-9);
  EXPECT_EQ(scale_tax(per_doubling, 64, 1), 1);
  EXPECT_EQ(scale_tax(per_doubling, 8, 2), 1);
}

// exp(.01 sqrt(2 ln 1024)) = exp(.01 x 3.7233) = 1.0379.
TEST(Stragglers, Vector35SlowestOfRanks) {
  EXPECT_NEAR(slowest_rank(.01, 1024), 1.0379, 1e-4);
  EXPECT_EQ(slowest_rank(.01, 1), 1);
}

Scenario sixteen_nodes() {
  Scenario s;
  s.cluster = *find_system("dgx-h100");
  s.cluster.nodes = 16;
  s.training.mesh.shard = 128;
  return s;
}

// Every time, the host's too, so that a step is longer by the factor.
TEST(Stragglers, TheTaxIsOnEveryTime) {
  Schedule schedule;
  schedule.works.resize(2);
  schedule.works[1].kind = WorkKind::AllGather;
  CostTable table;
  table.work = {Time::us(100), Time::us(200)};
  table.launch = {Time::us(10), Time::us(20)};
  table.host = HostCosts::every(Time::us(1));
  Scenario s = sixteen_nodes();
  add_stragglers(s, Calibration{}, schedule, table);
  EXPECT_EQ(table.work[0].ps, 104'500'000);
  EXPECT_EQ(table.work[1].ps, 209'000'000);
  EXPECT_EQ(table.launch[1].ps, 20'900'000);
  EXPECT_EQ(table.host[HostCall::wait].ps, 1'045'000);

  s.cost.scale_tax = 0;
  s.cost.jitter.rank_sigma = .01;
  table.work = {Time::us(100), Time::us(200)};
  add_stragglers(s, Calibration{}, schedule, table);
  // exp(.01 sqrt(2 ln 128)) = exp(.01 x 3.1151) = 1.031641.
  EXPECT_NEAR(table.work[0].as_us(), 103.1641, 1e-3);
  EXPECT_EQ(table.work[1],
            Time::us(200));  // collectives wait for the ranks, which are late already
}

// Factors of 20,000 kernels: their logs have mean 0 and deviation .02; another seed has others.
TEST(Stragglers, KernelsVaryBySeed) {
  Schedule schedule;
  schedule.works.resize(20'000);
  Scenario s = sixteen_nodes();
  s.training.mesh.shard = 1;
  s.cost.scale_tax = 0;
  s.cost.jitter.kernel_sigma = .02;
  const auto times = [&](uint64_t seed) {
    CostTable table;
    table.work.assign(schedule.works.size(), Time::us(1000));
    s.cost.jitter.seed = seed;
    add_stragglers(s, Calibration{}, schedule, table);
    return table.work;
  };
  const std::vector<Time> a = times(1);
  double sum = 0, squares = 0;
  for (Time t : a) {
    const double log = std::log(t.as_us() / 1000);
    sum += log;
    squares += log * log;
  }
  const double n = static_cast<double>(a.size());
  EXPECT_NEAR(sum / n, 0, 5e-4);
  EXPECT_NEAR(std::sqrt(squares / n), .02, 5e-4);
  EXPECT_EQ(times(1), a);
  EXPECT_NE(times(2), a);
}

// Medians of the largest of n normal numbers (Python's statistics.NormalDist) are where
// Phi(x)^n = 1/2, which is Phi^-1(.5^(1/64)) = Phi^-1(.989228) = 2.2983 for 64 and Phi^-1(.5^(1/2)) =
// Phi^-1(.707107) = .5450 for two.
TEST(Stragglers, TheLargestOfNormalNumbers) {
  EXPECT_NEAR(largest_normal(0, 64), 2.2983, 1e-4);
  EXPECT_NEAR(largest_normal(0, 2), .5450, 1e-4);
  EXPECT_EQ(largest_normal(-.7, 1), -.7);
  EXPECT_NEAR(largest_normal(-6, 8), -1.4405, 1e-4);  // Phi^-1(9.866e-10^(1/8))
}

// 2,000 stretches of one kernel each, 64 ranks: the mean of the largest of 64 normal numbers is 2.3439
// deviations (tables of normal order statistics), so the mean factor is exp(.01 x 2.34) = 1.0237. Stretches of
// four alike kernels: half the deviation, 1.0118.
TEST(Stragglers, ACollectiveWaitsForTheSlowestOfItsRanks) {
  const auto mean_factor = [](int kernels) {
    constexpr int kStretches = 2000;
    Schedule schedule;
    schedule.comms.push_back({64, 1, "all"});
    Work gather;
    gather.kind = WorkKind::AllGather;
    gather.comm = CommId{0};
    for (int i = 0; i < kStretches; ++i) {
      for (int k = 0; k < kernels; ++k) schedule.works.emplace_back();
      schedule.works.push_back(gather);
    }
    for (uint32_t w = 0; w < schedule.works.size(); ++w) {
      Instr launch;
      launch.kind = Kind::Launch;
      launch.a = w;
      schedule.code.push_back(launch);
    }
    schedule.segments.push_back({});
    schedule.segments.back().end = static_cast<uint32_t>(schedule.code.size());
    Scenario s = sixteen_nodes();
    s.training.mesh.shard = 64;
    s.cost.scale_tax = 0;
    s.cost.jitter.kernel_sigma = .01;
    CostTable table;
    table.work.assign(schedule.works.size(), Time::us(1000));
    add_stragglers(s, Calibration{}, schedule, table);
    double sum = 0;
    for (size_t w = 0; w < schedule.works.size(); ++w)
      if (!is_collective(schedule.works[w].kind)) sum += table.work[w].as_us() / 1000;
    return sum / (kStretches * kernels);
  };
  EXPECT_NEAR(mean_factor(1), 1.0237, 5e-4);
  EXPECT_NEAR(mean_factor(4), 1.0118, 5e-4);
}

// 6 + 8.6 x 14.6 = 131.56; 6 + 14.6 = 20.6; 6 + .5 x 14.6 = 13.3; recomputed 6 + 3 x 14.6 = 49.8;
// 466 + 4 x 12 x 14.6 = 1166.8; an all-reduce 60.
TEST(HostCosts, ByWork) {
  const Calibration c;
  Work w;
  EXPECT_NEAR(launch_us(c, w), 20.6, 1e-9);
  w.recomputed = true;
  EXPECT_NEAR(launch_us(c, w), 49.8, 1e-9);
  w.recomputed = false;
  w.kernel = KernelClass::fused;
  EXPECT_NEAR(launch_us(c, w), 13.3, 1e-9);
  w.kind = WorkKind::Gemm;
  EXPECT_NEAR(launch_us(c, w), 131.56, 1e-9);
  w.kind = WorkKind::AllGather;
  w.tensors = 12;
  EXPECT_NEAR(launch_us(c, w), 1166.8, 1e-9);
  w.tensors = 0;
  w.kind = WorkKind::AllReduce;
  EXPECT_NEAR(launch_us(c, w), 60, 1e-9);
}

}  // namespace
}  // namespace shardsim
