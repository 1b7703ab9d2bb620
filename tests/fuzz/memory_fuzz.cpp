// Random operations and settings on the caching allocator, its invariants checked after each: blocks
// tile their segments without overlap, lists hold what is free, statistics are the sums of blocks.
//   memory_fuzz [--seed N] [--seconds T] [--steps N]
// A failure prints the seed of its run; `--seed N --runs 1` plays that run again. Under libFuzzer the
// input's bytes choose the operations.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/memory/caching_allocator.h"

namespace shardsim {
namespace {

// Choices: from a generator, or from bytes until they are used up.
class Choices {
 public:
  explicit Choices(uint64_t seed) : random_(seed) {}
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size), bytes_(true) {}
  bool over() const { return bytes_ && at_ >= size_; }
  uint64_t below(uint64_t n) {
    if (!bytes_) return random_() % n;
    uint64_t x = 0;
    for (int i = 0; i < 4 && at_ < size_; ++i) x = x << 8 | data_[at_++];
    return x % n;
  }

 private:
  std::mt19937_64 random_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0, at_ = 0;
  bool bytes_ = false;
};

class Clock final : public DeviceClock {
 public:
  int64_t record(StreamId stream) override { return std::max(now, ends[stream]); }
  bool done(int64_t event) override { return event <= now; }
  void wait(int64_t event) override { now = std::max(now, event); }
  void wait_stream(StreamId stream) override { now = std::max(now, ends[stream]); }
  int64_t now = 0;
  std::vector<int64_t> ends = std::vector<int64_t>(kAllocatorStreams, 0);
};

constexpr const char* kSettings[] = {
    "",
    "expandable_segments:True",
    "expandable_segments:False",
    "max_split_size_mb:30",
    "max_split_size_mb:40,max_non_split_rounding_mb:25,garbage_collection_threshold:0.4",
    "garbage_collection_threshold:0.5",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[1:8,16:2,>:4],expandable_segments:True",
    "large_segment_size_mb:33",
    "large_segment_size_mb:20",
    "expandable_segments:True,garbage_collection_threshold:0.3,max_split_size_mb:64",
    "expandable_segments:True,expandable_segments_reserve:0.3",
};

Bytes some_bytes(Choices& c) {
  switch (c.below(8)) {
    case 0: return static_cast<Bytes>(c.below(2048));
    case 1: return static_cast<Bytes>(c.below(kMiB));
    case 2: return static_cast<Bytes>(c.below(20 * kMiB));
    case 3: return static_cast<Bytes>(c.below(200 * kMiB));
    case 4: {  // near the limits
      static constexpr Bytes kLimits[] = {512,       kMiB,      2 * kMiB,  10 * kMiB,
                                          20 * kMiB, 30 * kMiB, 40 * kMiB, 64 * kMiB};
      const Bytes near[] = {-513, -512, -1, 0, 1, 512};
      return std::max<Bytes>(0, kLimits[c.below(8)] + near[c.below(6)]);
    }
    case 5: return static_cast<Bytes>(c.below(40)) * kMiB;
    case 6: return kMiB * (1 + static_cast<Bytes>(c.below(4)));  // the same sizes again and again
    default: return static_cast<Bytes>(c.below(64)) * 512;
  }
}

void require(bool held, const char* what) {
  if (held) return;
  std::fprintf(stderr, "memory_fuzz: %s\n", what);
  std::abort();
}

void run(Choices& c, int steps) {
  Clock clock;
  const DeviceMemory device{static_cast<Bytes>(300 + c.below(2000)) * kMiB,
                            static_cast<Bytes>(c.below(200)) * kMiB};
  CachingAllocator a(parse_allocator_settings(kSettings[c.below(std::size(kSettings))]), device,
                     clock);
  const uint64_t streams = 1 + c.below(4);
  const uint64_t slots = 1 + c.below(120);
  Bytes before = 0;
  for (int i = 0; i < steps && !c.over(); ++i) {
    const auto slot = static_cast<uint32_t>(c.below(slots));
    const auto stream = static_cast<StreamId>(c.below(streams));
    const uint64_t what = c.below(1000);
    if (what < 700) {
      if (a.holds(slot)) {
        a.free(slot);
        require(!a.holds(slot), "a freed slot is empty");
      } else {
        const Bytes bytes = some_bytes(c);
        const int64_t ooms = a.statistics().ooms;
        const bool there = a.alloc(slot, bytes, stream);
        require(there == (a.statistics().ooms == ooms), "an alloc fails by an out of memory");
        require(a.holds(slot) == (there && bytes > 0), "a slot holds what was allocated");
        if (a.holds(slot)) require(a.size(slot) >= bytes, "a block is large enough");
      }
    } else if (what < 800) {
      a.record_stream(slot, stream);
    } else if (what < 810) {
      a.record_use(slot, clock.now + static_cast<int64_t>(c.below(500)));
    } else if (what < 900) {
      clock.ends[stream] =
          std::max(clock.now, clock.ends[stream]) + static_cast<int64_t>(c.below(1000));
    } else if (what < 960) {
      clock.now += static_cast<int64_t>(c.below(400));
    } else if (what < 970) {
      a.empty_cache();
      require(a.active() == a.allocated(), "empty_cache has waited for every event");
    } else if (what < 980) {
      try {
        a.configure(
            parse_allocator_settings(kSettings[c.below(std::size(kSettings))], a.settings()));
      } catch (const Error&) {  // 30 MB are less than a large segment of 33
      }
    } else if (what < 985) {
      a.set_memory_fraction(static_cast<double>(c.below(101)) / 100);
    } else if (what < 990) {
      a.reset_peaks();
    } else if (what < 992) {
      a.reset_accumulated();
    } else {
      for (uint32_t s = 0; s < slots; ++s)
        if (c.below(3) != 0) a.free(s);
    }
    a.check_invariants();
    require(a.reserved() >= a.active() && a.active() >= a.allocated(),
            "reserved >= active >= allocated");
    if (what >= 960 && what < 970) require(a.reserved() <= before, "empty_cache takes nothing");
    before = a.reserved();
  }
  for (uint32_t s = 0; s < slots; ++s) a.free(s);
  a.empty_cache();
  a.check_invariants();
  require(a.active() == 0, "everything has been freed");
  // Ranges keep no page that is wholly free, and other segments are whole: all goes back.
  require(a.reserved() == 0, "everything has been given back");
}

}  // namespace
}  // namespace shardsim

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shardsim::Choices choices(data, size);
  shardsim::run(choices, 4000);
  return 0;
}

