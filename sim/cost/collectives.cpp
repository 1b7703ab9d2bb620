#include "sim/cost/collectives.h"

#include <algorithm>
#include <string>

#include "sim/base/error.h"

namespace shardsim {
namespace {

Error no_link(const Cluster& cluster, const Comm& comm) {
  const bool inside = (comm.size - 1) * comm.stride < cluster.gpus_per_node;
  return Error("cluster " + cluster.name + " has no bandwidth " +
                   (inside ? "inside a node" : "between nodes") + ", but communicator " +
                   comm.name + " of " + std::to_string(comm.size) + " ranks needs it",
               {}, inside ? "give cluster.intra" : "give cluster.inter, or use one node");
}

}  // namespace

double ring_us(WorkKind kind, const Link& link, int64_t ranks, Bytes bytes) {
  if (ranks <= 1) return kOneRankUs;
  const auto n = static_cast<double>(ranks);
  const double steps = (n - 1) * link.alpha_us;
  const double whole = static_cast<double>(bytes) / (link.bus_gbps * 1e3);
  switch (kind) {
    case WorkKind::AllReduce: return 2 * (steps + (n - 1) / n * whole);
    case WorkKind::Broadcast:
    case WorkKind::Reduce: return steps + whole;
    default: return steps + (n - 1) / n * whole;
  }
}

Link link_of(const Cluster& cluster, int64_t ranks, int64_t stride) {
  const int64_t node = std::max(1, cluster.gpus_per_node);
  if ((ranks - 1) * stride < node) return cluster.intra;
  Link rail = cluster.rail;
  if (rail.bus_gbps <= 0) {
    rail.alpha_us = cluster.inter.alpha_us;
    rail.bus_gbps = cluster.inter.bus_gbps / static_cast<double>(node);
  }
  const int64_t per_node = stride >= node ? 1 : node / stride;
  if (per_node <= 1) return rail;
  if (per_node >= node) return cluster.inter;
  return {cluster.inter.alpha_us,
          std::min(cluster.inter.bus_gbps, static_cast<double>(per_node) * rail.bus_gbps)};
}

double collective_us(const Cluster& cluster, const Comm& comm, const Work& work) {
  const Link link = link_of(cluster, comm.size, comm.stride);
  if (comm.size > 1 && link.bus_gbps <= 0) throw no_link(cluster, comm);
  return ring_us(work.kind, link, comm.size, work.bytes);
}

}  // namespace shardsim
