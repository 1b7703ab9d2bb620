#include "sim/cost/collectives.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "sim/base/error.h"
#include "sim/cluster/nccl_sweep_reach.h"
#include "sim/cost/nccl_measured.h"

namespace shardsim {
namespace {

constexpr double kUnalignedGather = 3.5, kUnalignedScatter = 1.5;
constexpr Bytes kPack = 16;

Error no_link(const Cluster& cluster, const Comm& comm) {
  const bool inside = (comm.size - 1) * comm.stride < cluster.gpus_per_node;
  return Error("cluster " + cluster.name + " has no bandwidth " +
                   (inside ? "inside a node" : "between nodes") + ", but communicator " +
                   comm.name + " of " + std::to_string(comm.size) + " ranks needs it",
               {}, inside ? "give cluster.intra" : "give cluster.inter, or use one node");
}

std::string_view collective_of(WorkKind kind) {
  switch (kind) {
    case WorkKind::AllGather: return "all_gather";
    case WorkKind::ReduceScatter: return "reduce_scatter";
    case WorkKind::AllReduce: return "all_reduce";
    case WorkKind::Broadcast: return "broadcast";
    default: return "reduce";
  }
}

bool moves_parts(WorkKind k) { return k == WorkKind::AllGather || k == WorkKind::ReduceScatter; }

double ring_latency_us(WorkKind kind, const Link& link, int64_t ranks) {
  const double passes = kind == WorkKind::AllReduce ? 2 : 1;
  return passes * static_cast<double>(ranks - 1) * link.alpha_us;
}

// NIC and wire as the links' measured rates show them: a part of the line rate.
double nic_rate(const Cluster& c) {
  return c.rail.bus_gbps > 0 ? c.rail.bus_gbps : c.inter.bus_gbps / std::max(1, c.gpus_per_node);
}

// A link that the scenario states is what its rings are priced by, whatever the NICs are said to do.
double nic_rate_of(const Cluster& c, const Placement& p) {
  return p.per_node > 1 && c.inter.given ? c.inter.bus_gbps / std::max(1, c.gpus_per_node)
                                         : nic_rate(c);
}

Load load_of(const Cluster& c, const Placement& p, double rate) {
  Load load;
  const auto fraction = [](double used, double whole) {
    return whole > 0 ? std::min(1.0, used / whole) : 0.0;
  };
  const bool nvlink = c.gpu.nvlinks > 0 || c.intra.bus_gbps > c.gpu.pcie_gbps;
  if (p.per_node > 1 && nvlink) load.nvlink = fraction(rate, c.intra.bus_gbps);
  if (p.per_node > 1 && !nvlink) load.pcie = fraction(rate, c.gpu.pcie_gbps);
  if (p.nodes == 1) return load;
  // What leaves the node is spread over the NICs of the communicator's GPUs.
  const double of_gpu = rate / static_cast<double>(p.per_node);
  load.nic = fraction(of_gpu, nic_rate_of(c, p));
  load.pcie = std::max(load.pcie, fraction(of_gpu, c.gpu.pcie_gbps));
  if (p.leaves_pod) load.spine = fraction(of_gpu * c.network.oversubscription, nic_rate_of(c, p));
  return load;
}

Link beyond_pod(const Cluster& c, const Placement& p, Link link) {
  if (!p.leaves_pod) return link;
  link.bus_gbps /= c.network.oversubscription;
  link.alpha_us += 2 * c.network.hop_us * p.crossing;
  return link;
}

// With the scenario's own link there is nothing to ask NCCL for but its choice.
bool given(const Cluster& c, const Placement& p) {
  if (p.nodes == 1) return c.intra.given;
  return p.per_node == 1 ? c.rail.given || (c.inter.given && c.rail.bus_gbps <= 0) : c.inter.given;
}

CollectiveCost priced(const Cluster& cluster, const Comm& comm, const Work& work, Bytes bytes,
                      const CollectiveModel& model, const Calibration& calibration) {
  using Backend = CollectiveModel::Backend;
  const Placement p = placement_of(cluster.network, cluster.gpus_per_node, comm.size, comm.stride);
  const Link link = beyond_pod(cluster, p, link_of(cluster, comm.size, comm.stride));
  if (link.bus_gbps <= 0) throw no_link(cluster, comm);

  const NcclComm nccl = nccl_comm_of(cluster, comm.size, comm.stride, model.nccl);
  const NcclOp op{work.kind, work.op, work.dtype, bytes, 1};
  const NcclChoice choice = nccl_choose(nccl, op);
  CollectiveCost cost;
  cost.algorithm = choice.algorithm;
  cost.protocol = choice.protocol;
  cost.channels = cost.ctas = choice.channels;

  if (model.table && (model.backend == Backend::table || model.backend == Backend::automatic)) {
    const std::string_view name = collective_of(work.kind);
    if (const std::optional<double> us = model.table->us(name, comm.size, p.nodes, bytes)) {
      cost.us = *us;
      cost.latency_us = std::min(*us, *model.table->us(name, comm.size, p.nodes, 0));
      cost.from_table = true;
      cost.swept = largest_swept(*model.table, name, comm.size, p.nodes).value_or(0);
      return cost;
    }
    if (model.backend == Backend::table)
      throw Error::at("cost.nccl_table",
                      model.table->file + " has no " + sweep_name(cluster, comm, work.kind) +
                          ", for communicator " + comm.name,
                      "it has " + model.table->contents() +
                          "; with collectives: auto the rest is priced without it");
  }

  const auto as_ring = [&] {
    cost.us = ring_us(work.kind, link, comm.size, bytes);
    cost.latency_us = ring_latency_us(work.kind, link, comm.size);
  };
  const double slower = p.leaves_pod ? cluster.network.oversubscription : 1;
  switch (model.backend) {
    case Backend::ring: as_ring(); break;
    case Backend::tuner:
      cost.us = choice.us + (slower - 1) * (choice.us - choice.latency_us);
      cost.latency_us = choice.latency_us;
      break;
    case Backend::two_level: {
      if (p.nodes == 1 || p.per_node == 1 ||
          !(moves_parts(work.kind) || work.kind == WorkKind::AllReduce)) {
        as_ring();
        break;
      }
      const Link rail = beyond_pod(cluster, p, link_of(cluster, p.nodes, cluster.gpus_per_node));
      cost.us = two_level_us(work.kind, cluster.intra, rail, p.per_node, p.nodes, bytes).us();
      cost.latency_us = two_level_us(work.kind, cluster.intra, rail, p.per_node, p.nodes, 0).us();
      break;
    }
    case Backend::automatic:
    case Backend::table: {
      // Without NVIDIA's compute capability NCCL's numbers say nothing.
      if (given(cluster, p) || cluster.gpu.compute_capability == 0) {
        as_ring();
        break;
      }
      MeasuredLinks links;
      links.nic_us = cluster.network.nic_latency_us + 2 * cluster.network.hop_us * p.crossing;
      links.ring_gbps = link.bus_gbps;
      links.net_gbps =
          p.nodes > 1 ? nic_rate(cluster) * static_cast<double>(p.per_node) / slower : 0;
      links.latency = calibration.collective_latency;
      links.bandwidth = calibration.collective_bandwidth;
      const CollectiveTime t = measured_time(nccl, op, choice, links);
      cost.us = t.us;
      cost.latency_us = t.us - t.moving_us;
      break;
    }
  }
  return cost;
}

}  // namespace

std::string sweep_name(const Cluster& cluster, const Comm& comm, WorkKind kind) {
  const Placement p = placement_of(cluster.network, cluster.gpus_per_node, comm.size, comm.stride);
  return std::string(collective_of(kind)) + " over " + std::to_string(comm.size) + " ranks on " +
         std::to_string(p.nodes) + (p.nodes == 1 ? " node" : " nodes");
}

Bytes padded_to_16(Bytes whole, int64_t ranks) {
  return ceil_div(ceil_div(whole, ranks), kPack) * kPack * ranks;
}

double ring_share(WorkKind kind, int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  if (kind == WorkKind::Broadcast || kind == WorkKind::Reduce) return 1;
  return (kind == WorkKind::AllReduce ? 2 : 1) * (n - 1) / n;
}

double ring_us(WorkKind kind, const Link& link, int64_t ranks, Bytes bytes) {
  if (ranks <= 1) return kOneRankUs;
  return ring_latency_us(kind, link, ranks) +
         ring_share(kind, ranks) * static_cast<double>(bytes) / (link.bus_gbps * 1e3);
}

TwoLevel two_level_us(WorkKind kind, const Link& intra, const Link& rail, int64_t per_node,
                      int64_t nodes, Bytes bytes) {
  const double passes = kind == WorkKind::AllReduce ? 2 : 1;
  const auto g = static_cast<double>(per_node), k = static_cast<double>(nodes);
  const auto whole = static_cast<double>(bytes);
  return {passes * ((k - 1) * rail.alpha_us + (k - 1) / k * whole / g / (rail.bus_gbps * 1e3)),
          passes * ((g - 1) * intra.alpha_us + (g - 1) / g * whole / (intra.bus_gbps * 1e3))};
}

Link link_of(const Cluster& cluster, int64_t ranks, int64_t stride) {
  const int64_t node = std::max(1, cluster.gpus_per_node);
  const Placement p = placement_of(cluster.network, cluster.gpus_per_node, ranks, stride);
  if (p.nodes == 1) return cluster.intra;
  Link rail = cluster.rail;
  if (rail.bus_gbps <= 0) {
    rail.alpha_us = cluster.inter.alpha_us;
    rail.bus_gbps = cluster.inter.bus_gbps / static_cast<double>(node);
  }
  if (p.per_node <= 1) return rail;
  if (p.per_node >= node) return cluster.inter;
  return {cluster.inter.alpha_us,
          std::min(cluster.inter.bus_gbps, static_cast<double>(p.per_node) * rail.bus_gbps)};
}

NcclComm nccl_comm_of(const Cluster& cluster, int64_t ranks, int64_t stride, NcclVersion version) {
  const Network& network = cluster.network;
  const Placement p = placement_of(network, cluster.gpus_per_node, ranks, stride);
  const int64_t node = std::max(1, cluster.gpus_per_node);
  NcclNode n;
  n.compute_capability = cluster.gpu.compute_capability;
  n.gpus = static_cast<int>(p.per_node);
  n.nvlink_gbps = cluster.gpu.nvlinks * nvlink_rate(n.compute_capability);
  // A GPU written out without its links has them if the node is faster than PCIe.
  if (n.nvlink_gbps == 0 && cluster.intra.bus_gbps > cluster.gpu.pcie_gbps)
    n.nvlink_gbps = cluster.intra.bus_gbps / kRingOfNvlink;
  n.pcie_gbps = cluster.gpu.pcie_gbps / kPcieLine;
  n.nics = static_cast<int>(std::max<int64_t>(1, network.nics * p.per_node / node));
  // Where the NICs are not stated: one for each GPU, as fast as the link.
  n.nic_gbps = network.nic_gbps;
  if (network.nics == 0) {
    n.nics = n.gpus;
    n.nic_gbps =
        std::max(cluster.rail.bus_gbps, cluster.inter.bus_gbps / static_cast<double>(node));
  }
  n.near_nics = network.near_nics;
  NcclComm c;
  c.version = version;
  c.compute_capability = n.compute_capability;
  c.ranks = ranks;
  c.nodes = p.nodes;
  c.graphs = nccl_graphs(n, p.nodes, version);
  c.cpu = network.cpu;
  c.nic_latency_us = network.plugin_latency_us;
  c.rings_for_nvls_tree = network.plugin_tunes;
  c.sharp = network.sharp;
  return c;
}

CollectiveCost collective_cost(const Cluster& cluster, const Calibration& calibration,
                               const Comm& comm, const Work& work, const CollectiveModel& model) {
  CollectiveCost cost;
  if (comm.size <= 1) {
    cost.us = cost.latency_us = kOneRankUs;
    return cost;
  }
  const bool padded = model.pad_to_16 && moves_parts(work.kind);
  const Bytes bytes = padded ? padded_to_16(work.bytes, comm.size) : work.bytes;
  cost = priced(cluster, comm, work, bytes, model, calibration);
  // A measured sweep has whatever its own sizes cost. What gets slower is the copy by the SMs, which a
  // network that is slower still hides.
  if (moves_parts(work.kind) && bytes % (comm.size * kPack) != 0 && !cost.from_table &&
      cost.protocol != NcclProtocol::ll && cluster.intra.bus_gbps > 0) {
    const double p = work.kind == WorkKind::AllGather ? kUnalignedGather : kUnalignedScatter;
    const double copied = ring_share(work.kind, comm.size) * static_cast<double>(bytes) * p /
                          (cluster.intra.bus_gbps * 1e3);
    cost.us = std::max(cost.us, cost.latency_us + copied);
  }
  const Placement p = placement_of(cluster.network, cluster.gpus_per_node, comm.size, comm.stride);
  const double wire = ring_share(work.kind, comm.size) * static_cast<double>(bytes);
  cost.load = load_of(cluster, p, wire / (cost.us * 1e3));
  return cost;
}

}  // namespace shardsim
