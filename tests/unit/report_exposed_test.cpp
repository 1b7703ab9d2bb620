#include "sim/report/exposed.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/hand_schedule.h"

namespace shardsim {
namespace {

using test::HandSchedule;

const std::vector<std::string> kGroups{"layers.0", "layers.1", ""};

std::string explain(HandSchedule& h, Time host_call = {}, int step = 0) {
  const Trace trace = h.play(host_call);
  Timeline t;
  t.build(h.schedule, trace, step);
  std::string out;
  for (const Exposed& e : explain_exposed(t, h.schedule, trace, build_graph(h.schedule), kGroups))
    out += std::to_string(e.start.ps / 1'000'000) + "+" +
           std::to_string(e.duration.ps / 1'000'000) + " " + e.waiting_on + " " +
           std::string(name_of(e.cause)) + "\n";
  return out;
}

// The worked number of the header: gathers A [0, 30) and B [30, 60), compute waits for B.
TEST(Exposed, EventAndCommunicator) {
  HandSchedule h(2);
  const uint32_t comm = h.comm(8, "shard");
  const uint32_t e = h.event();
  h.mark("step0.begin", 0, true);
  h.collective(1, WorkKind::AllGather, 30, comm, 0);
  // On a stream of its own, so that only the communicator holds it back.
  HandSchedule g(3);
  g.comm(8, "shard");
  const uint32_t f = g.event();
  g.mark("step0.begin", 0, true);
  g.collective(1, WorkKind::AllGather, 30, 0, 0);
  g.collective(2, WorkKind::AllGather, 30, 0, 1);
  g.record(2, f);
  g.wait(0, f);
  g.kernel(0, 10);
  EXPECT_EQ(explain(g), "0+30 all_gather layers.0 communicator\n30+30 all_gather layers.1 event\n");

  h.collective(1, WorkKind::AllGather, 30, comm, 1);  // behind it on the same stream
  h.record(1, e);
  h.wait(0, e);
  h.kernel(0, 10);
  EXPECT_EQ(explain(h), "0+30 all_gather layers.0 event\n30+30 all_gather layers.1 event\n");
}

// A kernel [0, 5), a gather [0, 40), and the next kernel, which the host issues behind work of its own
// [0, 30): until 30 compute waits for that, then nothing follows the kernel [30, 35). A wait of the
// host between work and launch, for what has ended, changes nothing.
TEST(Exposed, TheHostsWorkIsNamed) {
  for (const bool waits : {false, true}) {
    HandSchedule h(2);
    const uint32_t comm = h.comm(8, "shard");
    const uint32_t e = h.event();
    h.mark("step0.begin", 0, true);
    h.kernel(0, 5);
    h.record(0, e);
    h.collective(1, WorkKind::AllGather, 40, comm, 0);
    h.host_work(30, "CPU optimizer");
    if (waits) h.host_wait(e);
    h.kernel(0, 5);
    EXPECT_EQ(explain(h), "5+25 CPU optimizer host\n35+5 all_gather layers.0 end_of_step\n");
  }
}

// Kernel [0, 10), gather [0, 50), the next kernel waits for it; a copy of 5 us stands between.
TEST(Exposed, ACopyBeforeTheKernelIsNamed) {
  HandSchedule h(2);
  const uint32_t comm = h.comm(8, "shard");
  const uint32_t e = h.event();
  h.mark("step0.begin", 0, true);
  h.collective(1, WorkKind::AllGather, 50, comm, 2);
  h.record(1, e);
  h.collective(1, WorkKind::AllGather, 30, comm, 1);
  h.kernel(0, 10);
  h.wait(0, e);
  h.copy(0, 5);
  h.kernel(0, 40);
  // Exposed [10, 50) by the gather; [50, 55) by the copy, while the second gather runs.
  EXPECT_EQ(explain(h), "10+40 all_gather (root) event\n50+5 copy_h2d event\n");
}

// Host calls of 20 us: mark at 0, gather issued at 20 [20, 50), kernels of 5 us issued at 40, 60.
// Exposed [20, 40): the kernel was not issued; [45, 50) the same.
TEST(Exposed, Host) {
  HandSchedule h(2);
  const uint32_t comm = h.comm(8, "shard");
  h.mark("step0.begin", 0, true);
  h.collective(1, WorkKind::AllGather, 30, comm, 0);
  h.kernel(0, 5);
  h.kernel(0, 5);
  EXPECT_EQ(explain(h, Time::us(20)), "20+20 host host\n45+5 host host\n");
}

// The host waits for a reduce-scatter before it goes on: the wait is the host's, what it waited for
// is named.
TEST(Exposed, HostThatWaitsForTheDevice) {
  HandSchedule h(2);
  const uint32_t comm = h.comm(8, "shard");
  const uint32_t e = h.event();
  h.mark("step0.begin", 0, true);
  h.collective(1, WorkKind::ReduceScatter, 30, comm, 1);
  h.record(1, e);
  h.collective(1, WorkKind::AllGather, 30, comm, 0);
  h.host_wait(e);
  h.kernel(0, 5);
  // [0, 30) the host waits; the kernel [30, 35); [35, 60) nothing follows.
  EXPECT_EQ(explain(h),
            "0+30 reduce_scatter layers.1 host\n35+25 all_gather layers.0 end_of_step\n");
}

TEST(Exposed, StepsAreApart) {
  HandSchedule h(2);
  const uint32_t comm = h.comm(8, "shard");
  const uint32_t e = h.event();
  h.mark("step0.begin", 0, true);
  h.kernel(0, 10);
  h.mark("step1.begin", 1, true);
  h.record(0, e);
  h.wait(1, e);
  h.collective(1, WorkKind::AllGather, 30, comm, 0);
  h.record(1, e);
  h.wait(0, e);
  h.kernel(0, 10);
  EXPECT_EQ(explain(h), "");
  EXPECT_EQ(explain(h, {}, 1), "0+30 all_gather layers.0 event\n");
}

// The stretches of each exposed interval fill it exactly.
TEST(Exposed, StretchesFillTheExposedTime) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    HandSchedule h(4);
    const uint32_t c[2] = {h.comm(8, "a"), h.comm(8, "b")};
    for (int e = 0; e < 4; ++e) h.event();
    for (uint32_t e = 0; e < 4; ++e) h.record(0, e);
    h.mark("step0.begin", 0, true);
    for (int i = 0; i < 80; ++i) {
      const auto s = static_cast<StreamId>(draw(4));
      switch (draw(8)) {
        case 0:
        case 1: h.kernel(s, 1 + draw(9)); break;
        case 2:
        case 3: h.collective(s, WorkKind::AllGather, 5 + draw(20), c[draw(2)], draw(3)); break;
        case 4: h.copy(s, 1 + draw(4)); break;
        case 5: h.record(s, draw(4)); break;
        case 6: h.wait(s, draw(4)); break;
        case 7:
          if (draw(4) == 0)
            h.host_wait(draw(4));
          else if (draw(4) == 0)
            h.host_work(1 + draw(20), "CPU optimizer");
          break;
      }
    }
    const Trace trace = h.play(Time::us(draw(3)));
    Timeline t;
    t.build(h.schedule, trace, 0);
    Time sum{}, last{};
    for (const Exposed& e :
         explain_exposed(t, h.schedule, trace, build_graph(h.schedule), kGroups)) {
      EXPECT_GT(e.duration.ps, 0) << seed;
      EXPECT_GE(e.start, last) << seed;
      last = e.start + e.duration;
      sum += e.duration;
    }
    EXPECT_EQ(sum, t.times().exposed_comm) << seed;
  }
}

}  // namespace
}  // namespace shardsim
