// Replays on threads: the order of what happened, the data that moved, and what every kind of fault
// leaves behind.
#include "backends/host/replay.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "backends/host/device.h"
#include "backends/host/thread_group.h"
#include "backends/replay/scale.h"
#include "sim/base/error.h"
#include "sim/schedule/graph/schedule_graph.h"
#include "tests/unit/lay_out.h"

namespace shardsim {
namespace {

constexpr int kWorld = 4;

Schedule small_schedule(const std::string& name, int steps) {
  return scaled(test::lay_out_steps(test::shipped(name), steps), 65536, kWorld);
}

HostOptions options() {
  HostOptions o;
  o.play.checked_steps = 2;
  o.limits.timeout_s = 20;
  o.memory = kGiB;
  return o;
}

std::vector<Replay> replay(const Schedule& s, const HostOptions& o) {
  return replay_on_threads(std::vector<const Schedule*>(kWorld, &s), o);
}

// Every edge of the schedule's graph held: what comes behind began when what it waits for had ended.
int64_t broken_edges(const Schedule& s, const Replay& r) {
  const ScheduleGraph graph = build_graph(s);
  int64_t broken = 0;
  for (const Edge& e : graph.edges) {
    const uint32_t from = graph.vertices[e.from].launch, to = graph.vertices[e.to].launch;
    if (from == UINT32_MAX || to == UINT32_MAX || e.why == Why::host) continue;
    broken += r.trace.start[to] < r.trace.end[from];
  }
  return broken;
}

uint32_t launches_of(const Schedule& s) {
  uint32_t n = 0;
  s.for_each([&](const Instr& in, const Segment&) { n += in.kind == Kind::Launch; });
  return n;
}

class EveryStrategy : public testing::TestWithParam<const char*> {};

TEST_P(EveryStrategy, OrderAndDataAreTheSchedules) {
  const Schedule s = small_schedule(GetParam(), 3);
  const std::vector<Replay> ranks = replay(s, options());
  const uint32_t launches = launches_of(s);
  int64_t collectives = 0;
  s.for_each([&](const Instr& in, const Segment&) {
    collectives += in.kind == Kind::Launch && is_collective(s.works[in.a].kind);
  });
  EXPECT_GT(collectives, 10);
  for (const Replay& r : ranks) {
    ASSERT_FALSE(r.failure) << r.failure->what;
    EXPECT_EQ(r.issued, launches);
    EXPECT_EQ(std::count(r.done.begin(), r.done.end(), true), launches);
    EXPECT_TRUE(r.differences.empty());
    EXPECT_GT(r.checked, collectives / 3);
    EXPECT_EQ(broken_edges(s, r), 0);
    // The same placement as the model's: a mark for each of the schedule's.
    EXPECT_EQ(r.trace.marks.size(), s.marks.size());
    EXPECT_GT(r.trace.marks.back().reserved_peak, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Small, EveryStrategy,
                         testing::Values("fsdp2", "fsdp1", "ddp", "zero3", "zero1-torch-a100x4"));

TEST(HostReplay, ManyTimesWithoutAHang) {
  const Schedule s = small_schedule("fsdp2", 2);
  for (int i = 0; i < 100; ++i)
    for (const Replay& r : replay(s, options())) {
      ASSERT_FALSE(r.failure) << "run " << i << ": " << r.failure->what;
      ASSERT_TRUE(r.differences.empty()) << "run " << i;
    }
}

// A device of the tests: calls go to the real one, but for what a test changes.
class Faulty : public HostDevice {
 public:
  using HostDevice::HostDevice;
  std::function<bool(Faulty&, StreamId, const Work&, Regions&, uint32_t)> at_collective;
  void collective(StreamId stream, const Work& work, Regions regions, uint32_t slot) override {
    if (!at_collective || at_collective(*this, stream, work, regions, slot))
      HostDevice::collective(stream, work, regions, slot);
  }
};

// Rank 2's device behaves as `fault` says; the others as they should.
std::vector<Replay> with_fault(const Schedule& s, const HostOptions& o,
                               decltype(Faulty::at_collective) fault) {
  ThreadRanks group(kWorld);
  std::vector<Replay> out(kWorld);
  std::vector<std::thread> threads;
  for (int r = 0; r < kWorld; ++r)
    threads.emplace_back([&, r] {
      const std::unique_ptr<RankGroup> mine = group.group(r);
      Faulty device(*mine, o.memory, o.limits);
      if (r == 2) device.at_collective = fault;
      out[static_cast<size_t>(r)] = play(s, device, o.play);
    });
  for (std::thread& t : threads) t.join();
  return out;
}

TEST(HostReplay, ARankThatDiesEndsTheOthers) {
  const Schedule s = small_schedule("fsdp2", 3);
  const auto began = std::chrono::steady_clock::now();
  const uint32_t late = 5 * launches_of(s) / 6;  // in the last step: all ranks meet after the first
  const std::vector<Replay> ranks = with_fault(
      s, options(), [&](Faulty&, StreamId, const Work&, Regions&, uint32_t slot) -> bool {
        if (slot > late) throw Stopped(Stopped::Why::fault, "the device fell off the bus");
        return true;
      });
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
  for (size_t r = 0; r < ranks.size(); ++r) {
    ASSERT_TRUE(ranks[r].failure) << r;
    EXPECT_NE(ranks[r].failure->what.find("the device fell off the bus"), std::string::npos);
    EXPECT_EQ(ranks[r].failure->why == Stopped::Why::other_rank, r != 2) << r;
    // What had ended is kept.
    EXPECT_GT(std::count(ranks[r].done.begin(), ranks[r].done.end(), true), late / 5);
    EXPECT_FALSE(progress(s, ranks[r]).empty());
  }
  EXPECT_EQ(ranks[0].failure->what, "rank 2: the device fell off the bus");
}

// One rank never joins a collective: the others time out, and say what they were in.
TEST(HostReplay, ACollectiveThatNeverEndsTimesOut) {
  const Schedule s = small_schedule("fsdp2", 3);
  HostOptions o = options();
  o.limits.timeout_s = 1;
  const std::vector<Replay> ranks = with_fault(
      s, o, [](Faulty&, StreamId, const Work&, Regions&, uint32_t slot) { return slot < 100; });
  int timeouts = 0;
  for (const Replay& r : ranks) {
    ASSERT_TRUE(r.failure);
    timeouts += r.failure->why == Stopped::Why::timeout;
  }
  EXPECT_GE(timeouts, 1);
  const std::vector<std::string> lines = progress(s, ranks[0]);
  const bool names_it = std::any_of(lines.begin(), lines.end(), [](const std::string& l) {
    return l.find("under way") != std::string::npos &&
           (l.find("all_gather") != std::string::npos ||
            l.find("reduce_scatter") != std::string::npos);
  });
  EXPECT_TRUE(names_it);
}

TEST(HostReplay, WrongDataIsFound) {
  const Schedule s = small_schedule("fsdp2", 2);
  const std::vector<Replay> ranks = with_fault(
      s, options(), [](Faulty& device, StreamId stream, const Work& w, Regions& regions, uint32_t) {
        if (w.kind != WorkKind::AllGather) return true;
        Pattern other;
        other.elements = w.bytes / 4 / kWorld;
        other.launch = 99999;
        device.fill(stream, const_cast<void*>(regions.in), other);
        return true;
      });
  for (const Replay& r : ranks) EXPECT_FALSE(r.differences.empty());
}

TEST(HostReplay, AnotherScheduleIsRefused) {
  const Schedule a = small_schedule("fsdp2", 2), b = small_schedule("fsdp1", 2);
  EXPECT_THROW(replay_on_threads(std::vector<const Schedule*>{&a, &a, &b, &a}, options()), Error);
}

TEST(HostReplay, OutOfMemoryEndsWithWhatWasMeasured) {
  const Schedule s = small_schedule("fsdp2", 2);
  HostOptions o = options();
  o.memory = 4 * kMiB;
  for (const Replay& r : replay(s, o)) {
    ASSERT_TRUE(r.failure);
    EXPECT_NE(r.failure->what.find("no room for a segment"), std::string::npos) << r.failure->what;
  }
}

// The keys are pressed when a rank has reached its hundredth slot, and that rank stays out of the
// collective there: the others are in a wait that only the interrupt ends.
TEST(HostReplay, CtrlC) {
  const Schedule s = small_schedule("fsdp2", 3);
  std::atomic<bool> stop = false;
  HostOptions o = options();
  o.limits.interrupted = [&] { return stop.load(); };
  const std::vector<Replay> ranks =
      with_fault(s, o, [&](Faulty&, StreamId, const Work&, Regions&, uint32_t slot) {
        if (slot >= 100) stop = true;
        return slot < 100;
      });
  int interrupted = 0;
  for (const Replay& r : ranks) {
    ASSERT_TRUE(r.failure);
    interrupted += r.failure->why == Stopped::Why::interrupted;
  }
  EXPECT_GE(interrupted, 1);
}

}  // namespace
}  // namespace shardsim
