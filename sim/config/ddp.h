// The section `training.ddp`: DistributedDataParallel's arguments by their own names, the hook that
// register_comm_hook is called with, and DDP_SET_LAST_BUCKET_CAP.
#pragma once

#include "sim/config/reader.h"
#include "sim/plan/scenario.h"

namespace shardsim {

void read_ddp(const Value& value, const Training& training, DdpOptions& ddp);

}  // namespace shardsim
