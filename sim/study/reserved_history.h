// What the caching allocator reserves over a run, for the page of a run.
// Worked example: the first buffer of 1 MB makes a segment of 2 MiB: the list begins with 2,097,152.
#pragma once

#include <vector>

#include "sim/study/simulate.h"

namespace shardsim {

// Plays the run again. Reserved bytes behind each allocation and in front of each free of a buffer that
// is not empty, in order. Empty at memory level live.
std::vector<Bytes> reserved_history(const Scenario& scenario, const Simulation& simulation);

}  // namespace shardsim
