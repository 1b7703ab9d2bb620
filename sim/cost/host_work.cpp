#include "sim/cost/host_work.h"

#include <algorithm>

namespace shardsim {
namespace {

constexpr int kBlackwell = 100, kHopper = 90, kAmpere = 80;
constexpr int kThreadsAlone = 16;

double memory_of_a_gpu(int compute_capability) {
  if (compute_capability >= kBlackwell) return 89.6;
  if (compute_capability >= kHopper) return 76.8;
  if (compute_capability >= kAmpere) return 51.2;
  return 19.2;
}

}  // namespace

bool offloads(const Training& t) {
  if (t.strategy == Strategy::fsdp1) return t.fsdp1.cpu_offload;
  return t.strategy == Strategy::fsdp2 && t.fsdp2.cpu_offload != CpuOffload::none;
}

HostRates host_rates(const Cluster& c) {
  HostRates r;
  r.memory_gbps = c.host.memory_gbps > 0 ? c.host.memory_gbps / c.gpus_per_node
                                         : memory_of_a_gpu(c.gpu.compute_capability);
  r.threads = c.host.threads > 0 ? c.host.threads : c.gpus_per_node > 1 ? 1 : kThreadsAlone;
  return r;
}

double host_work_us(const HostRates& host, const Calibration& c, const HostWork& w) {
  constexpr double kPerUs = 1e3;  // of a rate in 1e9 a second
  const double cores =
      static_cast<double>(w.accesses) / (kPerUs * c.host_accesses_per_ns * host.threads);
  const double memory =
      static_cast<double>(w.bytes) / (kPerUs * c.host_memory_fraction * host.memory_gbps);
  const double pages = std::min(host.threads * c.host_page_gbps, c.host_page_most_gbps);
  return std::max(cores, memory) + static_cast<double>(w.fresh) / (kPerUs * pages) +
         w.operators * c.host_operator_us;
}

}  // namespace shardsim
