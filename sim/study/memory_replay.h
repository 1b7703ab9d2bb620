// A recorded history of allocations played on the caching allocator under chosen settings: what would
// have been reserved, and where the reserved bytes that nobody used were. Allocs, frees and the
// moment at which a freed block was free again come from the trace; placement, segments and pages are
// the allocator's own.
//
// With the process's own settings every buffer must land where it was, and segments come and go where
// they did: TraceCheck counts both. Two things are read out of the rows: frees that were not completed
// at once waited for an event (which passed at their free_completed), and segments that go without
// need of room were given back by empty_cache.
//
// A recording has no offsets in segment -1, the 2 MiB that were there before the history, so which of
// two buffers of one size was freed there is not known. First the later one is taken, and -1 is a
// segment like any other. Where that leads elsewhere, the segment's buffers are input instead: they
// are not asked of the allocator, which then never uses that segment; all others are checked.
//
// Worked example: two buffers of 8 MiB allocated, both freed, 16 MiB allocated: 20 MiB reserved; under
// expandable_segments:True the same.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/memory/caching_allocator.h"
#include "sim/study/memory_trace.h"

namespace shardsim {

struct TraceCheck {
  int64_t allocs = 0, misplaced = 0;
  int64_t given = 0;                             // of allocs: in segment -1, taken from the rows
  int64_t segments = 0, segments_elsewhere = 0;  // events of segments and pages
  std::optional<Bytes> recorded_reserved_peak;
  std::vector<std::string> differences;  // the first few
  bool equal(Bytes reserved_peak) const {
    return misplaced == 0 && segments_elsewhere == 0 &&
           recorded_reserved_peak.value_or(reserved_peak) == reserved_peak;
  }
};

struct FreeBlockReport {
  Bytes size = 0;
  int64_t segment = 0;  // as the rows count them: -1 was there before the history
  Bytes offset = 0;
  StreamId stream = 0;
  bool small = false, expandable = false;
  bool whole = false;             // a whole segment, which empty_cache would give back
  uint32_t left_by = UINT32_MAX;  // the buffer that was here last; none: never used
  uint32_t held_by = UINT32_MAX;  // a buffer still in the same segment, which keeps it
};

struct MemoryReplay {
  Bytes allocated_peak = 0, active_peak = 0, requested_peak = 0, reserved_peak = 0;
  uint32_t peak_row = 0;                      // the row at which reserved reached its peak first
  Bytes peak_allocated = 0, peak_active = 0;  // then
  Bytes peak_free_split = 0,
        peak_free_whole = 0;  // of the free bytes then: in segments in use, or not
  int64_t device_allocs = 0, device_frees = 0, retries = 0;
  std::optional<uint32_t> oom_row;
  OutOfMemory oom;
  std::vector<FreeBlockReport> free_blocks;  // at the peak, the largest first
  std::optional<TraceCheck> check;
};

struct MemoryReplayOptions {
  AllocatorSettings settings;
  DeviceMemory device;
  bool check = false;  // against the trace's own placement
  bool given = false;  // buffers of segment -1 are input
  size_t top = 10;     // free blocks to report
};

// Checks, if at all, first without and, where that fails, with `given`.
MemoryReplay replay_memory(const MemoryTrace& trace, const MemoryReplayOptions& options);

}  // namespace shardsim
