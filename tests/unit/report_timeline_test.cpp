#include "sim/report/timeline.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/hand_schedule.h"

namespace shardsim {
namespace {

using test::HandSchedule;

Interval us(int64_t start, int64_t end) { return {Time::us(start), Time::us(end)}; }

std::vector<Interval> list(std::span<const Interval> s) { return {s.begin(), s.end()}; }

// Compute [0, 10), gather [10, 30) after it, compute [25, 35) on stream 2, held back by a copy
// [0, 25) there.
HandSchedule worked() {
  HandSchedule h(3);
  const uint32_t comm = h.comm(2, "shard");
  const uint32_t a = h.event();
  h.mark("step0.begin", 0, true);
  h.kernel(0, 10);
  h.record(0, a);
  h.wait(1, a);
  h.collective(1, WorkKind::AllGather, 20, comm, 0);
  h.copy(2, 25);
  h.kernel(2, 10);
  h.done();
  return h;
}

TEST(Timeline, WorkedNumber) {
  HandSchedule h = worked();
  Timeline t;
  t.build(h.schedule, h.play(), 0);
  EXPECT_EQ(t.times().start.ps, 0);
  EXPECT_EQ(t.times().end, Time::us(35));
  EXPECT_EQ(t.times().compute_busy, Time::us(20));
  EXPECT_EQ(t.times().comm_busy, Time::us(20));
  EXPECT_EQ(t.times().copy_busy, Time::us(25));
  EXPECT_EQ(t.times().exposed_comm, Time::us(15));
  EXPECT_DOUBLE_EQ(t.times().overlap_fraction(), 0.25);
  EXPECT_EQ(list(t.compute()), (std::vector<Interval>{us(0, 10), us(25, 35)}));
  EXPECT_EQ(list(t.comm()), (std::vector<Interval>{us(10, 30)}));
  EXPECT_EQ(list(t.exposed()), (std::vector<Interval>{us(10, 25)}));
  EXPECT_EQ(list(t.busy(2, Busy::copy)), (std::vector<Interval>{us(0, 25)}));
  EXPECT_EQ(list(t.busy(2, Busy::compute)), (std::vector<Interval>{us(25, 35)}));
  ASSERT_EQ(t.collectives().size(), 1u);
  EXPECT_EQ(t.collectives()[0].time, Time::us(20));
  EXPECT_EQ(t.collectives()[0].exposed, Time::us(15));
  EXPECT_EQ(t.times().host_bound.ps, 0);
}

TEST(Timeline, BackToBackKernelsAreOneInterval) {
  HandSchedule h(1);
  h.mark("step0.begin", 0, true);
  for (int i = 0; i < 4; ++i) h.kernel(0, 10);
  h.copy(0, 2);
  h.kernel(0, 10);
  Timeline t;
  t.build(h.schedule, h.play(), 0);
  EXPECT_EQ(list(t.busy(0, Busy::compute)), (std::vector<Interval>{us(0, 40), us(42, 52)}));
  EXPECT_EQ(t.times().compute_busy, Time::us(50));
  EXPECT_DOUBLE_EQ(t.times().overlap_fraction(), 1.0);  // nothing communicates
}

// Two collectives at once on different communicators count once in comm_busy; each has its time.
TEST(Timeline, CollectivesAtOnceCountOnce) {
  HandSchedule h(3);
  const uint32_t a = h.comm(8, "a"), b = h.comm(8, "b");
  h.mark("step0.begin", 0, true);
  h.collective(1, WorkKind::AllGather, 30, a, 0);
  h.collective(2, WorkKind::ReduceScatter, 20, b, 1);
  h.kernel(0, 5);
  Timeline t;
  t.build(h.schedule, h.play(), 0);
  EXPECT_EQ(t.times().comm_busy, Time::us(30));
  EXPECT_EQ(t.times().exposed_comm, Time::us(25));
  EXPECT_EQ(t.collectives()[0].exposed, Time::us(25));
  EXPECT_EQ(t.collectives()[1].exposed, Time::us(15));
}

// Host calls of 4 us, kernels of 3: kernel i (0, 1, 2) is issued after the mark, at 4 + 4 i; the
// step starts with the host at the mark (0), so it is idle [0, 4), [7, 8), [11, 12): 6 of 15 us.
TEST(Timeline, HostBound) {
  HandSchedule h(1);
  h.mark("step0.begin", 0, true);
  for (int i = 0; i < 3; ++i) h.kernel(0, 3);
  Timeline t;
  t.build(h.schedule, h.play(Time::us(4)), 0);
  EXPECT_EQ(t.times().end, Time::us(15));
  EXPECT_EQ(t.times().host_bound, Time::us(6));
  EXPECT_DOUBLE_EQ(t.times().host_bound_fraction(), 0.4);
}

// Steps are windows that touch: setup [0, 7), step 0 [7, 27), step 1 [27, 47).
TEST(Timeline, StepsAddUp) {
  HandSchedule h(2);
  const uint32_t comm = h.comm(2, "shard");
  h.kernel(0, 7, "setup");
  h.mark("step0.begin", 0, true);
  h.kernel(0, 20);
  h.mark("step1.begin", 1, true);
  h.collective(1, WorkKind::AllGather, 30, comm, 0);  // starts before step 1 does: clipped
  h.kernel(0, 20);
  h.mark("end", 1, false);
  const Trace trace = h.play();
  EXPECT_EQ(steps_played(h.schedule, trace), 2);
  Timeline t;
  t.build(h.schedule, trace, 1);
  EXPECT_EQ(t.times().start, Time::us(27));
  EXPECT_EQ(t.times().end, Time::us(47));
  EXPECT_EQ(t.times().first_launch, 2u);
  EXPECT_EQ(list(t.comm()), (std::vector<Interval>{us(27, 30)}));
  EXPECT_EQ(t.times().comm_busy, Time::us(3));
  t.build(h.schedule, trace, 0);  // the same object again
  EXPECT_EQ(t.times().start, Time::us(7));
  EXPECT_EQ(t.times().end, Time::us(27));
  EXPECT_EQ(t.times().compute_busy, Time::us(20));
  EXPECT_EQ(t.collectives().size(), 0u);
}

// Against a grid: every microsecond is classified by brute force.
TEST(Timeline, RandomSchedulesAgreeWithAGrid) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    HandSchedule h(4);
    const uint32_t c[2] = {h.comm(8, "a"), h.comm(8, "b")};
    for (int e = 0; e < 4; ++e) h.event();
    for (uint32_t e = 0; e < 4; ++e) h.record(0, e);
    h.kernel(0, 3);
    h.mark("step0.begin", 0, true);
    for (int i = 0; i < 60; ++i) {
      const auto s = static_cast<StreamId>(draw(4));
      switch (draw(6)) {
        case 0:
        case 1: h.kernel(s, 1 + draw(9)); break;
        case 2: h.collective(s, WorkKind::AllGather, 5 + draw(20), c[draw(2)], 0); break;
        case 3: h.copy(s, 1 + draw(4)); break;
        case 4: h.record(s, draw(4)); break;
        case 5: h.wait(s, draw(4)); break;
      }
    }
    const Trace trace = h.play(Time::us(draw(3)));
    Timeline t;
    t.build(h.schedule, trace, 0);
    const StepTimes& s = t.times();
    std::vector<int> launch_kind;
    std::vector<StreamId> launch_stream;
    h.schedule.for_each([&](const Instr& i, const Segment&) {
      if (i.kind != Kind::Launch) return;
      launch_kind.push_back(static_cast<int>(busy_of(h.schedule.works[i.a].kind)));
      launch_stream.push_back(i.stream);
    });
    int64_t busy[3] = {}, exposed = 0, host = 0;
    for (int64_t at = s.start.ps; at < s.end.ps; at += 1'000'000) {
      bool on[3] = {};
      bool compute_stream = false;
      Time next_start = Time::max(), next_issued{};
      for (uint32_t l = s.first_launch; l < trace.end.size(); ++l) {
        const bool runs = trace.start[l].ps <= at && at < trace.end[l].ps;
        if (runs) on[launch_kind[l]] = true;
        if (launch_stream[l] != 0) continue;
        compute_stream |= runs;
        if (trace.start[l].ps > at && trace.start[l] < next_start) {
          next_start = trace.start[l];
          next_issued = trace.issued[l];
        }
      }
      for (int k = 0; k < 3; ++k) busy[k] += on[k];
      exposed += on[1] && !on[0];
      host += !compute_stream && next_start < Time::max() && next_issued.ps > at;
    }
    EXPECT_EQ(s.compute_busy, Time::us(busy[0])) << seed;
    EXPECT_EQ(s.comm_busy, Time::us(busy[1])) << seed;
    EXPECT_EQ(s.copy_busy, Time::us(busy[2])) << seed;
    EXPECT_EQ(s.exposed_comm, Time::us(exposed)) << seed;
    EXPECT_EQ(s.host_bound, Time::us(host)) << seed;
    for (const CollectiveTime& x : t.collectives()) {
      Time covered{};
      for (const Interval& i : t.compute()) {
        const Time from = std::max(i.start, trace.start[x.launch]);
        const Time to = std::min(i.end, trace.end[x.launch]);
        if (to > from) covered += to - from;
      }
      EXPECT_EQ(x.exposed, x.time - covered) << seed;
    }
  }
}

}  // namespace
}  // namespace shardsim
