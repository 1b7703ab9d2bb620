#include "sim/cost/demand.h"

#include <algorithm>

namespace shardsim {
namespace {

constexpr double kGatherTraffic = 2, kReduceTraffic = 3;

bool reduces(WorkKind k) {
  return k == WorkKind::ReduceScatter || k == WorkKind::AllReduce || k == WorkKind::Reduce;
}

float fraction(double of, double whole) {
  return whole > 0 ? static_cast<float>(std::clamp(of / whole, 0.0, 1.0)) : 0;
}

}  // namespace

Demand kernel_demand(const Gpu& gpu, const Calibration& constants, const Work& w, double us) {
  Demand d;
  if (us <= 0) return d;
  const float memory = fraction(static_cast<double>(w.bytes), us * gpu.memory_gbps * 1e3);
  if (w.kind == WorkKind::Gemm ||
      (w.kind == WorkKind::Kernel && w.kernel == KernelClass::attention)) {
    d[Resource::hbm] = memory;
    d.sm_bound = true;
  } else if (w.kind == WorkKind::CopyH2D || w.kind == WorkKind::CopyD2H) {
    d.latency = fraction(constants.copy_fixed_us, us);
    d[Resource::hbm] = memory;
    d[w.kind == WorkKind::CopyH2D ? Resource::pcie_in : Resource::pcie_out] = 1 - d.latency;
  } else {
    d.latency = fraction(constants.kernel_fixed_us, us);
    d[Resource::hbm] = 1 - d.latency;
  }
  return d;
}

Demand collective_demand(const Gpu& gpu, const Comm& comm, const Work& w,
                         const CollectiveCost& cost) {
  Demand d;
  if (cost.us <= 0) return d;
  d.latency = fraction(cost.latency_us, cost.us);
  if (comm.size <= 1) return d;
  const double wire = ring_share(w.kind, comm.size) * static_cast<double>(w.bytes) / cost.us;
  d[Resource::hbm] =
      fraction((reduces(w.kind) ? kReduceTraffic : kGatherTraffic) * wire, gpu.memory_gbps * 1e3);
  d[Resource::nvlink] = fraction(cost.load.nvlink, 1);
  d[Resource::nic] = fraction(cost.load.nic, 1);
  d[Resource::spine] = fraction(cost.load.spine, 1);
  d[Resource::pcie_in] = d[Resource::pcie_out] = fraction(cost.load.pcie, 1);
  d.ctas = static_cast<uint16_t>(cost.ctas);
  return d;
}

}  // namespace shardsim
