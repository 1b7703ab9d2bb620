// Flat costs: the rule that the recordings of real PyTorch were made under, and what a person can
// check by hand. In microseconds, for a scenario's FlatCost:
//   kernel                          kernel_us
//   matrix product m x n x k        3 + 2 m n k batch / (gemm_tflops x 1e6)
//   collective of B whole bytes     20 + B / (bus_gbps x 1e3), however many ranks it has
//   copy of n bytes                 2 + n / 25e3 to or from the host, 2 + n / 1.3e6 on the device
//   memset of n bytes               2 + n / 2.6e6
//   host call, cudaMalloc           host_us
// Each is rounded to the nearest picosecond, halves up.
// Worked number: 4096 x 4096 x 4096 at 600 TFLOPS is 3 + 137,438,953,472 / 6e8 = 232.065 us; a
// gather of 64 MiB at 200 GB/s is 20 + 67,108,864 / 2e5 = 355.544 us.
#pragma once

#include "sim/cost/cost_table.h"
#include "sim/plan/scenario.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

Time flat_cost(const FlatCost& cost, const Work& work);
CostTable flat_costs(const FlatCost& cost, const Schedule& schedule);

}  // namespace shardsim
