// Scripts of allocations played on the caching allocator (the form is described in the README of the
// allocator recordings): allocs, frees, recorded streams, work on streams. Time is virtual: the host
// takes none, except where it synchronizes or a step says so; a kernel begins when its stream's
// earlier work is done, and not before the host's now.
// Worked example: work of 500 us on stream 1, a buffer recorded there and freed, advance 400 us: the
// buffer is still active at the next alloc; after 100 us more it is free.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/units.h"
#include "sim/memory/caching_allocator.h"

namespace shardsim {

// Host and streams of a script.
class ScriptClock final : public DeviceClock {
 public:
  int64_t record(StreamId stream) override;
  bool done(int64_t event) override { return event <= now_.ps; }
  void wait(int64_t event) override { now_ = std::max(now_, Time{event}); }
  void wait_stream(StreamId stream) override { now_ = std::max(now_, ready(stream)); }

  void work(StreamId stream, Time duration);
  void advance(Time duration) { now_ += duration; }
  void synchronize();

 private:
  Time& ready(StreamId stream) { return ready_.at(stream); }
  Time now_;
  std::array<Time, kAllocatorStreams> ready_{};
};

// The statistics after a step, in the recordings' order: allocated, active, reserved, inactive split
// and requested bytes; allocations, active blocks, segments, inactive split blocks; peaks of
// allocated, active and reserved bytes; retries, ooms, device allocs, device frees, syncs.
using StatisticsRow = std::array<int64_t, 17>;
StatisticsRow statistics_row(const AllocatorStatistics& statistics);

struct ScriptSegment {
  uint32_t segment = 0;
  Bytes offset = 0, bytes = 0;
  int stream = 0;
  bool small = false;
  struct Block {
    Bytes size = 0, requested = 0;
    char state = 'f';  // allocated, pending, free
  };
  std::vector<Block> blocks;
};

struct ScriptRun {
  std::vector<StatisticsRow> steps;
  std::vector<ScriptSegment> final;                 // runs of mapped blocks
  std::vector<std::pair<size_t, std::string>> oom;  // step, message
};

// What this build has no way to express: an option or a step that it does not know.
class UnknownStep : public Error {
 public:
  using Error::Error;
};

// Throws UnknownStep, or Error where a step makes no sense.
ScriptRun play_allocator_script(const nlohmann::json& script, const AllocatorSettings& settings,
                                const DeviceMemory& device);

// The whole file: `script`, `device_total` and `environment` are read; `steps` and `final` are
// compared, in all 17 columns and block by block. Throws Error where it is malformed.
struct AllocatorConformance {
  std::string skipped;  // an option or step that cannot be expressed
  std::optional<bool> allocator;
  std::optional<double> allocated_error, peak_error, active_error, reserved_error;
  std::vector<std::string> differences;
  bool oom_texts_equal = true;  // not part of the check
};
AllocatorConformance conform_allocator_script(const nlohmann::json& file);

}  // namespace shardsim
