// What each rank of a replay took in a step, by kind of op, and one table of all ranks: a rank that is
// slower than the others shows in its kernels, and in the others' collectives, which wait for it.
// Worked number: gathers of 10, 12, 11 and 30 us on four ranks: median 12, least 10, most 30 us.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backends/replay/steps.h"

namespace shardsim {

struct RankTimes {
  struct Ops {
    int64_t count = 0;
    Time time;  // the medians of its launches, added up
  };
  Time step;
  std::map<WorkKind, Ops> by_kind;
};

RankTimes rank_times(const Schedule& schedule, const TimedSteps& steps);

// A line for another process, and back.
std::string line_of(const RankTimes& times);
RankTimes rank_times_of(const std::string& line);

// Empty where there is only one rank.
std::string rank_times_table(const std::vector<RankTimes>& ranks);

}  // namespace shardsim
