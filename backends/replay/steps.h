// The timed steps of a replay as one: for each launch of a step the median, over the steps, of when it
// began after its step did and of how long it took.
// Worked number: three steps in which a launch takes 10, 30 and 12 us: 12 us.
#pragma once

#include <optional>
#include <string>

#include "backends/replay/player.h"

namespace shardsim {

struct TimedSteps {
  Trace trace;  // up to the end of the last step that was timed, whose launches have their medians
  uint32_t first = 0, launches = 0;  // of that step
  int steps = 0;                     // whole steps that were timed
  Time step_time;                    // median of the steps' lengths, last end less first start
  Time shortest, longest;
  std::string note;  // why steps were left out; empty: none
};

// Steps from `first` on (0: the first of the schedule) whose launches all ended. Throws Error where
// there is none, or where two steps do not launch the same works in the same order.
TimedSteps median_of_steps(const Schedule& schedule, const Replay& replay, int first);

}  // namespace shardsim
