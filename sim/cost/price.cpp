#include "sim/cost/price.h"

#include "sim/base/error.h"
#include "sim/cost/collectives.h"
#include "sim/cost/kernels.h"

namespace shardsim {

CostTable roofline_costs(const Cluster& cluster, const Calibration& calibration,
                         const CollectiveModel& collectives, const Schedule& schedule) {
  const GpuRates gpu = rates_of(cluster.gpu, calibration);
  CostTable table;
  table.work.reserve(schedule.works.size());
  for (const Work& w : schedule.works) {
    if (is_collective(w.kind)) {
      SHARDSIM_ASSERT(w.comm.v < schedule.comms.size(), "a collective has a communicator");
      const Comm& comm = schedule.comms[w.comm.v];
      table.work.push_back(
          Time::from_us(collective_cost(cluster, calibration, comm, w, collectives).us));
    } else {
      table.work.push_back(Time::from_us(kernel_us(gpu, w)));
    }
  }
  table.host_call = Time::from_us(calibration.host_call_us);
  table.device_malloc = table.host_call;
  return table;
}

}  // namespace shardsim
