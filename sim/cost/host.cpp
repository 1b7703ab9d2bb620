#include "sim/cost/host.h"

namespace shardsim {

double launch_us(const Calibration& c, const Work& w) {
  if (is_collective(w.kind)) {
    const bool wrapped = w.kind == WorkKind::AllGather || w.kind == WorkKind::ReduceScatter;
    return (wrapped ? c.host_collective_us : c.host_reduction_us) +
           c.host_parameter_operators * w.tensors * c.host_operator_us;
  }
  double operators = 1;
  if (w.kind == WorkKind::Gemm) operators = c.host_product_operators;
  if (w.kind == WorkKind::Kernel && w.kernel == KernelClass::fused)
    operators = c.host_fused_operators;
  if (w.recomputed) operators *= c.host_recompute;
  return c.host_launch_us + operators * c.host_operator_us;
}

void add_host_costs(const Calibration& constants, const Schedule& schedule, CostTable& table) {
  table.host = HostCosts::every(Time::from_us(constants.host_call_us));
  table.host[HostCall::malloc] = Time::from_us(constants.host_malloc_us);
  table.launch.clear();
  table.launch.reserve(schedule.works.size());
  for (const Work& w : schedule.works)
    table.launch.push_back(Time::from_us(launch_us(constants, w)));
}

}  // namespace shardsim
