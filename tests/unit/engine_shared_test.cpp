// The machine's shared policy, by hand and against the policy in order. Times in microseconds.
#include "sim/engine/shared.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sim/engine/machine.h"
#include "tests/unit/hand_schedule.h"

namespace shardsim {
namespace {

using test::HandSchedule;
using L = std::vector<int64_t>;

L us(const std::vector<Time>& times) {
  L out;
  for (Time t : times) out.push_back(std::llround(t.as_us()));
  return out;
}

Demand on(Resource r, double load) {
  Demand d;
  d[r] = static_cast<float>(load);
  return d;
}

CostTable costs_of(const HandSchedule& h, const std::vector<Demand>& demands, Time host_call) {
  CostTable costs;
  costs.work = h.cost;
  costs.demand = demands;
  costs.host = HostCosts::every(host_call);
  costs.launch.assign(h.cost.size(), host_call);
  costs.sharing.sms = 132;
  return costs;
}

Trace play(HandSchedule& h, const std::vector<Demand>& demands, Time host_call = {}) {
  Machine machine;
  Trace t;
  machine.play(h.done(), costs_of(h, demands, host_call), t);
  return t;
}

const Demand kHbm = on(Resource::hbm, 1);

// Two kernels that each want all of HBM run at half speed, 0..20; if the second is 4 long it is over
// at 8, and the first has 10 - 4 = 6 left for itself: 14, slowed by 4.
TEST(EngineShared, TwoWorksShare) {
  HandSchedule a;
  a.kernel(0, 10);
  a.kernel(1, 10);
  EXPECT_EQ(us(play(a, {kHbm, kHbm}).end), (L{20, 20}));

  HandSchedule b;
  b.kernel(0, 10);
  b.kernel(1, 4);
  const Trace t = play(b, {kHbm, kHbm});
  EXPECT_EQ(us(t.end), (L{14, 8}));
  EXPECT_EQ(us(t.slowed), (L{4, 4}));
}

// What starts later slows from then on: A alone until 6 (the host's second call), then both at half
// speed: A has 4 left, over at 14; B is 4 at 14 and has 6 left alone: 20.
TEST(EngineShared, SpeedsChangeAtEachStart) {
  HandSchedule h;
  h.kernel(0, 10);
  h.kernel(1, 10);
  const Trace t = play(h, {kHbm, kHbm}, Time::us(6));
  EXPECT_EQ(us(t.start), (L{0, 6}));
  EXPECT_EQ(us(t.end), (L{14, 20}));
}

// A product of 84 beside a gather of 24 thread blocks for 66: at 84/132 it does 42 in 66, the rest of
// 42 alone: 108. The gather is not slowed.
TEST(EngineShared, ThreadBlocksSlowAProduct) {
  HandSchedule h;
  const uint32_t shard = h.comm(8, "shard");
  h.launch(0, WorkKind::Gemm, 84, "");
  h.collective(1, WorkKind::AllGather, 66, shard, 0);
  Demand product, gather;
  product.sm_bound = true;
  gather.ctas = 24;
  EXPECT_EQ(us(play(h, {product, gather}).end), (L{108, 66}));
}

// The host waits for the end as it is when both share: 20; the kernel behind it is issued then.
TEST(EngineShared, TheHostWaits) {
  HandSchedule h;
  const uint32_t e = h.event();
  h.kernel(0, 10);
  h.kernel(1, 10);
  h.record(0, e);
  h.host_wait(e);
  h.kernel(2, 1);
  EXPECT_EQ(us(play(h, {kHbm, kHbm, {}}).start), (L{0, 0, 20}));
  HandSchedule stream;
  stream.kernel(0, 10);
  stream.kernel(1, 4);
  stream.stream_sync(1);
  stream.kernel(2, 1);
  stream.device_sync();
  stream.kernel(2, 1);
  EXPECT_EQ(us(play(stream, {kHbm, kHbm, {}, {}}).start), (L{0, 0, 8, 14}));
}

// Whether a collective has ended at the host's now depends on what slowed it: 9 long, alone until 4
// and then at half speed it ends at 14. At 12 it has not, so the wait is a call; alone it has.
TEST(EngineShared, LooksAtTheDevice) {
  HandSchedule h;
  const uint32_t shard = h.comm(8, "shard");
  const uint32_t e = h.event();
  h.collective(1, WorkKind::AllGather, 9, shard, 0);  // host 0
  h.kernel(2, 100);                                   // 4
  h.record(1, e);                                     // 8
  h.wait_unless_done(0, e);                           // 12
  h.kernel(0, 1);                                     // 16
  const Trace shared = play(h, {kHbm, kHbm, {}}, Time::us(4));
  EXPECT_EQ(us(shared.issued), (L{0, 4, 16}));
  EXPECT_EQ(us(shared.end)[0], 14);
  EXPECT_EQ(us(shared.start)[2], 16);
  EXPECT_EQ(us(play(h, {{}, {}, {}}, Time::us(4)).issued), (L{0, 4, 12}));
}

// An instruction at a time.
Trace play_in_pieces(const HandSchedule& h, const CostTable& costs, Machine& machine) {
  Trace t;
  Schedule growing = h.schedule;
  growing.segments.clear();
  for (uint32_t i = 0; i < growing.code.size(); ++i) {
    Segment s;
    s.begin = i;
    s.end = i + 1;
    growing.segments.push_back(s);
    machine.play(growing, costs, t);
  }
  return t;
}

// Step by step or in one, the same trace: what the host had not issued when a step's play ended still
// slows what was in flight then.
TEST(EngineShared, PlayedInPieces) {
  HandSchedule h;
  h.kernel(0, 10);
  h.kernel(1, 10);
  h.kernel(0, 5);
  h.done();
  const CostTable costs = costs_of(h, {kHbm, kHbm, kHbm}, Time::us(3));
  Machine whole;
  Trace a;
  whole.play(h.schedule, costs, a);
  Machine pieces;
  const Trace b = play_in_pieces(h, costs, pieces);
  EXPECT_EQ(a.start, b.start);
  EXPECT_EQ(a.end, b.end);
  EXPECT_EQ(whole.state(), pieces.state());
  EXPECT_EQ(whole.now(), pieces.now());
}

void add(HandSchedule& h, std::mt19937& random, std::vector<Demand>& demands, double load) {
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  h.comm(8, "a");
  h.comm(2, "b");
  for (int e = 0; e < 6; ++e) h.event();
  for (int i = 0; i < 120; ++i) {
    const auto stream = static_cast<StreamId>(below(4));
    switch (below(8)) {
      case 0:
      case 1: h.kernel(stream, 1 + below(30)); break;
      case 2: h.collective(stream, WorkKind::AllGather, 1 + below(50), below(2), 0); break;
      case 3: h.record(stream, below(6)); break;
      case 4: h.wait(stream, below(6)); break;
      case 5: h.wait_unless_done(stream, below(6)); break;
      case 6:
        if (below(4) == 0) h.host_wait(below(6));
        if (below(20) == 0) h.stream_sync(stream);
        if (below(40) == 0) h.device_sync();
        break;
      default: break;
    }
    if (below(15) == 0) h.mark("m", 0, below(2) == 0);
  }
  for (const Work& w : h.schedule.works) {
    Demand d = on(Resource::hbm, load * below(100) / 100);
    if (is_collective(w.kind)) {
      d[Resource::nvlink] = static_cast<float>(load);
      d.ctas = load > 0 ? 24 : 0;
    } else {
      d.sm_bound = below(2) == 0;
    }
    demands.push_back(d);
  }
}

// Where no two works together ask for more than there is, both policies are the same to the
// picosecond: 300 random schedules.
TEST(EngineShared, InOrderWhereNothingIsShared) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    HandSchedule h(4);
    std::vector<Demand> demands;
    add(h, random, demands, 0);
    const Time call = Time::us(static_cast<int64_t>(random() % 4));
    const Trace a = play(h, demands, call), b = h.play(call);
    EXPECT_EQ(a.start, b.start);
    EXPECT_EQ(a.end, b.end);
    EXPECT_EQ(a.issued, b.issued);
    EXPECT_EQ(a.reached, b.reached);
    ASSERT_EQ(a.marks.size(), b.marks.size());
    for (size_t i = 0; i < a.marks.size(); ++i) EXPECT_EQ(a.marks[i].host, b.marks[i].host);
    for (Time t : a.slowed) EXPECT_EQ(t.ps, 0);
  }
}

