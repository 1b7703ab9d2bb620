// Roofline prices of a schedule: kernels by sim/cost/kernels.h, collectives by
// sim/cost/collectives.h. One call prices a schedule's few hundred works; nothing is allocated but
// the table.
// Worked number: the gather of a Llama-3-8B block (436,224,000 bytes) over 8 H100 is 1,113.2 us.
#pragma once

#include "sim/cluster/calibration.h"
#include "sim/cluster/cluster.h"
#include "sim/cluster/collective_model.h"
#include "sim/cost/cost_table.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

// sharing: with what each work asks for (sim/cost/demand.h), so that the machine shares it.
CostTable roofline_costs(const Cluster& cluster, const Calibration& calibration,
                         const CollectiveModel& collectives, const Schedule& schedule,
                         bool sharing);

}  // namespace shardsim
