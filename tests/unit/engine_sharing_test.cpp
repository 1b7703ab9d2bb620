// Speeds of works in flight: vectors 33, 34 and 40 of cost-model section F, and what sharing must
// never do.
#include "sim/engine/sharing.h"

#include <gtest/gtest.h>

#include <random>

namespace shardsim {
namespace {

std::vector<double> speeds(const std::vector<Demand>& demands, const Sharing& sharing = {}) {
  std::vector<const Demand*> running;
  for (const Demand& d : demands) running.push_back(&d);
  std::vector<double> out(demands.size());
  share(sharing, running, out);
  return out;
}

Demand on(Resource r, double load) {
  Demand d;
  d[r] = static_cast<float>(load);
  return d;
}

Sharing gpu(double sms) {
  Sharing s;
  s.sms = sms;
  return s;
}

// 132 / (132 - 48) = 1.5714, 132 / (132 - 32) = 1.32, 108 / (108 - 16) = 1.1739.
TEST(EngineSharing, SlowdownByThreadBlocks) {
  EXPECT_NEAR(sm_slowdown(gpu(132), 24), 1.571, .001);
  EXPECT_NEAR(sm_slowdown(gpu(132), 16), 1.320, .001);
  EXPECT_NEAR(sm_slowdown(gpu(108), 8), 1.174, .001);
}

// 2 x 66 = 132 would leave nothing, 2 x 72 less than that: never more than four times.
TEST(EngineSharing, SlowdownStaysFinite) {
  EXPECT_EQ(sm_slowdown(gpu(132), 66), 4);
  EXPECT_EQ(sm_slowdown(gpu(132), 72), 4);
  EXPECT_EQ(sm_slowdown(gpu(132), 49), 132 / 34.0);
  EXPECT_EQ(sm_slowdown(gpu(132), 0), 1);
  EXPECT_EQ(sm_slowdown(Sharing{}, 24), 1);
}

// .85 + 3 x 230 / 2039 = 1.188 of HBM: each runs at 1 / 1.188.
TEST(EngineSharing, MemoryOfAnA100) {
  const auto s = speeds({on(Resource::hbm, .85), on(Resource::hbm, 3 * 230 / 2039.0)});
  EXPECT_NEAR(1 / s[0], 1.188, .001);
  EXPECT_NEAR(1 / s[1], 1.188, .001);
}

// A product of demand .3 beside a gather of 24 thread blocks and demand .2: HBM is not full, the SMs
// are: 84 / 132. The gather runs at full speed, and so does a memory-bound kernel where HBM lets it.
TEST(EngineSharing, CollectivesSlowProducts) {
  Demand product = on(Resource::hbm, .3);
  product.sm_bound = true;
  Demand gather = on(Resource::hbm, .2);
  gather.ctas = 24;
  const auto s = speeds({product, gather, on(Resource::hbm, .5)}, gpu(132));
  EXPECT_NEAR(s[0], 84 / 132.0, 1e-6);
  EXPECT_EQ(s[1], 1);
  EXPECT_EQ(s[2], 1);
}

// Two communicators on one link, one of them also across the NIC with a third: NIC 1 + 1 is full at
// 1/2 for its two; the link's other user may then rise to the rest, 1 - .5 = .5 of a demand of .6.
TEST(EngineSharing, WhatRisesFurther) {
  Demand both = on(Resource::nvlink, 1);
  both[Resource::nic] = 1;
  const auto s = speeds({both, on(Resource::nic, 1), on(Resource::nvlink, .6)});
  EXPECT_NEAR(s[0], .5, 1e-6);
  EXPECT_NEAR(s[1], .5, 1e-6);
  EXPECT_NEAR(s[2], .5 / .6, 1e-6);
}

// Half of a collective's time is latency; at half the bandwidth it takes .5 + .5 x 2 = 1.5 times.
TEST(EngineSharing, LatencyIsNotShared) {
  Demand slow = on(Resource::nic, 1);
  slow.latency = .5;
  const auto s = speeds({slow, on(Resource::nic, 1)});
  EXPECT_NEAR(s[0], 1 / 1.5, 1e-6);
  EXPECT_NEAR(s[1], .5, 1e-6);
}

// Random demands: no resource is asked for more than it has; nothing starves or exceeds full speed;
// equal demands have equal speeds; who is slowed uses a resource that is full; and one work less never
// makes every other slower.
TEST(EngineSharing, Properties) {
  std::mt19937 random(11);
  const auto uniform = [&] { return static_cast<double>(random() % 10001) / 10000; };
  for (int round = 0; round < 2000; ++round) {
    std::vector<Demand> demands(1 + random() % 7);
    for (Demand& d : demands)
      for (float& load : d.load)
        if (random() % 2 == 0) load = static_cast<float>(uniform());
    demands.push_back(demands[0]);
    const auto s = speeds(demands);
    EXPECT_EQ(s.front(), s.back());
    std::array<double, kResources> used{};
    for (size_t i = 0; i < demands.size(); ++i) {
      EXPECT_GT(s[i], 0);
      EXPECT_LE(s[i], 1);
      for (size_t r = 0; r < kResources; ++r)
        used[r] += s[i] * static_cast<double>(demands[i].load[r]);
    }
    for (double u : used) EXPECT_LE(u, 1 + 1e-5);
    for (size_t i = 0; i < demands.size(); ++i) {
      if (s[i] >= 1) continue;
      bool held = false;
      for (size_t r = 0; r < kResources; ++r)
        held = held || (demands[i].load[r] > 0 && used[r] > 1 - 1e-5);
      EXPECT_TRUE(held) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace shardsim
