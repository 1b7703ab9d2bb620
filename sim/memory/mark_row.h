// The allocator's figures at a mark of a trace, whoever plays the schedule.
#pragma once

#include "sim/memory/caching_allocator.h"
#include "sim/schedule/trace.h"

namespace shardsim {

inline void fill(MarkRow& row, const CachingAllocator& allocator) {
  using S = AllocatorStatistics;
  const S& s = allocator.statistics();
  row.allocated = s.current(S::allocated_bytes);
  row.allocated_peak = s.peak(S::allocated_bytes);
  row.active = s.current(S::active_bytes);
  row.active_peak = s.peak(S::active_bytes);
  row.reserved = s.current(S::reserved_bytes);
  row.reserved_peak = s.peak(S::reserved_bytes);
}

}  // namespace shardsim
