// What a collective takes on machines, where that differs from what NCCL's tuner expects: the tuner's
// numbers choose, and are optimistic (its LL128 and Simple steps over nodes up to 2.3 times).
//
//   L    latency, us        B    the time of moving bytes at the tuner's bandwidth
//   one node     t = L + B / e
//     LL                  L = 40                           e = 1.2
//     LL128               L = 39 + the tuner's             e = .80
//     Simple, ring        L = 43; all-reduce 39 + 2.6 x the tuner's; B at the link's bus bandwidth
//     NVLS                L = 60, 85 on Blackwell          e = 1
//   between nodes  t = (L^1.3 + B^1.3)^(1/1.3): moving hides part of the latency
//     ring  L = base + inner steps h + steps between nodes x
//           LL      base 6.6   h 1.8                           x 2.7 + NIC
//           LL128   base 14    h 1.9 + .94 (ranks a node - 1)  x 4 + .6 NIC; Ampere .3 for .94
//           Simple  base 8.4   h 1.8 (ranks a node - 1)        x 20 + 2 NIC
//                              both up to 8 of them; Simple in racks the tuner's 3.4
//     tree          the tuner's x 1.8            PAT the tuner's
//     NVLS tree     the tuner's, and until its pipeline is full 2 rounds a level up and a level down:
//                   in a round every channel moves one chunk of every head, at the speed of B
//     and a ring moves no more than the link's bus bandwidth, in LL128 .92 of its channels' rate: the
//     tuner's limit of a channel does not show. An NVLS tree moves no more than 8 heads of the tuner's:
//     every GPU's blocks copy the whole buffer, however many heads a rack has (CoreWeave's rack of 72
//     reaches the bus bandwidth of 8 GPUs)
//
// Fitted on published nccl-tests rows (analysis/validation/collectives.yaml names them): the node's on
// Azure ND A100 v4 and 8 H100 of xxrjun/nccl-tests-cluster; h, x, 1.3 and the 2 rounds on its 10
// nodes with 8 and with 1 GPU each, AWS p5 gathers and two DGX A100 (trees, Ampere's h). Read off one
// system each: h of Ampere, 1.8 of the trees, 85. NIC is what EFA shows in trees, 35 us,
// of which rings of LL128 show .6: their h is that of the 10 nodes, whose NICs show none.
// Rows of other systems and GPU counts, kept out: `shardsim validate` on such a table.
//
// Worked number: a gather of 1 GiB over 10 nodes of 8 H100 is Ring/Simple: L = 8.4 + 70 x 12.6 + 9 x
// 20 = 1070, B = 3.33 ms, t = 3.91 ms (measured 4.00). Their all-reduce of 64 MiB is an NVLS tree over
// 3 levels: rounds of 16 channels x 8 heads x 64 KiB take 46 us, L = 150 + 2 x 6 x 46 = 700, B = 367, t
// = 926 us (measured 940).
#pragma once

#include "sim/cost/nccl_tuner.h"

namespace shardsim {

struct CollectiveTime {
  double us = 0;
  double moving_us = 0;  // of it, bytes alone at full speed
};

// What the machine's links show.
struct MeasuredLinks {
  double nic_us = 0;                  // latency of a NIC
  double ring_gbps = 0;               // what a ring moves at most; 0: no limit
  double net_gbps = 0;                // what the NICs of a node's ranks move; 0: as NCCL has it
  double latency = 1, bandwidth = 1;  // calibrated factors
};

CollectiveTime measured_time(const NcclComm& comm, const NcclOp& op, const NcclChoice& choice,
                             const MeasuredLinks& links);

}  // namespace shardsim
