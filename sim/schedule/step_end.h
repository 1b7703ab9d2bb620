// Where a schedule ends after a step, and whether the step that is laid out behind it issues the same
// again.
//
// Worked example: one step records e4 behind a launch and waits for it. The next, which records e9 behind
// the same launch and waits for e9, repeats it; with a wait for e4 it does not.
#pragma once

#include <cstddef>

#include "sim/schedule/schedule.h"

namespace shardsim {

struct StepEnd {
  size_t code = 0, segments = 0, tensors = 0, marks = 0, works = 0, host_works = 0;
};

StepEnd end_of(const Schedule& schedule);

// Everything behind `b` issues what is between `a` and `b`: the same calls on the same streams in the
// same order, with the same works and buffers, and waits for the events of the same calls. False too
// where a step waits for an event of an earlier one, or where the host waits for the device.
bool repeats(const Schedule& schedule, const StepEnd& a, const StepEnd& b);

// Takes back what was laid out behind `end`, with new code but without new works.
void cut(Schedule& schedule, const StepEnd& end);

}  // namespace shardsim
