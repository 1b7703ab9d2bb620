// What slowed the compute stream: how much longer its works took than each alone, by what ran beside
// them. A work's delay is shared out over what overlapped it, by the time of overlap.
// Worked number: a product of 10 us that took 16 with a gather beside it for 12 of them and a copy for
// 4: 4.5 us by the gather, 1.5 us by the copy.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/report/timeline.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace shardsim {

struct Interference {
  WorkKind kind = WorkKind::AllGather;
  GroupId group;
  Time time;
};

// Of the step, the longest first. They add up to StepTimes::slowed.
std::vector<Interference> interference(const Schedule& schedule, const Trace& trace,
                                       const StepTimes& step);

}  // namespace shardsim
