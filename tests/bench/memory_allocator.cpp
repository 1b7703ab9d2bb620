// Allocations and frees a second on the caching allocator, on the histories of two recorded programs:
// Llama-3-8B under FSDP2 (no recorded streams), and FSDP1 without its limiter (record_stream). Each
// pass begins with a new allocator, as each simulated scenario does.
// items_per_second counts allocations and frees.
#include <benchmark/benchmark.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/memory/caching_allocator.h"

namespace shardsim {
namespace {

// An event is the index of the operation at which it has passed.
class OpClock final : public DeviceClock {
 public:
  int64_t record(StreamId) override { return passes; }
  bool done(int64_t event) override { return event <= now; }
  void wait(int64_t) override {}
  void wait_stream(StreamId) override {}
  int64_t now = 0, passes = 0;
};

struct Op {
  Bytes bytes = 0;  // -1: a free
  uint32_t slot = 0;
  StreamId stream = 0;
  int64_t passes = -1;  // of a free that waits for an event: when that passes
};

// A *.ops.json of tests/recordings/allocator.
std::vector<Op> read_ops(const std::string& name) {
  std::ifstream in(std::string(SHARDSIM_SOURCE_DIR) + "/tests/recordings/allocator/traces/" + name);
  const auto j = nlohmann::json::parse(in);
  std::vector<Op> ops;
  std::vector<uint32_t> slot_of, spare;
  for (const auto& x : j.at("ops")) {
    const auto code = x.get<int64_t>();
    Op op;
    if (code >= 0) {
      const auto& kind = j.at("kinds")[static_cast<size_t>(code)];
      op.bytes = kind[0].get<Bytes>();
      op.stream = kind[1].get<StreamId>();
      if (spare.empty()) spare.push_back(static_cast<uint32_t>(slot_of.size()));
      op.slot = spare.back();
      spare.pop_back();
      slot_of.push_back(op.slot);
    } else {
      op.bytes = -1;
      op.slot = slot_of[static_cast<size_t>(-1 - code)];
      spare.push_back(op.slot);
    }
    ops.push_back(op);
  }
  for (const auto& wait : j.at("waits")) ops[wait[0].get<size_t>()].passes = wait[1].get<int64_t>();
  return ops;
}

void play(benchmark::State& state, const std::string& name) {
  const std::vector<Op> ops = read_ops(name);
  const AllocatorSettings settings;
  Bytes reserved = 0;
  for (auto _ : state) {
    OpClock clock;
    CachingAllocator allocator(settings, DeviceMemory{}, clock);
    for (const Op& op : ops) {
      ++clock.now;
      if (op.bytes >= 0) {
        allocator.alloc(op.slot, op.bytes, op.stream);
        continue;
      }
      if (op.passes >= 0) {
        clock.passes = op.passes;
        allocator.record_stream(op.slot, kAllocatorStreams - 1);
      }
      allocator.free(op.slot);
    }
    reserved = allocator.statistics().peak(AllocatorStatistics::reserved_bytes);
    benchmark::DoNotOptimize(reserved);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(ops.size()));
  state.counters["reserved_peak"] = static_cast<double>(reserved);
}

void BM_AllocatorLlama3_8b(benchmark::State& state) {
  play(state, "llama3_8b_8gpu_ac_none_2k.ops.json");
}
BENCHMARK(BM_AllocatorLlama3_8b);

void BM_AllocatorRecordStream(benchmark::State& state) {
  play(state, "full_shard_no_limiter.ops.json");
}
BENCHMARK(BM_AllocatorRecordStream);

}  // namespace
}  // namespace shardsim
