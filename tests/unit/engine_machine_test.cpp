// The rules of the machine, each by hand. Times in microseconds; works take what the test says.
#include "sim/engine/machine.h"

#include <gtest/gtest.h>

#include <bit>

#include <random>

#include "sim/base/error.h"
#include "tests/unit/hand_schedule.h"
#include "tests/unit/play_scenario.h"

namespace shardsim {
namespace {

using test::HandSchedule;

CostTable costs_of(const HandSchedule& h, Time host_call = {}) {
  CostTable costs;
  costs.work = h.cost;
  costs.host = HostCosts::every(host_call);
  costs.launch.assign(h.cost.size(), host_call);
  costs.host_work = h.host_cost;
  return costs;
}

Trace play(HandSchedule& h, Time host_call = {}, Machine* machine = nullptr) {
  Machine own;
  const CostTable costs = costs_of(h, host_call);
  Trace t;
  (machine ? machine : &own)->play(h.done(), costs, t);
  return t;
}

std::vector<int64_t> us(const std::vector<Time>& times) {
  std::vector<int64_t> out;
  for (Time t : times) out.push_back(t.ps / 1'000'000);
  return out;
}

using L = std::vector<int64_t>;

// The host issues nothing while it works: kernels [0, 20) and, issued behind 30 us of work, [30, 33).
// Without a price it takes no time, as in a recording.
TEST(EngineMachine, TheHostsOwnWork) {
  HandSchedule h;
  h.kernel(0, 20);
  h.host_work(30, "CPU optimizer");
  h.mark("step0.after_optimizer", 0, false);
  h.kernel(1, 3);
  const Trace t = play(h);
  EXPECT_EQ(us(t.issued), (L{0, 30}));
  EXPECT_EQ(us(t.end), (L{20, 33}));
  ASSERT_EQ(t.worked.size(), 1u);
  EXPECT_EQ(t.worked[0].start, Time{});
  EXPECT_EQ(t.worked[0].end, Time::us(30));
  EXPECT_EQ(t.marks[0].worked, 1u);
  h.host_cost.clear();
  EXPECT_EQ(us(play(h).issued), (L{0, 0}));
}

// A call's cost is charged after its own start: the first kernel starts at 0, the next call on an
// idle stream at 5, the third behind the first on its stream.
TEST(EngineMachine, HostCostIsChargedAfterTheStart) {
  HandSchedule h;
  h.kernel(0, 20);
  h.kernel(1, 1);
  h.kernel(0, 3);
  h.kernel(2, 1);
  const Trace t = play(h, Time::us(5));
  EXPECT_EQ(us(t.issued), (L{0, 5, 10, 15}));
  EXPECT_EQ(us(t.start), (L{0, 5, 20, 15}));
  EXPECT_EQ(us(t.end), (L{20, 6, 23, 16}));
}

TEST(EngineMachine, StreamsAndEvents) {
  HandSchedule h;
  h.kernel(0, 10);
  const uint32_t e = h.event();
  h.record(0, e);
  h.kernel(0, 10);  // after the record: the waiter does not care
  h.wait(1, e);
  h.kernel(1, 4);
  h.kernel(2, 7);  // waits for nothing
  EXPECT_EQ(us(play(h).start), (L{0, 10, 10, 0}));
}

// A wait is for the event's latest record before it, and a record on an idle stream passes at the
// host's now.
TEST(EngineMachine, RecordsAgain) {
  HandSchedule h;
  const uint32_t e = h.event();
  h.kernel(0, 10);
  h.record(0, e);
  h.wait(1, e);  // 10
  h.kernel(0, 10);
  h.record(0, e);
  h.kernel(1, 1);
  h.wait(2, e);  // 20
  h.kernel(2, 1);
  EXPECT_EQ(us(play(h).start), (L{0, 10, 10, 20}));

  HandSchedule idle;
  const uint32_t f = idle.event();
  idle.kernel(0, 1);   // host 0
  idle.kernel(2, 50);  // host 5
  idle.record(1, f);   // host 10, stream 1 never ran
  idle.wait(0, f);     // host 15
  idle.kernel(0, 1);   // host 20
  EXPECT_EQ(us(play(idle, Time::us(5)).start), (L{0, 5, 20}));
}

// Waits follow transitively: 0 -> 1 -> 2.
TEST(EngineMachine, WaitsChain) {
  HandSchedule h;
  const uint32_t a = h.event(), b = h.event();
  h.kernel(0, 10);
  h.record(0, a);
  h.wait(1, a);
  h.record(1, b);
  h.wait(2, b);
  h.kernel(2, 1);
  EXPECT_EQ(us(play(h).start), (L{0, 10}));
}

// One communicator runs its collectives one after another in issue order, whatever their streams:
// the second waits although its stream is free, and although what holds the first up is no business
// of its own. Another communicator does not wait.
TEST(EngineMachine, CommunicatorsAreFirstInFirstOut) {
  HandSchedule h(4);
  const uint32_t shard = h.comm(8, "shard"), other = h.comm(2, "replicate");
  const uint32_t e = h.event();
  h.kernel(0, 100);
  h.record(0, e);
  h.wait(1, e);
  h.collective(1, WorkKind::AllGather, 10, shard, 0);      // 100..110
  h.collective(2, WorkKind::ReduceScatter, 20, shard, 0);  // 110..130
  h.collective(3, WorkKind::AllReduce, 5, other, 0);       // 0..5
  h.collective(3, WorkKind::AllGather, 5, shard, 0);       // 130..135
  h.collective(3, WorkKind::AllReduce, 5, other, 0);       // its stream: 135..140
  const Trace t = play(h);
  EXPECT_EQ(us(t.start), (L{0, 100, 110, 0, 130, 135}));
  EXPECT_EQ(us(t.end), (L{100, 110, 130, 5, 135, 140}));
}

// Kernels never wait for a communicator.
TEST(EngineMachine, KernelsIgnoreCommunicators) {
  HandSchedule h;
  const uint32_t shard = h.comm(8, "shard");
  h.collective(0, WorkKind::AllGather, 50, shard, 0);
  h.kernel(1, 5).comm = {shard};
  EXPECT_EQ(us(play(h).start), (L{0, 0}));
}

// The wait after a collective is no call at all if the collective has ended at host time.
TEST(EngineMachine, WaitUnlessDone) {
  const auto calls = [](int64_t collective_us) {
    HandSchedule h;
    const uint32_t shard = h.comm(8, "shard");
    const uint32_t e = h.event();
    h.collective(1, WorkKind::AllGather, collective_us, shard, 0);  // host 0
    h.record(1, e);                                                 // host 5: max(end, 5)
    h.wait_unless_done(0, e);                                       // host 10
    h.kernel(0, 1);
    const Trace t = play(h, Time::us(5));
    return std::pair{t.issued[1].ps / 1'000'000, t.start[1].ps / 1'000'000};
  };
  EXPECT_EQ(calls(100), (std::pair<int64_t, int64_t>{15, 100}));
  EXPECT_EQ(calls(11), (std::pair<int64_t, int64_t>{15, 15}));
  EXPECT_EQ(calls(10), (std::pair<int64_t, int64_t>{10, 10}));  // done at 10: no wait, no call
  EXPECT_EQ(calls(1), (std::pair<int64_t, int64_t>{10, 10}));
}

// A synchronizing call's own cost runs while the host waits.
TEST(EngineMachine, HostWaits) {
  HandSchedule h;
  const uint32_t e = h.event();
  h.kernel(0, 30);   // host 0
  h.kernel(1, 100);  // host 2
  h.record(0, e);    // host 4
  h.host_wait(e);    // 6 + 2, but not before 30
  h.kernel(2, 1);    // 30
  h.stream_sync(2);  // stream 2 is idle since 31: host 32 + 2
  h.kernel(2, 1);    // 34
  h.stream_sync(1);  // 36 + 2, but not before 102
  h.kernel(0, 50);   // 102
  h.kernel(2, 5);    // 104
  h.device_sync();   // 106 + 2, but not before 152
  h.kernel(1, 1);    // 152
  EXPECT_EQ(us(play(h, Time::us(2)).start), (L{0, 2, 30, 34, 102, 104, 152}));
}

// Pinned blocks have power-of-two sizes; one is taken again when its copy has ended at host time, the
// oldest first; otherwise hostalloc is a call. Each is released by a record, which is a call too.
TEST(EngineMachine, PinnedBlocks) {
  HandSchedule h;
  const auto copy = [&](uint32_t bytes, int64_t duration) {
    const auto size = static_cast<uint32_t>(std::bit_width(bytes - 1));  // of the block: 2^size
    h.add(Kind::PinnedTake, 0, size);
    h.copy(0, duration);
    h.add(Kind::PinnedRelease, 0, size);
  };
  const uint32_t e = h.event();
  copy(1000, 100);  // made at 0; copy issued 10, 10..110; record 20; host 30
  copy(600, 10);   // 1024 B too, the first is in use until 110: made at 30; copy issued 40; host 60
  copy(2000, 10);  // 2048 B: made at 60; copy issued 70; host 90
  h.record(0, e);  // host 90
  h.host_wait(e);  // host 100 + 10, but not before 130
  copy(1024, 10);  // 130: the first is free since 110: no call; copy issued 130; host 150
  copy(513, 10);   // 150: the second, free since 120
  copy(1024, 10);  // 170: the fourth use's block: free since 140
  copy(512, 10);   // 190: 512 B, made; copy issued 200
  const Trace t = play(h, Time::us(10));
  EXPECT_EQ(us(t.issued), (L{10, 40, 70, 130, 150, 170, 200}));
  EXPECT_EQ(us(t.start), (L{10, 110, 120, 130, 150, 170, 200}));
}

// A mark is one host call and takes note of the host's now, launches and live bytes.
TEST(EngineMachine, MarksAndLiveBytes) {
  HandSchedule h;
  const uint32_t a = h.buffer(1), b = h.buffer(1024), c = h.buffer(1025);
  h.alloc(a);  // 512
  h.mark("init", -1, true);
  h.alloc(b);  // 1536
  h.alloc(c);  // 1536 + 1536 = 3072
  h.kernel(0, 1);
  h.free(b);  // 2048
  h.mark("forward", 0, false);
  h.free(c);  // 512
  h.mark("end", 0, true);
  h.alloc(b);
  h.free(b);
  h.mark("end", 1, true);
  const Trace t = play(h, Time::us(3));
  ASSERT_EQ(t.marks.size(), 4u);
  const L hosts = us({t.marks[0].host, t.marks[1].host, t.marks[2].host, t.marks[3].host});
  EXPECT_EQ(hosts, (L{0, 6, 9, 12}));  // allocs and frees cost nothing
  EXPECT_EQ(t.marks[0].launches, 0u);
  EXPECT_EQ(t.marks[1].launches, 1u);
  EXPECT_EQ(t.marks[0].allocated, 512);
  EXPECT_EQ(t.marks[1].allocated, 2048);
  EXPECT_EQ(t.marks[1].allocated_peak, 3072);
  EXPECT_EQ(t.marks[2].allocated, 512);
  EXPECT_EQ(t.marks[2].allocated_peak, 3072);  // of the step so far
  EXPECT_EQ(t.marks[3].allocated_peak, 1536);  // counted anew from the step's begin
}

// Trace::peak is the highest of the run, and who held it.
TEST(EngineMachine, PeakAndItsHolders) {
  HandSchedule h;
  const auto buffer = [&](Bytes bytes, Category category) {
    const uint32_t b = h.buffer(bytes);
    h.schedule.buffers[b].category = category;
    return b;
  };
  const uint32_t p = buffer(2048, Category::parameters), x = buffer(512, Category::activations),
                 y = buffer(4096, Category::temporary);
  h.alloc(p);
  h.mark("init", -1, true);
  h.alloc(x);
  h.mark("forward", 0, false);
  h.alloc(y);
  h.free(y);
  h.mark("backward", 0, false);
  h.free(x);
  h.mark("end", 0, true);
  const Trace t = play(h);
  EXPECT_EQ(t.peak, 2048 + 512 + 4096);
  EXPECT_EQ(t.peak_by_category[static_cast<size_t>(Category::parameters)], 2048);
  EXPECT_EQ(t.peak_by_category[static_cast<size_t>(Category::activations)], 512);
  EXPECT_EQ(t.peak_by_category[static_cast<size_t>(Category::temporary)], 4096);
  EXPECT_EQ(t.peak_by_category[static_cast<size_t>(Category::backward)], 0);
  ASSERT_LT(t.peak_mark, t.marks.size());
  EXPECT_EQ(h.schedule.marks[t.marks[t.peak_mark].mark].name, "backward");
}

// A schedule may be played as it grows, and a segment's shifts move buffer ids.
TEST(EngineMachine, SegmentsAndRepetition) {
  HandSchedule h;
  h.buffer(512);   // 0
  h.buffer(1024);  // 1
  h.buffer(2048);  // 2
  h.kernel(0, 10);
  h.alloc(0);
  h.schedule.code.back().reloc = Reloc::forward;
  const auto length = static_cast<uint32_t>(h.schedule.code.size());
  const CostTable costs = costs_of(h);
  Machine machine;
  Trace t;
  Segment s;
  s.end = length;
  h.schedule.segments = {s};
  machine.play(h.schedule, costs, t);
  EXPECT_EQ(machine.state().live, 512);
  s.shift[static_cast<size_t>(Reloc::forward)] = 2;
  h.schedule.segments.push_back(s);
  machine.play(h.schedule, costs, t);
  EXPECT_EQ(machine.state().live, 512 + 2048);
  EXPECT_EQ(us(t.start), (L{0, 10}));
  EXPECT_EQ(machine.now(), Time::us(20));
}

// A second machine, written for the tests, plays 200 random schedules alike.
TEST(EngineMachine, RandomSchedules) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 200; ++round) {
    HandSchedule h(4);
    h.comm(8, "a");
    h.comm(2, "b");
    for (int e = 0; e < 6; ++e) h.event();
    std::vector<uint32_t> live;
    for (int i = 0; i < 120; ++i) {
      const auto stream = static_cast<StreamId>(below(4));
      switch (below(9)) {
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
        case 7:
          live.push_back(h.buffer(1 + below(5000)));
          h.alloc(live.back());
          break;
        default:
          if (live.empty()) break;
          h.free(live.back());
          live.pop_back();
      }
      if (below(15) == 0) h.mark("m", 0, below(2) == 0);
    }
    const Time call = Time::us(below(4));
    const Trace a = play(h, call), b = h.play(call);
    EXPECT_EQ(a.start, b.start);
    EXPECT_EQ(a.end, b.end);
    EXPECT_EQ(a.issued, b.issued);
    ASSERT_EQ(a.marks.size(), b.marks.size());
    for (size_t i = 0; i < a.marks.size(); ++i) {
      EXPECT_EQ(a.marks[i].host, b.marks[i].host);
      EXPECT_EQ(a.marks[i].allocated, b.marks[i].allocated);
      EXPECT_EQ(a.marks[i].allocated_peak, b.marks[i].allocated_peak);
    }
  }
}

