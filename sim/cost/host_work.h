// What the host's own work takes (CPU offload), by the roofline of its cores and its memory:
//   max(accesses / (threads x accesses a ns), bytes / share of memory)
//     + fresh bytes / min(threads x a thread's rate of new pages, a process's) + operators x 14.6 us
// All ranks of a node work at once, so each has an equal share of what the memory reaches. Elements
// take a core the same time in 16 and 32 bits, and memory half.
//   threads           of a rank, 1 where torchrun starts several on a node, which sets OMP_NUM_THREADS
//                     so; 16 where it starts one (assumed)
//   memory            of a node, where the cluster does not say, by GPU: 89.6 GB/s with those of 2024
//                     (DGX B200: 16 channels of DDR5-5600 for 8), 76.8 of 2022 (DGX H100, DDR5-4800),
//                     51.2 of 2020 (DGX A100, DDR4-3200), 19.2 before (DGX-1, 8 of DDR4-2400)
// Constants in sim/cluster/calibration.h.
// Worked number: AdamW's loop on 1e9 fp32 parameters of a rank on a dgx-h100, tensors below 32 MiB:
// one thread 21e9 / 4.9e9 = 4.29 s, 26 threads 84 GB / (614.4 x .40 / 8 GB/s) = 2.73 s; fused 1.43 and
// 0.91 s.
#pragma once

#include "sim/cluster/calibration.h"
#include "sim/cluster/cluster.h"
#include "sim/plan/scenario.h"
#include "sim/schedule/instruction.h"

namespace shardsim {

// Parameters, gradients and the optimizer are on the host.
bool offloads(const Training& training);

struct HostRates {
  double memory_gbps = 0;  // line rate, the share of one rank
  int threads = 1;         // of a rank
};
HostRates host_rates(const Cluster& cluster);

double host_work_us(const HostRates& host, const Calibration& constants, const HostWork& work);

}  // namespace shardsim