#ifndef SHARDSIM_LIBFUZZER
namespace {
uint64_t current_seed = 0;
void say_seed(int) {
  std::fprintf(stderr, "memory_fuzz: failed with --seed %llu --runs 1\n",
               static_cast<unsigned long long>(current_seed));
  std::_Exit(1);
}
}  // namespace

#include <csignal>

int main(int argc, char** argv) {
  uint64_t seed = 1, runs = UINT64_MAX;
  double seconds = 10;
  int steps = 600;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    if (key == "--seed")
      seed = std::strtoull(argv[i + 1], nullptr, 10);
    else if (key == "--seconds")
      seconds = std::strtod(argv[i + 1], nullptr);
    else if (key == "--steps")
      steps = std::atoi(argv[i + 1]);
    else if (key == "--runs")
      runs = std::strtoull(argv[i + 1], nullptr, 10);
    else {
      std::fprintf(stderr, "usage: memory_fuzz [--seed N] [--seconds T] [--steps N] [--runs N]\n");
      return 1;
    }
  }
  std::signal(SIGABRT, say_seed);
  const auto begin = std::chrono::steady_clock::now();
  uint64_t done = 0;
  for (; done < runs; ++done) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    if (runs == UINT64_MAX && spent.count() > seconds) break;
    current_seed = seed + done;
    shardsim::Choices choices(current_seed);
    shardsim::run(choices, steps);
  }
  std::printf("memory_fuzz: %llu runs of %d steps from seed %llu, no failure\n",
              static_cast<unsigned long long>(done), steps, static_cast<unsigned long long>(seed));
  return 0;
}
#endif
