// Ranks whose micro-batches are not alike: a step whose passes take longer on some ranks, as with packed
// sequences. Of each kind of rank the compute of pass i is multiplied by its i-th factor, repeating; a
// collective that several kinds take part in starts with the last of them. Which do: those of replicas
// and of all ranks; a shard group that is not the world is of one kind, its replica's.
//   start_r(v) = max over edges u -> v of end_r(u) + lag     the schedule's graph, by kind r
//   start(c)   = max over r of start_r(c)                    c such a collective
// Durations are those of a run of ranks that are alike; what is outside of the passes is not multiplied.
// Worked number: 4 passes of 10 s, factors 1, 0.5 and 0.5, 1, collectives free: 40 s where gradients are
// reduced in each pass, 30 s where they are in the last alone.
#pragma once

#include <vector>

#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace shardsim {

struct UnevenStep {
  Time alike, uneven;         // length of the last step
  std::vector<Time> waiting;  // in it by kind: its collectives for the slowest
  int points = 0;             // collectives of the step that wait for all kinds
};

UnevenStep uneven_step(const Schedule& schedule, const Trace& trace, int64_t world,
                       const std::vector<std::vector<double>>& kinds);

}  // namespace shardsim
