// The time of one collective as a ring: t = steps alpha + share B/bus for B whole bytes over n ranks
// (sim/cluster/cluster.h); broadcast and reduce (n-1) alpha + B/bus. Which link:
//   all ranks in one node         intra
//   g ranks of a node, 1 < g      inter if g is gpus_per_node; otherwise its alpha and the least of
//                                 inter's bus and g rails
//   one rank a node               rail
// The ring is right for gathers and scatters (3-8 % for 32 MiB and more); all-reduce over nodes
// takes a tree in NCCL, and on an NVSwitch node NVLS where the operation is a plain sum: there it
// is up to 25 % too slow.
// Worked number: a gather of 436,224,000 bytes over 8 H100 is 1,113.2 us.
#pragma once

#include "sim/cluster/cluster.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

// What a collective over one rank takes: a copy.
inline constexpr double kOneRankUs = 2.5;

double ring_us(WorkKind kind, const Link& link, int64_t ranks, Bytes bytes);

// The link that a ring over `ranks` GPUs, `stride` apart, is bound by.
Link link_of(const Cluster& cluster, int64_t ranks, int64_t stride);

// Throws Error where the cluster states no bandwidth for the communicator.
double collective_us(const Cluster& cluster, const Comm& comm, const Work& work);

}  // namespace shardsim
