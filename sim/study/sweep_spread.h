// How far the places of an axis are apart while all other axes are held: what an axis is worth on its
// own may show at some places of the others only.
//
// Worked example: sharding over all nodes or in each, at 1 and 96 GB/s: 9.58 and 6.10 s, 2.65 and
// 2.66 s: .57 and .003 apart: median .57 (of two the larger), most .57.
#pragma once

#include "sim/study/sweep_query.h"

namespace shardsim {

struct HeldSpread {
  double median = 0, most = 0;  // fractions, of the objective: worst place over best, less 1
};

// Of what counts; 0 where no two points differ in this axis alone.
HeldSpread held_spread(const StoredSweep& sweep, const Question& question, size_t axis);

// The fewest and the most tokens a step of what counts, over all GPUs: where they differ, step times
// are of different work.
struct TokensPerStep {
  double fewest = 0, most = 0;
};
TokensPerStep tokens_per_step(const StoredSweep& sweep, const Question& question);

}  // namespace shardsim
