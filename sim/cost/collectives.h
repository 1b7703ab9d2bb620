// One collective: how long it takes, what NCCL chooses for it, and what it uses of the links.
//   automatic   NCCL's choice by its tuner (nccl_tuner.h) at the time that was measured of such
//               choices (nccl_measured.h). A link that the scenario states itself is a ring's:
//   ring        t = steps alpha + share B/bus for B whole bytes over n ranks (sim/cluster/cluster.h);
//               broadcast and reduce (n-1) alpha + B/bus. Which link:
//                 all ranks in one node         intra
//                 g ranks of a node, 1 < g      inter if g is gpus_per_node; otherwise its alpha and
//                                               the least of inter's bus and g rails
//                 one rank a node               rail
//   tuner       what the tuner expects: optimistic over nodes
//   two_level   (k-1) alpha + (k-1)/k (B/g)/bus on each of g rails, and (g-1) alpha + (g-1)/g B/bus in
//               each of k nodes, one after the other; twice that for an all-reduce
//   table       the user's sweep
// Beyond a pod the network's part is multiplied by the oversubscription. Gathers and scatters whose
// part of a rank is no multiple of 16 bytes are copied without 16-byte packs, at 1/3.5 and 1/1.5 of the
// rate inside a node (Horovod PR 3727, pytorch/pytorch#195450; to be calibrated), not by LL; a network
// that is slower than that hides it.
//
// Worked number: the gather of a Llama-3-8B block (436,224,000 bytes) over 8 H100: as a ring 1,113.2
// us; automatic 1,121.2 us, Ring/Simple on 24 channels, as many thread blocks.
#pragma once

#include "sim/cluster/calibration.h"
#include "sim/cluster/cluster.h"
#include "sim/cluster/collective_model.h"
#include "sim/cost/nccl_tuner.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

// Fractions of what one GPU has of each link, on average over the collective's time.
struct Load {
  double nvlink = 0;
  double nic = 0;
  double spine = 0;
  double pcie = 0;  // the GPU's slot: its NIC's traffic, and all inside a node without NVLink
};

struct CollectiveCost {
  double us = 0;
  double latency_us = 0;  // of it, time in which no bytes move
  int ctas = 0;           // thread blocks, one a channel
  NcclAlgorithm algorithm = NcclAlgorithm::none;
  NcclProtocol protocol = NcclProtocol::none;
  int channels = 0;
  Load load;
  bool from_table = false;
  Bytes swept = 0;  // from_table: the largest message of the sweep
};

// Throws Error where the cluster states no bandwidth for the communicator, or the table no sweep.
CollectiveCost collective_cost(const Cluster& cluster, const Calibration& calibration,
                               const Comm& comm, const Work& work,
                               const CollectiveModel& model = {});

// "all_gather over 16 ranks on 2 nodes": what a sweep must be of to price it.
std::string sweep_name(const Cluster& cluster, const Comm& comm, WorkKind kind);

// What a collective over one rank takes: a copy.
inline constexpr double kOneRankUs = 2.5;

// What every GPU sends, of the whole bytes, in a ring.
double ring_share(WorkKind kind, int64_t ranks);
double ring_us(WorkKind kind, const Link& link, int64_t ranks, Bytes bytes);

struct TwoLevel {
  double inter_us = 0, intra_us = 0;
  double us() const { return inter_us + intra_us; }
  double pipelined_us() const { return inter_us > intra_us ? inter_us : intra_us; }
};
TwoLevel two_level_us(WorkKind kind, const Link& intra, const Link& rail, int64_t per_node,
                      int64_t nodes, Bytes bytes);

// The link that a ring over `ranks` GPUs, `stride` apart, is bound by.
Link link_of(const Cluster& cluster, int64_t ranks, int64_t stride);

// The communicator as NCCL sees it.
NcclComm nccl_comm_of(const Cluster& cluster, int64_t ranks, int64_t stride, NcclVersion version);

// The whole bytes, with each rank's part padded to 16: 1,000,002 over 8 ranks are 1,000,064.
Bytes padded_to_16(Bytes whole, int64_t ranks);

}  // namespace shardsim
