// DDP's reducer on prices given by hand: vectors 39 and 32 of fsdp1-ddp-zero-runtime section 8.
#include <gtest/gtest.h>

#include "tests/unit/play_scenario.h"

namespace shardsim {
namespace {

using test::Launched;
using test::play;
using test::Played;

constexpr int64_t kTenMib = 10 * kMiB;

Scenario six_of_ten_mib(bool legacy) {
  Scenario s = test::stack_scenario(1);
  s.model.family = Family::vectors;
  s.model.naming = Naming::recorder_fsdp1;
  s.model.hidden = 4;
  s.model.linear_blocks.clear();
  s.model.input_grad = false;
  s.model.bag_blocks = {{}};
  for (int i = 0; i < 6; ++i) s.model.bag_blocks[0].push_back({kTenMib / 4});
  s.training.strategy = Strategy::ddp;
  s.training.legacy_nccl = legacy;
  s.training.micro_batch = 1;
  return s;
}

// 5 ms a gradient, 3 ms for 10 MiB, nothing else: starts and ends of the reductions in ms.
std::vector<double> reductions(bool legacy, int step) {
  const Played p = play(six_of_ten_mib(legacy), step + 1, [](const Work& w) {
    if (w.kind == WorkKind::AllReduce)
      return Time::from_us(3000.0 * static_cast<double>(w.bytes) / kTenMib);
    return std::string(w.name) == "grad_to_bucket" ? Time::us(5000) : Time{};
  });
  const std::string section = "step" + std::to_string(step) + ".0.after_backward";
  std::optional<Time> begin;
  std::vector<double> out;
  for (const Launched& l : launches(p)) {
    if (l.section != section) continue;
    if (!begin) begin = l.start;
    if (l.work->kind != WorkKind::AllReduce) continue;
    out.push_back((l.start - *begin).as_us() / 1000);
    out.push_back((l.end - *begin).as_us() / 1000);
  }
  return out;
}

TEST(ScheduleDdp, ReductionsRunBesideTheBackward) {  // 39
  EXPECT_EQ(reductions(true, 0), (std::vector<double>{30, 48}));
  EXPECT_EQ(reductions(true, 1), (std::vector<double>{5, 8, 20, 29, 30, 36}));
}

TEST(ScheduleDdp, OrHoldItUpWithTheNewBackend) {  // 39
  EXPECT_EQ(reductions(false, 1), (std::vector<double>{5, 8, 23, 32, 42, 48}));
}

// 4 units (1000 x 1000, 1000) and 500000 of the root, fp32, AdamW, behind the second step.
Bytes held(bool bucket_view) {
  Scenario s = test::stack_scenario(4, {{1000, 1000}});
  s.model.bias = true;
  s.model.root_last = {500, 1000};
  s.model.input_grad = false;
  s.training.strategy = Strategy::ddp;
  s.training.ddp.gradient_as_bucket_view = bucket_view;
  s.training.optimizer.name = Optimizer::Name::adamw;
  const Played p = play(s, 2);
  Bytes live = 0, at_mark = -1;
  p.schedule.for_each([&](const Instr& in, const Segment& segment) {
    if (in.kind == Kind::Mark && p.schedule.marks[in.a].name == "step1.after_optimizer")
      at_mark = live;
    if (in.kind != Kind::Alloc && in.kind != Kind::Free) return;
    const Bytes bytes = p.schedule.buffers[segment.buffer(in).v].bytes;
    live += in.kind == Kind::Alloc ? bytes : -bytes;
  });
  return at_mark;
}

TEST(ScheduleDdp, HoldsTwentyBytesAParameter) {  // 32
  EXPECT_EQ(held(false), 90'080'000);
  EXPECT_EQ(held(true), 72'064'000);  // 16
}

}  // namespace
}  // namespace shardsim