// A step: stream 1 runs 4 after what the step before left on stream 0, then stream 0 runs its kernel.
// Steps of equal length end in equal states (stream 1 lags by the kernel, the host is ahead of all),
// and a longer kernel in another. Where stream 1 does not wait for stream 0 it runs ahead, further
// each step, and no two states are equal.
TEST(EngineMachine, State) {
  const auto states = [](bool waits, const std::vector<int64_t>& kernels) {
    HandSchedule h;
    Machine machine;
    Trace t;
    std::vector<Machine::State> out;
    const uint32_t begun = h.event(), done = h.event();
    for (int64_t kernel : kernels) {
      const auto begin = static_cast<uint32_t>(h.schedule.code.size());
      if (waits) {
        h.record(0, begun);
        h.wait(1, begun);
      }
      h.kernel(1, 4);
      h.record(1, done);
      h.wait(0, done);
      h.kernel(0, kernel);
      h.mark("end", 0, true);
      Segment s;
      s.begin = begin;
      s.end = static_cast<uint32_t>(h.schedule.code.size());
      h.schedule.segments.push_back(s);
      const CostTable costs = costs_of(h);
      machine.play(h.schedule, costs, t);
      out.push_back(machine.state());
    }
    return out;
  };
  const auto tied = states(true, {10, 10, 30, 10});
  EXPECT_EQ(tied[0], tied[1]);
  EXPECT_NE(tied[1], tied[2]);
  EXPECT_EQ(tied[1], tied[3]);
  const auto ahead = states(false, {10, 10, 10});
  EXPECT_NE(ahead[0], ahead[1]);
  EXPECT_NE(ahead[1], ahead[2]);
}

