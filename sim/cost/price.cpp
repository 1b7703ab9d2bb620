#include "sim/cost/price.h"

#include "sim/base/error.h"
#include "sim/cost/collectives.h"
#include "sim/cost/demand.h"
#include "sim/cost/host.h"
#include "sim/cost/host_work.h"
#include "sim/cost/kernels.h"

namespace shardsim {

CostTable roofline_costs(const Cluster& cluster, const Calibration& calibration,
                         const CollectiveModel& collectives, const Schedule& schedule,
                         bool sharing) {
  const GpuRates gpu = rates_of(cluster.gpu, calibration);
  CostTable table;
  table.work.reserve(schedule.works.size());
  if (sharing) table.demand.reserve(schedule.works.size());
  for (const Work& w : schedule.works) {
    if (is_collective(w.kind)) {
      SHARDSIM_ASSERT(w.comm.v < schedule.comms.size(), "a collective has a communicator");
      const Comm& comm = schedule.comms[w.comm.v];
      const CollectiveCost cost = collective_cost(cluster, calibration, comm, w, collectives);
      table.work.push_back(Time::from_us(cost.us));
      if (sharing) table.demand.push_back(collective_demand(cluster.gpu, comm, w, cost));
    } else {
      const double us = kernel_us(gpu, w);
      table.work.push_back(Time::from_us(us));
      if (sharing) table.demand.push_back(kernel_demand(cluster.gpu, calibration, w, us));
    }
  }
  table.sharing = {static_cast<double>(cluster.gpu.sms), calibration.sm_steal};
  add_host_costs(calibration, schedule, table);
  table.host_work.reserve(schedule.host_works.size());
  const HostRates host = host_rates(cluster);
  for (const HostWork& w : schedule.host_works)
    table.host_work.push_back(Time::from_us(host_work_us(host, calibration, w)));
  return table;
}

}  // namespace shardsim
