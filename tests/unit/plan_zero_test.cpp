// DeepSpeed's partitions, buckets and prefetch: fsdp1-ddp-zero-runtime section 8, vectors 41-43 and 45.
#include "sim/plan/plan_zero.h"

#include <gtest/gtest.h>

namespace shardsim {
namespace {

using Sizes = std::vector<int64_t>;

TEST(ZeroFlat, Vector41) {
  const ZeroFlat small = zero_flat(Sizes{1000, 3}, 4, false);
  EXPECT_EQ(small.length, 1008);
  EXPECT_EQ(small.partition, 252);
  EXPECT_EQ(small.padding, 5);
  const ZeroFlat large = zero_flat(Sizes{7'000'000'001}, 8, false);
  EXPECT_EQ(large.partition, 875'000'002);
  EXPECT_EQ(large.padding, 15);
}

TEST(ZeroFlat, Vector42RoundRobin) {
  EXPECT_EQ(round_robin_order(7, 3), (std::vector<uint32_t>{0, 3, 6, 1, 4, 2, 5}));
  EXPECT_EQ(round_robin_order(2, 4), (std::vector<uint32_t>{0, 1}));
  // Offsets follow that order: 0, 3, 1, 2 of sizes 10, 20, 30, 40 on 3 ranks.
  const ZeroFlat f = zero_flat(Sizes{10, 20, 30, 40}, 3, true);
  EXPECT_EQ(f.offsets, (Sizes{0, 50, 70, 10}));
}

TEST(ReduceBucket, Vector43) {
  const std::vector<std::pair<int, int64_t>> ready{{5, 30},  {4, 50}, {3, 40},
                                                   {2, 120}, {1, 10}, {0, 60}};
  ReduceBucket bucket{100};
  std::vector<std::vector<int>> buckets(1);
  for (const auto& [param, numel] : ready) {
    if (bucket.full_for(numel)) {
      buckets.emplace_back();
      bucket.elements = 0;
    }
    EXPECT_EQ(bucket.too_large(numel), param == 2);
    bucket.elements += numel;
    buckets.back().push_back(param);
  }
  EXPECT_EQ(buckets, (std::vector<std::vector<int>>{{5, 4}, {3}, {2}, {1, 0}}));
}

TEST(ZeroPrefetch, Vector45) {
  EXPECT_EQ(prefetched(Sizes{30, 30, 30}, 50, 1'000'000'000, 0), 2u);
  EXPECT_EQ(prefetched(Sizes{30, 30, 30}, 50, 100, 80), 1u);
}

TEST(ZeroPersistence, ThresholdsOfParameterAndModel) {
  EXPECT_EQ(persistent_parameters(Sizes{100'000, 100'001, 7}, 100'000, INT64_MAX),
            (std::vector<bool>{true, false, true}));
  // What no longer fits into the model's threshold is passed over, and what follows may fit.
  EXPECT_EQ(persistent_parameters(Sizes{6, 6, 4}, 10, 10), (std::vector<bool>{true, false, true}));
}

// A ParameterList has no forward, so its parameters are fetched by the module that uses them: on 4
// ranks 3 and 5 elements are parts of 1 and 2.
TEST(ZeroPlan, ParameterListsAreFetchedByTheModuleAroundThem) {
  Architecture a;
  a.family = Family::bag;
  a.hidden = 8;
  a.bag_blocks = {{{3}, {5}}, {{4}}};
  const Model model = build_model(a);
  Training t;
  t.strategy = Strategy::zero3;
  t.mesh.shard = 4;
  const Plan plan = build_plan_zero(model, t);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].name(model), "layers.0");
  EXPECT_EQ(plan.groups[0].numel, 8);
  EXPECT_EQ(plan.groups[0].shard, 3);
  EXPECT_EQ(plan.groups[1].name(model), "layers.1");
  EXPECT_EQ(plan.group_of_param, (std::vector<int32_t>{0, 0, 1}));
}

}  // namespace
}  // namespace shardsim
