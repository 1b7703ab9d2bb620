// What torch.cuda.memory_stats counts (DeviceStats, c10/core/CachingDeviceAllocator.h): nine numbers,
// each with its current value, its peak, and what was added and taken in all, for the whole allocator
// and for its two pools; and scalars. PyTorch's key of active_bytes.total().peak is
// "active_bytes.all.peak".
// Worked number: alloc 1 MiB + 1 B in a new process: allocated_bytes 1,049,088 (rounded to 512),
// requested_bytes 1,048,577, reserved_bytes 20,971,520, inactive_split_bytes 19,922,432.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "sim/base/units.h"

namespace shardsim {

struct AllocatorStat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};

class AllocatorStatistics {
 public:
  enum Number : uint8_t {
    allocation,  // blocks handed out
    allocated_bytes,
    active,  // the same, and blocks freed but waiting for events
    active_bytes,
    requested_bytes,  // of active blocks, as asked for
    inactive_split,   // free parts of split segments
    inactive_split_bytes,
    segment,         // cudaMalloc'ed
    reserved_bytes,  // segments and mapped pages
    count_,
  };
  static constexpr std::array<std::string_view, count_> kNames = {
      "allocation",     "allocated_bytes",      "active",  "active_bytes",  "requested_bytes",
      "inactive_split", "inactive_split_bytes", "segment", "reserved_bytes"};

  AllocatorStat total(Number n) const {
    AllocatorStat s = pool(n, 0);
    const AllocatorStat large = pool(n, 1);
    s.current += large.current;
    s.allocated += large.allocated;
    s.freed += large.freed;
    s.peak = peak_[n];
    return s;
  }
  // pool 0 is the small one.
  AllocatorStat pool(Number n, int pool) const {
    const Cell& c = cells_[n][pool];
    return {c.current, c.peak, c.added, c.added - c.current + c.current_at_reset};
  }
  int64_t current(Number n) const { return cells_[n][0].current + cells_[n][1].current; }
  int64_t peak(Number n) const { return peak_[n]; }

  int64_t alloc_retries = 0, ooms = 0, sync_all_streams = 0;
  int64_t device_alloc = 0, device_free = 0;
  AllocatorStat oversize_allocations, oversize_segments;

  void increase(Number n, int pool, int64_t by) {
    Cell& c = cells_[n][pool];
    c.current += by;
    c.added += by;
    c.peak = std::max(c.peak, c.current);
    peak_[n] = std::max(peak_[n], c.current + cells_[n][1 - pool].current);
  }
  void decrease(Number n, int pool, int64_t by) { cells_[n][pool].current -= by; }
  static void increase(AllocatorStat& s, int64_t by) {
    s.current += by;
    s.allocated += by;
    s.peak = std::max(s.peak, s.current);
  }
  static void decrease(AllocatorStat& s, int64_t by) {
    s.current -= by;
    s.freed += by;
  }

  void reset_peaks() {
    for (int n = 0; n < count_; ++n) {
      for (Cell& c : cells_[n]) c.peak = c.current;
      peak_[n] = cells_[n][0].current + cells_[n][1].current;
    }
    oversize_allocations.peak = oversize_allocations.current;
    oversize_segments.peak = oversize_segments.current;
  }
  // reset_accumulated_memory_stats: the sums and the scalars begin anew.
  void reset_accumulated() {
    for (auto& pair : cells_)
      for (Cell& c : pair) {
        c.added = 0;
        c.current_at_reset = c.current;
      }
    alloc_retries = ooms = sync_all_streams = device_alloc = device_free = 0;
    oversize_allocations.allocated = oversize_allocations.freed = 0;
    oversize_segments.allocated = oversize_segments.freed = 0;
  }

 private:
  struct Cell {
    int64_t current = 0, peak = 0, added = 0, current_at_reset = 0;
  };
  std::array<std::array<Cell, 2>, count_> cells_{};
  std::array<int64_t, count_> peak_{};  // of the two pools' sum
};

}  // namespace shardsim
