// What the steady step does for each group of parameters, on the device: times of its kernels by phase
// and of its collectives, each launch's own (two at once count twice).
//
// A launch is the group's that it names, or else the group whose compute its segment is.
// Worked example: a gather of layers.0 [0, 30) us, a kernel of layers.0's forward [30, 50), of its
// backward [70, 110): all_gather 30, forward 20, backward 40 us.
#pragma once

#include <array>
#include <vector>

#include "sim/report/phases.h"

namespace shardsim {

struct GroupTimes {
  std::array<Time, kPhases> compute;  // by Phase
  Time all_gather, reduce;            // reduce: all collectives but gathers
  Time exposed;                       // of the collectives
  int64_t gathers = 0, reductions = 0;
  Bytes gathered = 0, reduced = 0;
};

// By GroupId; what belongs to no group is the last row.
std::vector<GroupTimes> group_times(const Schedule& schedule, const Trace& trace, int step,
                                    size_t groups);

}  // namespace shardsim
