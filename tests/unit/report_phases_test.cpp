#include "sim/report/phases.h"

#include <gtest/gtest.h>

#include "tests/unit/hand_schedule.h"

namespace shardsim {
namespace {

TEST(Phases, NamesOfMarks) {
  EXPECT_EQ(phase_before("step1.0.after_forward"), Phase::forward);
  EXPECT_EQ(phase_before("step1.1.after_backward"), Phase::backward);
  EXPECT_EQ(phase_before("step1.after_clip"), Phase::optimizer);
  EXPECT_EQ(phase_before("step1.after_optimizer"), Phase::optimizer);
}

// The worked number of the header, with two passes: kernels [0, 10) and [10, 30); a gather [30, 60)
// and the kernel [60, 70) that waits for it; then a forward of 5 us and the optimizer's 7 us.
TEST(Phases, FillTheStep) {
  test::HandSchedule h(2);
  const uint32_t comm = h.comm(8, "shard");
  const uint32_t e = h.event(), f = h.event();
  h.mark("after_init", -1, true);
  h.kernel(0, 10);
  h.kernel(0, 20);
  h.record(0, e);
  h.mark("step0.0.after_forward", 0, false);
  h.wait(1, e);
  h.collective(1, WorkKind::AllGather, 30, comm, 0);
  h.record(1, f);
  h.wait(0, f);
  h.kernel(0, 10);
  h.mark("step0.0.after_backward", 0, false);
  h.kernel(0, 5);
  h.mark("step0.1.after_forward", 0, false);
  h.kernel(0, 7);
  h.mark("step0.after_optimizer", 0, false);
  h.mark("step0.after_zero_grad", 0, true);
  const Trace trace = h.play();
  Timeline t;
  t.build(h.schedule, trace, 0);
  const auto windows = phase_windows(h.schedule, trace, t.times());
  ASSERT_EQ(windows.size(), 4u);
  const Phase phases[] = {Phase::forward, Phase::backward, Phase::forward, Phase::optimizer};
  const int64_t ends[] = {30, 70, 75, 82};
  Time at{};
  for (size_t i = 0; i < windows.size(); ++i) {
    EXPECT_EQ(windows[i].phase, phases[i]);
    EXPECT_EQ(windows[i].start, at);
    EXPECT_EQ(windows[i].end, Time::us(ends[i]));
    at = windows[i].end;
  }
}

// The host's own work ends a step: forward and backward [0, 10) and [10, 30), the CPU's optimizer from
// where the host has waited for them, [30, 80); the next forward starts behind it.
TEST(Phases, TheHostsWorkIsTheOptimizers) {
  test::HandSchedule h(2);
  h.mark("after_init", -1, true);
  for (int step = 0; step < 2; ++step) {
    const std::string name = "step" + std::to_string(step) + ".";
    h.kernel(0, 10);
    h.mark(name + "0.after_forward", step, false);
    h.kernel(0, 20);
    h.mark(name + "0.after_backward", step, false);
    h.stream_sync(0);
    h.host_work(50, "CPU optimizer");
    h.mark(name + "after_optimizer", step, false);
    h.mark(name + "after_zero_grad", step, true);
  }
  const Trace trace = h.play();
  for (int step = 0; step < 2; ++step) {
    Timeline t;
    t.build(h.schedule, trace, step);
    EXPECT_EQ(t.times().length(), Time::us(80));
    EXPECT_EQ(t.times().host_worked, Time::us(50));
    EXPECT_EQ(t.times().host_bound, Time::us(50));
    const auto windows = phase_windows(h.schedule, trace, t.times());
    ASSERT_EQ(windows.size(), 3u);
    EXPECT_EQ(windows[2].phase, Phase::optimizer);
    EXPECT_EQ(windows[2].end - windows[2].start, Time::us(50));
  }
}

}  // namespace
}  // namespace shardsim
