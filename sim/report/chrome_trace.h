// One rank's run as a Chrome trace in the form that PyTorch's profiler (Kineto) writes: it opens in
// Perfetto and chrome://tracing, and HolisticTraceAnalysis reads it.
//
// Form, as in Kineto's output_json.cpp, and the rules of HTA that it keeps:
//   - distributedInfo before traceEvents; a space after "rank": (HTA finds the rank by a regex)
//   - N steps have N + 1 annotations ProfilerStep#k: HTA drops what begins in the last one
//   - each kernel, copy and memset has exactly one launch of the same correlation, and no launch is
//     the first event; s and f arrows (ac2g) join the two
//   - device streams are numbered from 1: compute is 7, stream i > 0 is 12 + 4 i
//   - collectives are named as NCCL's kernels, with Kineto's arguments (message elements, group)
//   - times are microseconds with three decimals, whole nanoseconds: rounded half up
// Host calls stand where the trace says they were issued and are as long as they cost the host; records and waits
// between two launches follow each other from the first on. FSDP's scopes (FSDP::all_gather (name))
// span the launches of a group's gather, copy-out and reduction that follow one another.
// Waits of streams (cuda_sync) are marks of no length at the host's call.
// The counter "memory" is the live bytes of the allocator on the host's clock.
// Worked number: a kernel that starts at 1,234,567 ps is written "ts": 1.235.
#pragma once

#include <iosfwd>
#include <span>
#include <string>

#include "sim/cluster/cluster.h"
#include "sim/cost/cost_table.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace shardsim {

struct ChromeTraceOptions {
  int64_t rank = 0;
  int64_t world = 1;
  Gpu gpu;
  // Of the cost table that the trace was played with.
  HostCosts host;
  std::span<const Time> launch;  // by WorkId
  std::string trace_name = "rank0.pt.trace.json";
  std::string nccl_version = "2.28.9";
  bool counters = true;
};

// Group names by GroupId; may be empty.
void write_chrome_trace(std::ostream& out, const Schedule& schedule, const Trace& trace,
                        std::span<const std::string> groups, const ChromeTraceOptions& options);

// Ranks of a communicator that rank belongs to, as Kineto prints them: "[0, 1, 2]", and for more
// than 30 "[0, 1, ..., 63]".
std::string ranks_text(const Comm& comm, int64_t rank);

}  // namespace shardsim
