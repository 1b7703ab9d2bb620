// What the caching allocator looked like (memory level blocks): the free blocks at the highest
// reserved bytes and who left them, and the whole history as a PyTorch memory snapshot, which
// https://pytorch.org/memory_viz opens (form: spec/ecosystem section 1; pickle protocol 2).
// A schedule is played once more for either, so that a plain run keeps nothing.
// Worked example: a 20 MiB segment in which a 12 MiB tensor lives and 8 MiB were freed by a product's
// workspace: one free block of 8 MiB, left by "workspace of layers.3".
#pragma once

#include <string>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/report/step_report.h"
#include "sim/study/simulate.h"

namespace shardsim {

struct FreeAtPeak {
  Bytes allocated = 0, active = 0, reserved = 0;
  Bytes free_in_use = 0;              // in segments that also hold tensors
  Bytes free_whole = 0;               // whole segments
  std::vector<FreeBlockRow> largest;  // first, at most `top`
};

// Where reserved bytes first reached their peak. The scenario's memory level is blocks.
FreeAtPeak free_at_peak(const Scenario& scenario, const Simulation& simulation, size_t top);

// The pickle of the history of the run and of what is there at its end.
std::string memory_snapshot(const Scenario& scenario, const Simulation& simulation);

}  // namespace shardsim
