// The section `training.zero`, for strategies zero1, zero2 and zero3: DeepSpeed's keys of
// zero_optimization by their own names, and gradient_clipping, which stands beside it there.
#pragma once

#include "sim/config/reader.h"
#include "sim/plan/scenario.h"

namespace shardsim {

// zero.implementation is torch: ZeroRedundancyOptimizer over DDP, whose section this then is.
bool asks_for_torch(const Map& training);
void read_torch_zero(const Map& training, Training& t);

// The section and what DeepSpeed makes of the others. `training` is the whole section, all its other
// keys read.
void read_zero(const Map& training, Training& t);

}  // namespace shardsim
