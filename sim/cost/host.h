// What the host's calls cost in eager PyTorch: a launch takes the host its own time and that of the
// operator calls which lead to it (Python, dispatch, views, autograd).
//   product                launch + 8.6 operator calls
//   any other kernel, copy launch + 1
//   fused kernel           launch + 0.5 (Inductor)
//   recomputed             the same with operator calls of 3 times the cost
//   gather, scatter        466 us with the hooks, records and waits of its wrapper, and 4 operator
//                          calls for each parameter whose views are made
//   other collective       60 us
// The constants and their sources are in sim/cluster/calibration.h.
// Worked number: a product is 6 + 8.6 x 14.6 = 131.56 us, the gather of a block of 12 parameters
// 466 + 4 x 12 x 14.6 = 1,166.8 us.
#pragma once

#include "sim/cluster/calibration.h"
#include "sim/cost/cost_table.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

double launch_us(const Calibration& constants, const Work& work);
// Fills what the host's calls cost.
void add_host_costs(const Calibration& constants, const Schedule& schedule, CostTable& table);

}  // namespace shardsim