// Where they share, nothing is faster than alone, streams and communicators stay in order, and the
// trace is the same again.
TEST(EngineShared, RandomSchedules) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    HandSchedule h(4);
    std::vector<Demand> demands;
    add(h, random, demands, 1);
    const Time call = Time::us(static_cast<int64_t>(random() % 4));
    const Trace t = play(h, demands, call);
    Machine pieces;
    EXPECT_EQ(play(h, demands, call).end, t.end);
    EXPECT_EQ(play_in_pieces(h, costs_of(h, demands, call), pieces).end, t.end);
    std::vector<Time> stream(4), comm(2);
    size_t l = 0;
    for (const Instr& i : h.schedule.code) {
      if (i.kind != Kind::Launch) continue;
      const Work& w = h.schedule.works[i.a];
      EXPECT_GE(t.start[l], t.issued[l]);
      EXPECT_GE(t.start[l], stream[i.stream]);
      if (is_collective(w.kind)) {
        EXPECT_GE(t.start[l], comm[w.comm.v]);
      }
      EXPECT_GE(t.slowed[l].ps, 0);
      EXPECT_EQ(t.end[l] - t.start[l], h.cost[i.a] + t.slowed[l]);
      stream[i.stream] = t.end[l];
      if (is_collective(w.kind)) comm[w.comm.v] = t.end[l];
      ++l;
    }
    EXPECT_EQ(l, t.end.size());
  }
}

}  // namespace
}  // namespace shardsim
