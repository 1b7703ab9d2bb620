// The network between nodes as plain values: NICs of a node, each on its own rail, and leaves and
// spines above them. `nics` are joined to leaves rail by rail (NIC i of every node on leaf i of its
// pod); what leaves a pod of `pod_nodes` nodes crosses the spine, where `oversubscription` to 1 of the
// pod's line rate fits.
// Worked number: 8 NICs of 50 GB/s give a GPU of 8 a NIC share of 50 GB/s, one of a communicator with
// two ranks a node too; at oversubscription 7 it has 7.14 GB/s outside its pod.
#pragma once

#include <cstdint>

namespace shardsim {

// Who made the CPUs: NCCL counts what it costs them to post a message, and their LL rate.
enum class CpuVendor : uint8_t { intel, amd, other };

struct Network {
  int nics = 0;         // of a node; 0: not stated
  double nic_gbps = 0;  // line rate of one, 1e9 bytes a second
  CpuVendor cpu = CpuVendor::intel;
  double plugin_latency_us = 0;  // that the NICs' plugin states to NCCL, which chooses by it
  double nic_latency_us = 0;     // and what is seen of it in time
  bool plugin_tunes = false;     // it chooses too: rings where NCCL would take NVLS trees
  bool near_nics = true;         // a GPU and its NIC are under one PCIe switch: LL128 may run
  bool sharp = false;            // the network's switches reduce (CollNet)
  int pod_nodes = 0;             // nodes under one set of leaves; 0: all
  double oversubscription = 1;
  double hop_us = 1;  // one more switch on the way
};

// Where the ranks of a communicator are: `ranks` of them, `stride` apart, on nodes of `gpus` each.
struct Placement {
  int64_t ranks = 1;
  int64_t nodes = 1;
  int64_t per_node = 1;
  bool leaves_pod = false;
  double crossing = 0;  // of the steps from node to node, the part that leaves a pod
};
Placement placement_of(const Network& network, int gpus_per_node, int64_t ranks, int64_t stride);

struct Cluster;
// The links between nodes that NICs of these rates give: inter the smaller of 0.9 x their line rate and
// the bus inside a node, rail 0.9 x a GPU's share (0.9 was found on RoCE nodes of 4 and 8 x 100 Gb/s);
// latencies as the cluster has them, otherwise 7.6 and 9.0 us a step.
// Worked number: 4 NICs of 12.5 GB/s on nodes of 8 give inter 45 GB/s and rail 5.625.
void links_of_nics(Cluster& cluster);

}  // namespace shardsim
