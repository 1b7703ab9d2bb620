// The section `training.fsdp1`: the arguments of torch.distributed.fsdp.FullyShardedDataParallel and
// of what a training program calls on it, by PyTorch's names in lower case.
#pragma once

#include "sim/config/reader.h"
#include "sim/plan/scenario.h"

namespace shardsim {

void read_fsdp1(const Value& value, Fsdp1Options& options);

}  // namespace shardsim
