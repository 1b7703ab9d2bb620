// Live bytes over time by category, on two clocks.
//
//   host     PyTorch's allocator gives and takes when the host asks. A change stands at the end of the
//            host's last call that the trace has the time of: a launch, a mark, its own work; behind a
//            wait of the host at the next of them.
//   device   the host is ahead of the device, at times by whole steps. A change stands at the start of
//            the next launch on the compute stream: where that stream is in the program.
// Changes between two of the host's calls are one point, but where memory falls after it rose the high
// point is one of its own, so the peak is in the curve. Sizes are rounded up to 512 bytes, as in
// Trace::peak.
// Worked example: behind a launch that the host is done with at 5 us, in front of one that starts at
// 40 us, 1,024 B of activations and 512 B of workspace come and the workspace goes: two points at 5 us
// on the host's clock, 40 us on the device's, of 1,536 and 1,024 B.
#pragma once

#include <span>
#include <vector>

#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace shardsim {

struct MemoryChange {
  Category category = Category::activations;
  Bytes bytes = 0;
};

struct MemoryCurve {
  std::vector<Time> host, device;  // by point
  std::vector<uint32_t> first;     // by point: its first change; one more than points
  std::vector<MemoryChange> changes;
  std::vector<Bytes> reserved;  // by point; empty: not known
};

// `launch`: what each work costs the host to launch, by WorkId; empty: nothing. `reserved`: of the
// allocator behind each allocation and in front of each free of a buffer that is not empty, in order;
// empty: not known.
MemoryCurve memory_curve(const Schedule& schedule, const Trace& trace, std::span<const Time> launch,
                         std::span<const Bytes> reserved);

}  // namespace shardsim
