// DeepSpeed's schedules: vector 44 of fsdp1-ddp-zero-runtime section 8, and what follows from the rules
// of stage 3 by hand.
#include <gtest/gtest.h>

#include "tests/unit/play_scenario.h"

namespace shardsim {
namespace {

using test::Launched;
using test::Played;

Scenario toy(Strategy strategy, int blocks) {
  Scenario s = test::stack_scenario(blocks, {{64, 64}});
  s.model.input_grad = false;
  s.training.strategy = strategy;
  s.training.input_dtype = DType::bf16;
  s.training.precision.storage = DType::fp32;
  s.training.precision.compute = DType::bf16;
  s.training.precision.cast_forward_inputs = false;
  s.training.optimizer.name = Optimizer::Name::adamw;
  s.training.zero.reduce_bucket_size = 64 * 64;
  s.cost.flat.host_us = 0;
  return s;
}

// A weight's gradient takes 5, an all-reduce of a bucket 8, all else nothing. The bucket holds one
// gradient, so it is flushed when the next is there: 4 flushes, of which the last is the epilogue's.
// Each waits for the reduction before it has ended, and so does what is computed behind it.
TEST(ScheduleZero, Vector44ComputeWaitsForTheFlushBefore) {
  Scenario s = toy(Strategy::zero2, 4);
  s.training.zero.overlap_comm = true;
  const Played p = test::play(s, 1, [](const Work& w) {
    if (w.kind == WorkKind::Gemm && std::string(w.name) == "linear_dw") return Time::us(5);
    if (w.kind == WorkKind::AllReduce && std::string(w.name) == "all_reduce") return Time::us(8);
    return Time{};
  });
  std::vector<int64_t> products, reductions;
  Time t0{-1};
  for (const Launched& l : test::launches(p)) {
    const std::string name = l.work->name;
    if (name == "linear_dw") {
      if (t0 < Time{}) t0 = l.start;
      products.push_back((l.start - t0).ps / 1'000'000);
    }
    if (name == "all_reduce") reductions.push_back((l.start - t0).ps / 1'000'000);
  }
  // Flushes at 10, 15, 23 and 26: the vector's 5, 10, 18, 21 behind the first gradient.
  EXPECT_EQ(reductions, (std::vector<int64_t>{10, 18, 26, 34}));
  EXPECT_EQ(products, (std::vector<int64_t>{0, 5, 10, 18}));
}

std::vector<Bytes> gathers(const Played& p, const std::string& section) {
  std::vector<Bytes> out;
  for (const Launched& l : test::launches(p))
    if (l.work->kind == WorkKind::AllGather && l.section == section) out.push_back(l.work->bytes);
  return out;
}

// Without a trace each module gathers its own 64 x 64 weight, 8192 B; from the second step on the
// root's hook fetches two of the four, and the second module's the rest.
TEST(ScheduleZero, Stage3FetchesAheadAlongTheTrace) {
  Scenario s = toy(Strategy::zero3, 4);
  s.training.zero.overlap_comm = true;
  s.training.zero.param_persistence_threshold = 0;
  s.training.zero.prefetch_bucket_size = 5000;
  const Played p = test::play(s, 2);
  EXPECT_EQ(gathers(p, "step0.0.after_forward"), (std::vector<Bytes>(4, 8192)));
  EXPECT_EQ(gathers(p, "step0.0.after_backward"), (std::vector<Bytes>(4, 8192)));
  EXPECT_EQ(gathers(p, "step1.0.after_forward"), (std::vector<Bytes>{16384, 16384}));
  // Everything is used again within the reuse distance: nothing is gathered in backward.
  EXPECT_EQ(gathers(p, "step1.0.after_backward"), std::vector<Bytes>{});
}

// With no reuse distance a weight goes behind its use, and backward gathers it again.
TEST(ScheduleZero, Stage3ReleasesBeyondTheReuseDistance) {
  Scenario s = toy(Strategy::zero3, 4);
  s.training.zero.overlap_comm = true;
  s.training.zero.param_persistence_threshold = 0;
  s.training.zero.prefetch_bucket_size = 0;
  s.training.zero.max_reuse_distance = 0;
  const Played p = test::play(s, 2);
  EXPECT_EQ(gathers(p, "step1.0.after_forward"), (std::vector<Bytes>(4, 8192)));
  EXPECT_EQ(gathers(p, "step1.0.after_backward"), (std::vector<Bytes>(4, 8192)));
}

// Persistent parameters are gathered once, behind the step.
TEST(ScheduleZero, Stage3GathersPersistentParametersBehindTheStep) {
  Scenario s = toy(Strategy::zero3, 2);
  s.training.zero.overlap_comm = true;
  const Played p = test::play(s, 2);
  EXPECT_EQ(gathers(p, "step0.0.after_step"), (std::vector<Bytes>(2, 8192)));
  EXPECT_EQ(gathers(p, "step1.0.after_forward"), std::vector<Bytes>{});
  EXPECT_EQ(gathers(p, "step1.0.after_step"), (std::vector<Bytes>(2, 8192)));
}

}  // namespace
}  // namespace shardsim
