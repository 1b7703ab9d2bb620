// Layouts: fsdp2-runtime section 9, vectors 1-11, and the example of section 2. (12 and 13 are in
// schedule_fsdp2_test.cpp.)
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/plan/plan.h"

namespace shardsim {
namespace {

using Shapes = std::vector<std::vector<int64_t>>;

// T/comm's parameters.
const Shapes kParams{{17, 257}, {17}, {64, 312}, {64}, {64, 64}, {512, 64}, {256}, {64, 297}};

struct Sharded {
  Model model;
  Plan plan;
  const Group& group(size_t i = 0) const { return plan.groups[i]; }
};

// One block of these parameters, wrapped; the root owns none.
Sharded shard(const Shapes& params, int64_t ranks, Reshard reshard = {}) {
  Architecture a;
  a.family = Family::bag;
  a.hidden = 16;
  a.bag_blocks = {params};
  Training t;
  t.mesh.shard = ranks;
  t.fsdp2.reshard_after_forward = reshard;
  Sharded s;
  s.model = build_model(a);
  s.plan = build_plan(s.model, t);
  return s;
}

std::vector<int64_t> locals(int64_t d0, int64_t rest, int64_t ranks) {
  std::vector<int64_t> out;
  for (int64_t k = 0; k < ranks; ++k) out.push_back(local_numel(d0, rest, ranks, k));
  return out;
}

TEST(PlanLayout, Vector1) {
  const Sharded s = shard(kParams, 128);
  std::vector<int64_t> shards;
  for (const ShardedParam& p : s.group().params) shards.push_back(p.shard);
  EXPECT_EQ(shards, (std::vector<int64_t>{257, 1, 312, 1, 64, 256, 2, 297}));
  EXPECT_EQ(s.group().shard, 1190);
  EXPECT_EQ(s.group().padded(), 152'320);
  EXPECT_EQ(s.group().numel, 80'546);
  EXPECT_EQ(all_gather_bytes(s.group(), Precision{}), 609'280);
}

// k 0..16 1190; 17..63 932; 64..127 258.
TEST(PlanLayout, Vector2) {
  for (int64_t k = 0; k < 128; ++k) {
    int64_t n = 0;
    for (const auto& dims : kParams)
      n += local_numel(dims[0], dims.size() > 1 ? dims[1] : 1, 128, k);
    EXPECT_EQ(n, k < 17 ? 1190 : k < 64 ? 932 : 258) << k;
  }
}

// Reshard to 8 of 128: a rank keeps U / 8 elements.
TEST(PlanLayout, Vector3) {
  const Sharded s = shard(kParams, 128, {Reshard::Kind::to, 8});
  EXPECT_EQ(s.plan.states[s.group().state].reshard_ranks, 8);
  EXPECT_EQ(s.group().padded() / 8, 19'040);
}

TEST(PlanLayout, Vectors4And5) {
  EXPECT_EQ(shard(kParams, 8).group().shard, 10'294);
  EXPECT_EQ(shard(kParams, 8).group().padded(), 82'352);
  EXPECT_EQ(shard(kParams, 2).group().shard, 40'402);
  EXPECT_EQ(shard(kParams, 2).group().padded(), 80'804);
}

TEST(PlanLayout, Vectors6To9) {
  using L = std::vector<int64_t>;
  EXPECT_EQ(shard({{5}}, 4).group().shard, 2);
  EXPECT_EQ(locals(5, 1, 4), (L{2, 2, 1, 0}));
  EXPECT_EQ(shard({{7, 3}}, 4).group().shard, 6);
  EXPECT_EQ(locals(7, 3, 4), (L{6, 6, 6, 3}));
  EXPECT_EQ(shard({{1, 4}}, 4).group().shard, 4);
  EXPECT_EQ(locals(1, 4, 4), (L{4, 0, 0, 0}));
  EXPECT_EQ(shard({{9}}, 8).group().shard, 2);
  EXPECT_EQ(locals(9, 1, 8), (L{2, 2, 2, 2, 1, 0, 0, 0}));
}

// fp32 and bf16 in one group, W 2: shards of 6 and 2 elements are 28 B a rank, 56 B gathered.
TEST(PlanLayout, Vector10) {
  Architecture a;
  a.family = Family::bag;
  a.hidden = 16;
  a.bag_blocks = {{{12}, {4}}};
  Training t;
  t.mesh.shard = 2;
  t.precision.compute = DType::bf16;
  t.precision.keep = {"*.p.0"};
  const Model model = build_model(a);
  const Plan plan = build_plan(model, t);
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_EQ(plan.groups[0].shard, 8);
  EXPECT_EQ(all_gather_bytes(plan.groups[0], t.precision), 56);
}

// Another dimension than 0, even on it: (64, 512) on 8 ranks is (64, 64) each, with nothing padded.
// Uneven, or a dimension too many, are errors with PyTorch 2.15's words.
TEST(PlanLayout, OtherDimensions) {
  Architecture a;
  a.family = Family::bag;
  a.hidden = 16;
  a.bag_blocks = {{{63, 512}, {63}}};
  Training t;
  t.mesh.shard = 8;
  const auto plan = [&] { return build_plan(build_model(a), t); };
  t.fsdp2.shard_placement = {{"*.p.0", 1}};
  EXPECT_EQ(plan().groups[0].params[0].shard, 63 * 64);
  EXPECT_EQ(plan().groups[0].params[0].local, 63 * 64);
  const auto error = [&]() -> std::string {
    try {
      plan();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  t.fsdp2.shard_placement = {{"*.p.1", 1}};
  EXPECT_NE(error().find("hard dim 1 is invalid for 1D tensor: torch.Size([63])"),
            std::string::npos);
  t.fsdp2.shard_placement = {{"*.p.0", 1}};
  t.mesh.shard = 3;
  EXPECT_NE(error().find("FSDP does not support uneven sharding on dim 1: torch.Size([63, 512]) "
                         "(world size: 3)"),
            std::string::npos);
}

// MLP(16): two linears of 16 and 64 features with biases, 16*64 + 64 + 64*16 + 16 = 2128 parameters;
// bf16 compute, fp32 reduction.
TEST(PlanLayout, Vector11) {
  const Sharded s = shard({{64, 16}, {64}, {16, 64}, {16}}, 4);
  Training t;
  Precision& p = t.precision;
  p.compute = DType::bf16;
  p.reduce = DType::fp32;
  EXPECT_EQ(s.group().numel, 2128);
  EXPECT_EQ(s.group().shard, 532);
  EXPECT_EQ(all_gather_bytes(s.group(), p), 4256);
  EXPECT_EQ(reduce_scatter_bytes(s.group(), s.model, t), 8512);
  EXPECT_EQ(reduce_scatter_bytes(s.group(), s.model, t) / 4, 2128);
}

// A(3,3), B(2,2) on 2 ranks (PR #117975): s 6 and 2, S 8; rank 0 holds two rows of A and one of B,
// rank 1 one row of A (3 zeros follow it) and one of B; the all-gather output has 16 elements.
TEST(PlanLayout, ExampleOfSection2) {
  const Sharded s = shard({{3, 3}, {2, 2}}, 2);
  ASSERT_EQ(s.group().params.size(), 2u);
  EXPECT_EQ(s.group().params[0].shard, 6);
  EXPECT_EQ(s.group().params[1].shard, 2);
  EXPECT_EQ(s.group().shard, 8);
  EXPECT_EQ(s.group().padded(), 16);
  EXPECT_EQ(s.group().numel, 13);
  EXPECT_EQ(locals(3, 3, 2), (std::vector<int64_t>{6, 3}));
  EXPECT_EQ(locals(2, 2, 2), (std::vector<int64_t>{2, 2}));
}

// A third dimension is part of a row: (2, 3, 4) on 4 ranks is c 1, s 12, and two ranks hold nothing.
TEST(PlanLayout, ThreeDimensionsAndEmptyShards) {
  const Sharded s = shard({{2, 3, 4}}, 4);
  EXPECT_EQ(s.group().shard, 12);
  EXPECT_EQ(s.group().padded(), 48);
  EXPECT_EQ(s.group().numel, 24);
  EXPECT_EQ(locals(2, 12, 4), (std::vector<int64_t>{12, 12, 0, 0}));
}

TEST(PlanLayout, OneRank) {
  const Sharded s = shard(kParams, 1);
  EXPECT_EQ(s.group().shard, 80'546);
  EXPECT_EQ(s.group().padded(), 80'546);
}

// 2.15: without reduce_dtype gradients are reduced in the original type; 2.7: in the compute type
// (pytorch-2.7's README, number 7).
TEST(PlanLayout, TypesOfCollectives) {
  Training t, old;
  old.pytorch = "2.7";
  t.precision.compute = old.precision.compute = DType::bf16;
  EXPECT_EQ(compute_dtype(t.precision), DType::bf16);
  EXPECT_EQ(reduce_dtype(t), DType::fp32);
  EXPECT_EQ(reduce_dtype(old), DType::bf16);
  t.precision.storage = DType::bf16;
  EXPECT_EQ(reduce_dtype(t), DType::bf16);
  t.precision.reduce = old.precision.reduce = DType::fp32;
  EXPECT_EQ(reduce_dtype(t), DType::fp32);
  EXPECT_EQ(reduce_dtype(old), DType::fp32);
}

// reshard_after_forward=m: 1 is False (with a warning), W is True, a divisor is a mesh of its own,
// anything else ValueError. None is True, but False for the root; an explicit True on the root holds.
TEST(PlanLayout, ReshardAfterForward) {
  const auto resolved = [](Reshard r) {
    const Sharded s = shard({{8, 8}}, 8, r);
    return s.plan.states[s.group().state];
  };
  EXPECT_EQ(resolved({Reshard::Kind::to, 1}).reshard, Reshard::Kind::no);
  EXPECT_EQ(resolved({Reshard::Kind::to, 8}).reshard, Reshard::Kind::yes);
  EXPECT_EQ(resolved({Reshard::Kind::to, 2}).reshard, Reshard::Kind::to);
  EXPECT_EQ(resolved({Reshard::Kind::to, 4}).reshard_ranks, 4);
  EXPECT_EQ(resolved({}).reshard, Reshard::Kind::yes);
  for (int64_t m : {0, 3, 5, 16})
    EXPECT_THROW(shard({{8, 8}}, 8, {Reshard::Kind::to, m}), Error) << m;

  Architecture a;
  a.family = Family::bag;
  a.hidden = 16;
  a.bag_blocks = {{{8, 8}}};
  const Model model = build_model(a);
  Training t;
  t.mesh.shard = 8;
  t.wrap.policy = WrapPolicy::root_only;
  EXPECT_EQ(build_plan(model, t).states[0].reshard, Reshard::Kind::no);
  t.fsdp2.root_reshard = {Reshard::Kind::yes, 0};
  EXPECT_EQ(build_plan(model, t).states[0].reshard, Reshard::Kind::yes);
}

// The mesh of an int reshard divides the shard group, not the world: 4 of (2 replicas x) 4 is True.
TEST(PlanLayout, ReshardWithReplicas) {
  Architecture a;
  a.family = Family::bag;
  a.hidden = 16;
  a.bag_blocks = {{{8, 8}}};
  const Model model = build_model(a);
  Training t;
  t.mesh = {2, 4};
  t.fsdp2.reshard_after_forward = {Reshard::Kind::to, 4};
  const Plan plan = build_plan(model, t);
  EXPECT_EQ(plan.states[1].reshard, Reshard::Kind::yes);
  EXPECT_EQ(plan.groups[0].ranks, 4);
  t.fsdp2.reshard_after_forward = {Reshard::Kind::to, 8};
  EXPECT_THROW(build_plan(model, t), Error);
}

}  // namespace
}  // namespace shardsim
