// The account on paper and DeepSpeed's estimators: fsdp1-ddp-zero-runtime section 8, vectors 33, 34, 46
// and 47, and the ZeRO table of the text that this project grew from.
#include <gtest/gtest.h>

#include "sim/plan/deepspeed_estimate.h"
#include "sim/plan/state_formulas.h"

namespace shardsim {
namespace {

constexpr int64_t kGB = 1'000'000'000;

StateFormula of(Scheme scheme, int64_t params, int64_t ranks, int64_t bytes) {
  StateFormula f;
  f.scheme = scheme;
  f.params = params;
  f.ranks = ranks;
  f.bytes = bytes;
  return f;
}

TEST(StateFormulas, Vector33) {
  const auto seven = [](Scheme s) { return of(s, 7 * kGB, 8, 2); };
  EXPECT_EQ(seven(Scheme::full_shard).everything(), 84 * kGB);
  EXPECT_EQ(seven(Scheme::full_shard).resident(), 10.5 * kGB);
  EXPECT_EQ(seven(Scheme::full_shard).peak(), 24.5 * kGB);
  EXPECT_EQ(seven(Scheme::full_shard).communication(), 36.75 * kGB);
  EXPECT_EQ(seven(Scheme::shard_grad_op).resident(), 10.5 * kGB);
  EXPECT_EQ(seven(Scheme::shard_grad_op).peak(), 24.5 * kGB);
  EXPECT_EQ(seven(Scheme::shard_grad_op).communication(), 24.5 * kGB);
  EXPECT_EQ(seven(Scheme::no_shard).resident(), 84 * kGB);
  EXPECT_EQ(seven(Scheme::no_shard).peak(), 84 * kGB);
  EXPECT_EQ(seven(Scheme::no_shard).communication(), 24.5 * kGB);
}

TEST(StateFormulas, Vector34) {
  const auto thirteen = [](Scheme s) { return of(s, 13 * kGB, 4, 4); };
  EXPECT_EQ(thirteen(Scheme::shard_grad_op).everything(), 208 * kGB);
  EXPECT_EQ(thirteen(Scheme::shard_grad_op).resident(), 52 * kGB);
  EXPECT_EQ(thirteen(Scheme::shard_grad_op).peak(), 104 * kGB);
  EXPECT_EQ(thirteen(Scheme::shard_grad_op).communication(), 78 * kGB);
  EXPECT_EQ(thirteen(Scheme::full_shard).communication(), 117 * kGB);
}

// P (2b + bopt); 2 P b + P bopt/N; P b + P (b + bopt)/N; P (2b + bopt)/N, at 7e9, 2, 8, 8.
TEST(StateFormulas, ZeroTable) {
  const auto resident = [](Scheme s) { return of(s, 7 * kGB, 8, 2).resident(); };
  EXPECT_EQ(resident(Scheme::ddp), 84 * kGB);
  EXPECT_EQ(resident(Scheme::zero1), 35 * kGB);
  EXPECT_EQ(resident(Scheme::zero2), 22.75 * kGB);
  EXPECT_EQ(resident(Scheme::zero3), 10.5 * kGB);
}

// 10 parameters of 2 bytes on 3 ranks: 20/3 is 7 held; 60 - 60/3 are 40 moved.
TEST(StateFormulas, RoundsToTheNearestByte) {
  const StateFormula f = of(Scheme::full_shard, 10, 3, 2);
  EXPECT_EQ(f.parameters(), 7);
  EXPECT_EQ(f.optimizer(), 27);
  EXPECT_EQ(f.communication(), 40);
  EXPECT_EQ(of(Scheme::ddp, 10, 1, 2).communication(), 0);
}

// (1 + 1 + 2) / (2 + 2 + 2) of bf16's volume with float8 gathers, (1 + 1 + 4) / (2 + 2 + 4) where
// gradients are reduced in fp32 (torchtitan's float8 all-gather).
TEST(StateFormulas, OtherTypesOnTheWire) {
  StateFormula f = of(Scheme::full_shard, 6 * kGB, 64, 2);
  const auto bf16 = static_cast<double>(f.communication());
  f.gather_bytes = 1;
  EXPECT_NEAR(static_cast<double>(f.communication()) / bf16, 4.0 / 6, 1e-9);
  f.reduce_bytes = 4;
  EXPECT_NEAR(static_cast<double>(f.communication()) / bf16, 6.0 / 6, 1e-9);
  EXPECT_EQ(of(Scheme::ddp, 8, 8, 2).communication(), 28);
}

TEST(StateFormulas, SchemeOfAScenario) {
  Training t;
  t.mesh.shard = 8;
  EXPECT_EQ(formula_of(t, 1).scheme, Scheme::full_shard);
  t.fsdp2.reshard_after_forward.kind = Reshard::Kind::no;
  EXPECT_EQ(formula_of(t, 1).scheme, Scheme::shard_grad_op);
  t.mesh = {8, 1};
  EXPECT_EQ(formula_of(t, 1).scheme, Scheme::no_shard);
  EXPECT_EQ(formula_of(t, 1).ranks, 8);
  t.strategy = Strategy::fsdp1;
  t.mesh = {2, 8};
  t.fsdp1.sharding_strategy = ShardingStrategy::hybrid_shard_zero2;
  t.precision.compute = DType::bf16;
  EXPECT_EQ(formula_of(t, 1).scheme, Scheme::shard_grad_op);
  EXPECT_EQ(formula_of(t, 1).ranks, 8);
  EXPECT_EQ(formula_of(t, 1).bytes, 2);
}

DeepSpeedEstimate estimate(const DeepSpeedSetup& setup, std::string_view stage,
                           std::string_view offload, bool zero_init = false) {
  for (const DeepSpeedEstimate& e : deepspeed_estimates(setup))
    if (e.stage == stage && e.offload == offload && e.zero_init == zero_init) return e;
  ADD_FAILURE() << stage << " " << offload;
  return {};
}

TEST(DeepSpeedEstimate, Vector46) {
  const DeepSpeedSetup one{7 * kGB, 0, 8, 1};
  EXPECT_EQ(estimate(one, "zero2", "none").gpu, 29'750'000'000);
  EXPECT_EQ(estimate(one, "zero2", "none").cpu, 336 * kGB);
  EXPECT_EQ(estimate(one, "zero2", "optimizer").gpu, 14 * kGB);
  EXPECT_EQ(estimate(one, "zero2", "optimizer").cpu, 336 * kGB);
  const DeepSpeedSetup two{7 * kGB, 0, 8, 2};
  EXPECT_EQ(estimate(two, "zero2", "none").gpu, 21'875'000'000);
  EXPECT_EQ(deepspeed_estimates(one).size(), 2u);  // nothing of stage 3 without a largest layer
}

TEST(DeepSpeedEstimate, Vector47) {
  const DeepSpeedSetup s{7 * kGB, kGB / 2, 8, 1};
  EXPECT_EQ(estimate(s, "zero3", "optimizer and parameters", true).gpu, 2 * kGB);
  EXPECT_EQ(estimate(s, "zero3", "optimizer and parameters", true).cpu, 189 * kGB);
  EXPECT_EQ(estimate(s, "zero3", "optimizer", true).gpu, 3'750'000'000);
  EXPECT_EQ(estimate(s, "zero3", "optimizer", true).cpu, 168 * kGB);
  EXPECT_EQ(estimate(s, "zero3", "none", true).gpu, 17'750'000'000);
  EXPECT_EQ(estimate(s, "zero3", "none", true).cpu, 24 * kGB);
  // Not made sharded: max(4 x 8, 18) x 1.5 bytes a parameter.
  EXPECT_EQ(estimate(s, "zero3", "optimizer and parameters").cpu, 336 * kGB);
  EXPECT_EQ(estimate(s, "zero3", "none").cpu, 336 * kGB);
}

}  // namespace
}  // namespace shardsim
