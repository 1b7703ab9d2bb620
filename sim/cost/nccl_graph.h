// NCCL's graph stage: how many channels of which bandwidth its search finds on one kind of node, in
// closed form for nodes with NVSwitch (or all-to-all NVLink), PCIe nodes, and rails between nodes.
//
//   Ring, one node     speeds s of the list from the fastest down: n = min(32, floor(total/s)); the
//                      largest n s wins, the first on ties; stop at n s >= total or when the next
//                      speed is below .49 of the best. Then twice the channels: where s >= 25 and not
//                      (cc > 80 and s < 50 and n > 4), n' = min(2n, 32), s' = s/ceil(n'/n)
//   NVLS, one node     n = GPUs, (n + 1) s <= total; between them the next speeds up to 2 s
//   Tree               as the ring; between nodes its bandwidth inside them climbs the list to 2 s
//   between nodes      n = NICs that the ranks of a node reach, s the first speed <= min(PCIe, NIC)
//                      whose NVLink use n s (g-1)/g fits (without cross-NIC rings: n s)
//   channels           2n; twice that again where cc >= 90, between nodes, s > 45 and 2n < 16
// total is links x rate, NCCL's own payload rate and not the marketing one.
//
// Sources: NVIDIA/nccl v2.28.9-1 src/graph/search.cc (ncclTopoCompute, ncclTopoDupChannels,
// speedArray*), topo.h and topo.cc (NVLink, PCIe and NIC rates), connect.cc (ncclTopoPostset),
// src/transport/nvls.cc; 2.30.7 adds speeds for compute capability 100. The closed form was checked
// against logs of 24 channels on one H100 node and 16 on 3 nodes of 8 (NVIDIA/nccl issue 1453); node
// shapes other than these need NCCL's own search.
// Worked number: 8 H100 of 18 links in one node give a ring of 12 x 30 GB/s, NVLS 8 x 40 and 24
// channels; ten such nodes with a 400 Gb/s NIC a GPU 8 x 48 and 16 channels.
#pragma once

#include "sim/cluster/collective_model.h"
#include "sim/cluster/network.h"

namespace shardsim {

// What the search sees of a node: the part of it that one communicator uses.
struct NcclNode {
  int compute_capability = 90;
  int gpus = 8;             // ranks of the communicator on a node
  double nvlink_gbps = 0;   // of a GPU, all links, payload; 0: PCIe alone
  bool nvswitch = true;     // with NVLink: multicast from compute capability 90 on
  double pcie_gbps = 0;     // of a GPU's slot, as NCCL counts it
  double socket_gbps = 10;  // between the sockets of a PCIe node
  int nics = 0;             // that these ranks reach
  double nic_gbps = 0;      // each
  bool near_nics = true;    // under a PCIe switch with their GPUs
};

struct NcclGraph {
  int channels = 0;
  double bw_intra = 0, bw_inter = 0;  // GB/s of a channel
};

struct NcclGraphs {
  NcclGraph ring, tree, nvls;  // no channels: the node has no such graph
  int channels = 0;            // of the communicator, for ring and tree
  int nvls_channels = 0;
  bool nvlink = true;       // ranks of a node reach each other over it
  bool near_nics = true;    // or one node
  bool plain_tree = false;  // some rank's tree has not the balanced pattern
};

NcclGraphs nccl_graphs(const NcclNode& node, int64_t nodes, NcclVersion version);

// PCIe's line rate against NCCL's: x16 of Gen4 is 31.5 and 24 GB/s.
inline constexpr double kPcieLine = 31.5 / 24;
// Measured ring bandwidth in NVLink nodes against the total: .955, .958, .945.
inline constexpr double kRingOfNvlink = .95;

// Payload rate of one NVLink of that generation, in GB/s; 0: it has none that NCCL knows.
double nvlink_rate(int compute_capability);

}  // namespace shardsim