// Level blocks: one malloc of 20 MiB for two buffers of 1 MiB + 1 (memory-model.md A, vector 2), a
// cudaMalloc is a host call, and a freed block is taken again at once on its own stream.
TEST(EngineMachine, BlocksOfTheAllocator) {
  HandSchedule h;
  const uint32_t a = h.buffer(kMiB + 1), b = h.buffer(kMiB + 1), c = h.buffer(1);
  h.alloc(a);      // cudaMalloc 20 MiB: host 100
  h.kernel(0, 1);  // 100
  h.alloc(b);      // from the same segment
  h.kernel(0, 1);  // 105
  h.mark("one", 0, false);
  h.free(b);
  h.alloc(b);
  h.alloc(c);  // the small pool: 2 MiB more
  h.kernel(0, 1);
  h.free(a);
  h.free(b);
  h.free(c);
  h.mark("two", 0, true);
  h.mark("three", 0, true);
  Machine machine(AllocatorSettings{}, DeviceMemory{kGiB, 0});
  CostTable costs = costs_of(h, Time::us(5));
  costs.host[HostCall::malloc] = Time::us(100);
  Trace t;
  machine.play(h.done(), costs, t);
  EXPECT_EQ(us(t.start), (L{100, 105, 215}));
  ASSERT_EQ(t.marks.size(), 3u);
  EXPECT_EQ(t.marks[0].allocated, 2 * 1'049'088);
  EXPECT_EQ(t.marks[0].reserved, 20 * kMiB);
  EXPECT_EQ(t.marks[1].allocated, 0);
  EXPECT_EQ(t.marks[1].active, 0);
  EXPECT_EQ(t.marks[1].allocated_peak, 2 * 1'049'088 + 512);
  EXPECT_EQ(t.marks[1].reserved, 22 * kMiB);
  EXPECT_EQ(t.marks[2].allocated_peak, 0);
  EXPECT_EQ(t.marks[2].reserved_peak, 22 * kMiB);
  EXPECT_FALSE(t.out_of_memory);
}

