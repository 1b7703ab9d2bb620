// Ranks that are not alike, as seen by one: a step ends with the slowest.
//   scale tax      over nodes every time is 1 + t log2(N / 8) of itself: stragglers and contention of
//                  the network together, which published steps of 8 to 512 GPUs show
//   rank_sigma     static factors of ranks, exp(N(0, s)): collectives are synchronous, so what is played
//                  is the slowest of N, exp(s sqrt(2 ln N))
//   kernel_sigma   exp(N(0, s)) for each kernel of the schedule, from the seed; the same kernel of
//                  another layer that is laid out with it has the same factor
// Worked numbers: 128 ranks at t = .01125: 1.045; 1,024 ranks at s = .01: 1.0379.
#pragma once

#include <cstdint>

#include "sim/cost/cost_table.h"
#include "sim/plan/scenario.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

double scale_tax(double per_doubling, int64_t ranks, int nodes);
// E[max] over ranks.
double slowest_rank(double sigma, int64_t ranks);

// The factor that a scenario's steps are longer by; 1 with flat costs.
double scale_tax_of(const Scenario& scenario, const Calibration& constants);
// Multiplies the times of a table.
void add_stragglers(const Scenario& scenario, const Calibration& constants,
                    const Schedule& schedule, CostTable& table);

}  // namespace shardsim
