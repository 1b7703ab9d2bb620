// Ranks that are not alike, as seen by one: a step ends with the slowest.
//   scale tax      over nodes every time is 1 + t log2(N / 8) of itself: stragglers and contention of
//                  the network together, which published steps of 8 to 512 GPUs show
//   rank_sigma     static factors of ranks, exp(N(0, s)): collectives are synchronous, so what is played
//                  is the slowest of N, exp(s sqrt(2 ln N))
//   kernel_sigma   exp(N(0, s)) for each kernel and rank, from the seed; the same kernel of another
//                  layer that is laid out with it has the same factor. A collective waits for the slowest
//                  of its ranks, so what is played between two collectives is the slowest of N: one
//                  rank's kernels are drawn, and their sum is moved to where the largest of N such sums
//                  lies (the same quantile), each kernel by its part of the variance. What ranks make good
//                  over several stretches, as prefetching lets them, is not counted: an upper estimate
// Worked numbers: 128 ranks at t = .01125: 1.045; 1,024 ranks at s = .01: 1.0379; one kernel of median
// luck between collectives of 64 ranks is at 2.30 deviations: exp(.05 x 2.30) = 1.122 of itself.
#pragma once

#include <cstdint>

#include "sim/cost/cost_table.h"
#include "sim/plan/scenario.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

double scale_tax(double per_doubling, int64_t ranks, int nodes);
// E[max] over ranks.
double slowest_rank(double sigma, int64_t ranks);
// The largest of so many normal numbers, at the quantile that `one` has among single ones.
double largest_normal(double one, int64_t of);

// The factor that a scenario's steps are longer by; 1 with flat costs.
double scale_tax_of(const Scenario& scenario, const Calibration& constants);
// Multiplies the times of a table.
void add_stragglers(const Scenario& scenario, const Calibration& constants,
                    const Schedule& schedule, CostTable& table);

}  // namespace shardsim
