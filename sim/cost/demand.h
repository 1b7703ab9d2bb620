// What a work asks of the GPU's resources while it runs at full speed, on average over its time.
//   memory-bound kernel, copy   all of the memory (HBM), but for its fixed time
//   product, attention          its bytes / (time x memory rate); slowed where collectives hold SMs
//   collective                  of the memory, h bytes a byte on the wire: h = 2 for gathers and
//                               broadcasts, 3 where it reduces (NCCL's HBM traffic is 2-3 times its
//                               wire rate, NVIDIA/nccl#1428); of the links what sim/cost/collectives.h
//                               says. A host link has two directions, a NIC uses both.
//   copy from or to the host    its direction of the host link, and its bytes in memory
// Worked number: an all-reduce at 230 GB/s of bus on an A100 of 2,039 GB/s asks for 3 x 230 / 2039 =
// .338 of HBM.
#pragma once

#include "sim/cluster/calibration.h"
#include "sim/cluster/cluster.h"
#include "sim/cost/collectives.h"
#include "sim/cost/cost_table.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

Demand kernel_demand(const Gpu& gpu, const Calibration& constants, const Work& work, double us);
Demand collective_demand(const Gpu& gpu, const Comm& comm, const Work& work,
                         const CollectiveCost& cost);

}  // namespace shardsim