// 100 MiB device: 60 MiB fit, 62 MiB beside 20 MiB do not, though nothing else is held (vector 21).
TEST(EngineMachine, OutOfMemory) {
  HandSchedule h;
  const uint32_t a = h.buffer(60 * kMiB), k = h.buffer(20 * kMiB), b = h.buffer(62 * kMiB);
  h.mark("start", -1, true);
  h.alloc(a);
  h.free(a);
  h.alloc(k);
  h.kernel(0, 10);
  h.alloc(b);
  h.kernel(0, 10);
  h.mark("never", 0, true);
  Machine machine(AllocatorSettings{}, DeviceMemory{100 * kMiB, 0});
  const CostTable costs = costs_of(h);
  Trace t;
  machine.play(h.done(), costs, t);
  ASSERT_TRUE(t.out_of_memory);
  EXPECT_EQ(t.out_of_memory->buffer, b);
  EXPECT_EQ(t.out_of_memory->marks, 1u);
  EXPECT_EQ(t.out_of_memory->requested, 62 * kMiB);
  // 60 MiB are reserved, since the 20 MiB lie in them: 40 are free, 22 are missing.
  EXPECT_EQ(t.out_of_memory->missing, 22 * kMiB);
  EXPECT_NE(t.out_of_memory->message.find("Tried to allocate 62.00 MiB"), std::string::npos)
      << t.out_of_memory->message;
  EXPECT_EQ(t.start.size(), 1u);
  EXPECT_EQ(t.marks.size(), 1u);
}

// A whole program: the machine's live bytes at every mark are those that the schedule's allocs and
// frees add up to, and at level blocks too, since blocks of 512 are what the small programs need.
TEST(EngineMachine, LiveBytesOfAProgram) {
  Scenario s = test::llama_scenario(2, 1, 128);
  s.training.optimizer.name = Optimizer::Name::adamw;
  const test::Played p = test::play(s, 2);
  const auto memory = test::live_memory(p.schedule);
  Bytes highest = 0;
  for (const MarkRow& row : p.trace.marks) {
    const MarkInfo& mark = p.schedule.marks[row.mark];
    EXPECT_EQ(row.allocated, memory.at(mark.name).end) << mark.name;
    highest = std::max(highest, memory.at(mark.name).peak);
    EXPECT_EQ(row.allocated_peak, highest) << mark.name;
    if (mark.begins_step) highest = row.allocated;
  }
}

}  // namespace
}  // namespace shardsim
