#include "sim/cluster/network.h"

#include <algorithm>

#include "sim/cluster/cluster.h"

namespace shardsim {

Placement placement_of(const Network& network, int gpus_per_node, int64_t ranks, int64_t stride) {
  const int64_t node = std::max(1, gpus_per_node);
  Placement p;
  p.ranks = ranks;
  if ((ranks - 1) * stride < node) {
    p.per_node = ranks;
    return p;
  }
  p.per_node = stride >= node ? 1 : node / stride;
  p.nodes = (ranks + p.per_node - 1) / p.per_node;
  p.leaves_pod = network.pod_nodes > 0 && (ranks - 1) * stride >= network.pod_nodes * node;
  if (p.leaves_pod) {
    const double step = std::max(1.0, static_cast<double>(stride) / static_cast<double>(node));
    p.crossing = std::min(1.0, step / network.pod_nodes);
  }
  return p;
}

void links_of_nics(Cluster& cluster) {
  constexpr double kOfLineRate = 0.9, kInterAlphaUs = 7.6, kRailAlphaUs = 9.0;
  const double line = kOfLineRate * cluster.network.nics * cluster.network.nic_gbps;
  const auto alpha = [](const Link& link, double otherwise) {
    return link.alpha_us > 0 ? link.alpha_us : otherwise;
  };
  const bool bound = cluster.intra.bus_gbps > 0 && cluster.intra.bus_gbps < line;
  cluster.inter = {alpha(cluster.inter, kInterAlphaUs), bound ? cluster.intra.bus_gbps : line};
  cluster.rail = {alpha(cluster.rail, kRailAlphaUs), line / std::max(1, cluster.gpus_per_node)};
}

}  // namespace shardsim
