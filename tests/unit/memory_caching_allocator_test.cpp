#include "sim/memory/caching_allocator.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace shardsim {
namespace {

using Stats = AllocatorStatistics;

// A clock that the test sets; an event of stream s recorded now passes at ends[s].
class TestClock final : public DeviceClock {
 public:
  int64_t record(StreamId stream) override { return std::max(now, ends[stream]); }
  bool done(int64_t event) override {
    ++queries;
    return event <= now;
  }
  void wait(int64_t event) override { now = std::max(now, event); }
  void wait_stream(StreamId stream) override { now = std::max(now, ends[stream]); }
  void called(DeviceCall call, Bytes) override { ++calls[static_cast<size_t>(call)]; }
  int count(DeviceCall call) const { return calls[static_cast<size_t>(call)]; }

  int64_t now = 0;
  std::vector<int64_t> ends = std::vector<int64_t>(kAllocatorStreams, 0);
  std::vector<int> calls = std::vector<int>(5, 0);
  int queries = 0;
};

struct Fixture {
  explicit Fixture(const std::string& conf = "", DeviceMemory device = {})
      : a(parse_allocator_settings(conf), device, clock) {}
  TestClock clock;
  CachingAllocator a;
  int64_t now(Stats::Number n) const { return a.statistics().current(n); }
};

// Two blocks of 8 MiB in a segment of 20 MiB; freed they merge with the 4 MiB behind them.
TEST(CachingAllocator, SplitsAndMerges) {
  Fixture f;
  ASSERT_TRUE(f.a.alloc(0, 8 * kMiB, 0));
  ASSERT_TRUE(f.a.alloc(1, 8 * kMiB, 0));
  EXPECT_EQ(f.a.place(0), (CachingAllocator::Place{0, 0}));
  EXPECT_EQ(f.a.place(1), (CachingAllocator::Place{0, 8 * kMiB}));
  f.a.free(0);
  f.a.free(1);
  EXPECT_EQ(f.a.blocks(0).size(), 1U);
  ASSERT_TRUE(f.a.alloc(2, 16 * kMiB, 0));
  EXPECT_EQ(f.a.place(2), (CachingAllocator::Place{0, 0}));
  EXPECT_EQ(f.now(Stats::inactive_split_bytes), 4 * kMiB);
  EXPECT_EQ(f.a.reserved(), 20 * kMiB);
  EXPECT_EQ(f.clock.count(DeviceCall::malloc), 1);
  f.a.check_invariants();
}

TEST(CachingAllocator, NothingForZeroBytes) {
  Fixture f;
  ASSERT_TRUE(f.a.alloc(5, 0, 0));
  EXPECT_FALSE(f.a.holds(5));
  f.a.record_stream(5, 1);
  f.a.free(5);
  EXPECT_EQ(f.a.reserved(), 0);
}

// Equal sizes: the lowest address, which is the oldest segment (recording best_fit).
TEST(CachingAllocator, LowestOfTheSmallestThatFit) {
  Fixture f;
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(f.a.alloc(i, 30 * kMiB, 0));
  for (const uint32_t i : {2U, 0U, 1U}) f.a.free(i);
  ASSERT_TRUE(f.a.alloc(9, 30 * kMiB, 0));
  EXPECT_EQ(f.a.place(9).segment, 0U);
}

// Recording record_fifo: a stream's events are looked at in order, only at an alloc, and a block
// that waits on two streams needs both.
TEST(CachingAllocator, RecordedStreams) {
  Fixture f;
  ASSERT_TRUE(f.a.alloc(0, 64 * kMiB, 0));
  f.a.record_stream(0, 0);  // its own: no effect
  f.a.record_stream(0, 1);
  f.a.record_stream(0, 2);
  f.clock.ends[1] = 100;
  f.clock.ends[2] = 200;
  f.a.free(0);
  EXPECT_EQ(f.a.allocated(), 0);
  EXPECT_EQ(f.a.active(), 64 * kMiB);
  f.clock.now = 150;
  ASSERT_TRUE(f.a.alloc(1, 512, 0));
  EXPECT_EQ(f.a.active(), 64 * kMiB + 512);
  f.clock.now = 200;
  EXPECT_EQ(f.a.active(), 64 * kMiB + 512);  // nobody has looked
  ASSERT_TRUE(f.a.alloc(2, 64 * kMiB, 0));
  EXPECT_EQ(f.a.place(2).segment, 0U);
  f.a.check_invariants();
}

// A snapshot's free_completed: at once, or where somebody looks once the other stream is done.
TEST(CachingAllocator, LogsWhatHasBecomeFree) {
  struct Log final : AllocatorLog {
    void segment(const SegmentEvent&) override {}
    void freed(int64_t, uint32_t slot) override { slots.push_back(slot); }
    std::vector<uint32_t> slots;
  } log;
  Fixture f;
  f.a.set_log(&log);
  for (uint32_t i = 0; i < 2; ++i) ASSERT_TRUE(f.a.alloc(i, 64 * kMiB, 0));
  f.a.record_stream(0, 1);
  f.clock.ends[1] = 100;
  f.a.free(0);
  f.a.free(1);
  EXPECT_EQ(log.slots, (std::vector<uint32_t>{1}));
  f.clock.now = 100;
  ASSERT_TRUE(f.a.alloc(2, 512, 0));
  EXPECT_EQ(log.slots, (std::vector<uint32_t>{1, 0}));
}

TEST(CachingAllocator, OwnEvents) {
  Fixture f;
  for (uint32_t i = 0; i < 2; ++i) ASSERT_TRUE(f.a.alloc(i, 64 * kMiB, 0));
  f.a.record_use(0, 300);
  f.a.record_use(1, 100);
  f.a.free(0);
  f.a.free(1);
  f.clock.now = 100;
  ASSERT_TRUE(f.a.alloc(2, 64 * kMiB, 0));  // in no order: the second is free first
  EXPECT_EQ(f.a.place(2).segment, 1U);
  f.a.empty_cache();  // waits for the other
  EXPECT_EQ(f.clock.now, 300);
  EXPECT_EQ(f.a.reserved(), 64 * kMiB);
  f.a.check_invariants();
}

// No events outstanding: the clock is not asked.
TEST(CachingAllocator, AsksTheClockOnlyForEvents) {
  Fixture f;
  for (uint32_t i = 0; i < 100; ++i) ASSERT_TRUE(f.a.alloc(i, 1000 * i + 1, 0));
  for (uint32_t i = 0; i < 100; ++i) f.a.free(i);
  EXPECT_EQ(f.clock.queries, 0);
}

// 600 MiB device, 100 beside the context (recording vector_21): 60 MiB cached and split cannot go
// back, and 62 more do not fit.
TEST(CachingAllocator, OutOfMemoryText) {
  Fixture f("", {600 * kMiB, 500 * kMiB});
  ASSERT_TRUE(f.a.alloc(0, 60 * kMiB, 0));
  f.a.free(0);
  ASSERT_TRUE(f.a.alloc(1, 20 * kMiB, 0));
  EXPECT_FALSE(f.a.alloc(2, 62 * kMiB, 0));
  EXPECT_FALSE(f.a.holds(2));
  EXPECT_EQ(f.a.out_of_memory().text(),
            "CUDA out of memory. Tried to allocate 62.00 MiB. GPU 0 has a total capacity of 600.00 "
            "MiB of which 40.00 MiB is free. Of the allocated memory 20.00 MiB is allocated by "
            "PyTorch, and 40.00 MiB is reserved by PyTorch but unallocated. If reserved but "
            "unallocated memory is large try setting "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
            "documentation for Memory Management  "
            "(https://docs.pytorch.org/docs/stable/notes/"
            "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)");
  EXPECT_EQ(f.clock.count(DeviceCall::refused), 2);  // the first try and the retry
  EXPECT_TRUE(f.a.alloc(2, 40 * kMiB, 0));           // the program goes on
  f.a.check_invariants();
}

// The retry waits for the events it needs, which moves the host (recording oom_pending_events).
TEST(CachingAllocator, RetryWaits) {
  Fixture f("", {600 * kMiB, 500 * kMiB});
  ASSERT_TRUE(f.a.alloc(0, 60 * kMiB, 0));
  f.a.record_stream(0, 1);
  f.clock.ends[1] = 5000;
  f.a.free(0);
  ASSERT_TRUE(f.a.alloc(1, 80 * kMiB, 0));
  EXPECT_EQ(f.clock.now, 5000);
  EXPECT_EQ(f.a.statistics().alloc_retries, 1);
  EXPECT_EQ(f.a.statistics().sync_all_streams, 1);
}

// Pages of 20 MiB: 30 MiB map two, 15 more fit in the third; with the middle unmapped by empty_cache
// the range keeps its place (recording expandable_release).
TEST(CachingAllocator, ExpandableRanges) {
  Fixture f("expandable_segments:True");
  for (uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(f.a.alloc(i, 30 * kMiB, 0));
  EXPECT_EQ(f.a.reserved(), 120 * kMiB);
  EXPECT_EQ(f.now(Stats::segment), 0);
  f.a.free(1);
  f.a.empty_cache();  // of [30, 60) the page [40, 60)
  EXPECT_EQ(f.a.reserved(), 100 * kMiB);
  EXPECT_EQ(f.clock.count(DeviceCall::unmap), 1);
  f.a.check_invariants();
  ASSERT_TRUE(f.a.alloc(1, 30 * kMiB, 0));  // mapped again, at the same place
  EXPECT_EQ(f.a.place(1), (CachingAllocator::Place{0, 30 * kMiB}));
  for (uint32_t i = 0; i < 4; ++i) f.a.free(i);
  f.a.empty_cache();
  EXPECT_EQ(f.a.reserved(), 0);
  EXPECT_TRUE(f.a.segments().empty());
  f.a.check_invariants();
}

// A fraction of 1 sets no limit; below, the limit is on reserved bytes (recording fraction).
TEST(CachingAllocator, MemoryFraction) {
  Fixture f("", {1000 * kMiB, 0});
  f.a.set_memory_fraction(0.5);
  ASSERT_TRUE(f.a.alloc(0, 500 * kMiB, 0));
  EXPECT_FALSE(f.a.alloc(1, 2 * kMiB, 0));
  EXPECT_EQ(f.a.out_of_memory().allowed, 500 * kMiB);
  f.a.set_memory_fraction(1);
  EXPECT_TRUE(f.a.alloc(1, 2 * kMiB, 0));
}

TEST(CachingAllocator, StatisticsByPool) {
  Fixture f;
  ASSERT_TRUE(f.a.alloc(0, 1000, 0));
  ASSERT_TRUE(f.a.alloc(1, 30 * kMiB, 0));
  f.a.free(1);
  const Stats& s = f.a.statistics();
  EXPECT_EQ(s.pool(Stats::allocated_bytes, 0).current, 1024);
  EXPECT_EQ(s.pool(Stats::allocated_bytes, 1).current, 0);
  EXPECT_EQ(s.pool(Stats::allocated_bytes, 1).peak, 30 * kMiB);
  EXPECT_EQ(s.pool(Stats::allocated_bytes, 1).freed, 30 * kMiB);
  EXPECT_EQ(s.total(Stats::allocated_bytes).peak, 30 * kMiB + 1024);
  EXPECT_EQ(s.total(Stats::allocated_bytes).allocated, 30 * kMiB + 1024);
  EXPECT_EQ(s.total(Stats::requested_bytes).current, 1000);
  f.a.reset_peaks();
  f.a.reset_accumulated();
  EXPECT_EQ(s.total(Stats::allocated_bytes).peak, 1024);
  EXPECT_EQ(s.total(Stats::allocated_bytes).allocated, 0);
  EXPECT_EQ(s.total(Stats::allocated_bytes).freed, 0);
  f.a.free(0);
  EXPECT_EQ(s.total(Stats::allocated_bytes).freed, 1024);
}

// Once no new segment is needed, steps alike leave the same layout; another buffer does not.
TEST(CachingAllocator, LayoutDigest) {
  Fixture f;
  const auto step = [&] {
    for (uint32_t i = 0; i < 20; ++i) f.a.alloc(i, (i + 1) * 700 * kKiB, i % 2);
    for (uint32_t i = 0; i < 20; ++i) f.a.free(i);
  };
  for (Bytes reserved = -1; reserved != f.a.reserved();) {
    reserved = f.a.reserved();
    step();
  }
  const uint64_t after = f.a.layout_digest();
  step();
  EXPECT_EQ(f.a.layout_digest(), after);
  f.a.alloc(0, 512, 0);
  EXPECT_NE(f.a.layout_digest(), after);
}

// The part left of a block remembers who had it: buffer 0 left 40 MiB, of which 7 took the low half.
TEST(CachingAllocator, FreeBlocksKnowWhoLeftThem) {
  Fixture f;
  ASSERT_TRUE(f.a.alloc(0, 40 * kMiB, 0));
  f.a.free(0);
  ASSERT_TRUE(f.a.alloc(7, 20 * kMiB, 0));
  const auto blocks = f.a.blocks(0);
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_EQ(blocks[0].slot, 7U);
  EXPECT_EQ(blocks[1].state, BlockState::free);
  EXPECT_EQ(blocks[1].slot, 0U);
}

}  // namespace
}  // namespace shardsim
