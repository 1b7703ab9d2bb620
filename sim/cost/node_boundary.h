// What a communicator's collectives put across the boundary of each node, in one direction, and the
// steps of NCCL's ring. Every GPU of a node has a communicator of the kind: of HSDP's replicas 8 lie
// side by side on nodes of 8, of a shard group that holds whole nodes one.
//
//   ring    share S a communicator, share (n-1)/n for gathers and scatters over n ranks, twice that
//           for an all-reduce, 1 for broadcast and reduce
//   least   of any algorithm over k nodes: (k-1)/k S, twice that, and 1
//   steps   n-1, twice that for an all-reduce, one for each message passed; of them k-1, or 2 (k-1),
//           go from node to node (NCCL since 2.23.4; before, its all-reduce counted 2 k)
//
// Worked number: 16 GB of bf16 parameters gathered over 16 ranks on 2 nodes: 15.0 GB leave each node,
// at least 8.0 GB; 15 steps, 1 of them between nodes.
#pragma once

#include "sim/cluster/cluster.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

struct NodeBoundary {
  int64_t nodes = 1;          // that one communicator reaches
  Bytes ring = 0, least = 0;  // of all communicators of the kind; 0 inside a node
  int64_t steps_inside = 0, steps_between = 0;
};

// bytes: whole ones, summed over the collectives.
NodeBoundary node_boundary(const Cluster& cluster, const Comm& comm, WorkKind kind, Bytes bytes);

}  // namespace shardsim
