#include "sim/cost/node_boundary.h"

#include <algorithm>
#include <cmath>

namespace shardsim {

NodeBoundary node_boundary(const Cluster& cluster, const Comm& comm, WorkKind kind, Bytes bytes) {
  NodeBoundary b;
  if (comm.size <= 1) return b;
  const Placement p = placement_of(cluster.network, cluster.gpus_per_node, comm.size, comm.stride);
  const bool rooted = kind == WorkKind::Broadcast || kind == WorkKind::Reduce;
  const int64_t passes = kind == WorkKind::AllReduce ? 2 : 1;
  b.nodes = p.nodes;
  b.steps_between = passes * (p.nodes - 1);
  b.steps_inside = passes * (comm.size - 1) - b.steps_between;
  if (p.nodes == 1) return b;
  const auto of = [&](int64_t members) {
    const auto n = static_cast<double>(members);
    return rooted ? 1.0 : static_cast<double>(passes) * (n - 1) / n;
  };
  const double side_by_side =
      std::max(1.0, static_cast<double>(cluster.gpus_per_node) / static_cast<double>(p.per_node));
  const double whole = side_by_side * static_cast<double>(bytes);
  b.ring = std::llround(of(comm.size) * whole);
  b.least = std::llround(of(p.nodes) * whole);
  return b;
}

}  // namespace shardsim
