#include "sim/cost/flat.h"

namespace shardsim {

Time flat_cost(const FlatCost& cost, const Work& work) {
  const auto bytes = static_cast<double>(work.bytes);
  switch (work.kind) {
    case WorkKind::Kernel: return Time::from_us(cost.kernel_us);
    case WorkKind::Gemm: {
      // A product of doubles: 10^5 x 10^5 x 10^5 x 10^5 would not fit an int64.
      const double flops = 2.0 * static_cast<double>(work.m) * static_cast<double>(work.n) *
                           static_cast<double>(work.k) * static_cast<double>(work.batch);
      return Time::from_us(3.0 + flops / (cost.gemm_tflops * 1e6));
    }
    case WorkKind::AllGather:
    case WorkKind::ReduceScatter:
    case WorkKind::AllReduce:
    case WorkKind::Broadcast:
    case WorkKind::Reduce: return Time::from_us(20.0 + bytes / (cost.bus_gbps * 1e3));
    case WorkKind::CopyH2D:
    case WorkKind::CopyD2H: return Time::from_us(2.0 + bytes / 25e3);
    case WorkKind::CopyD2D: return Time::from_us(2.0 + bytes / 1.3e6);
    case WorkKind::Memset: return Time::from_us(2.0 + bytes / 2.6e6);
  }
  return {};
}

CostTable flat_costs(const FlatCost& cost, const Schedule& schedule) {
  CostTable table;
  table.work.reserve(schedule.works.size());
  for (const Work& w : schedule.works) table.work.push_back(flat_cost(cost, w));
  const Time call = Time::from_us(cost.host_us);
  table.host = HostCosts::every(call);
  table.launch.assign(schedule.works.size(), call);
  table.host_work.assign(schedule.host_works.size(), Time{});
  return table;
}

}  // namespace shardsim
