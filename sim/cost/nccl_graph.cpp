#include "sim/cost/nccl_graph.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace shardsim {
namespace {

constexpr int kMostRingChannels = 32;
constexpr int kMostChannels = 64;
constexpr int kMostNvlsHeads = 32;
constexpr int kNvlsChannelsHopper = 16;
constexpr int kNvlsChannelsBlackwell = 24;
constexpr int kNvlsChannelsBlackwellNodes = 32;
constexpr double kSlowerThanBest = 0.49;
// A ring between nodes is given a second set of channels above this rate (connect.cc).
constexpr double kDoubledAbove = 45.0;
constexpr int kDoubledBelow = 16;

constexpr double kIntra[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr double kIntra90[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr double kIntra100[] = {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18};
constexpr double kIntra100Of30[] = {90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18};
constexpr double kInter[] = {48, 30, 28, 24, 20, 18,  15,  12,   10,  9,
                             7,  6,  5,  4,  3,  2.4, 1.2, 0.24, 0.12};
constexpr double kInter90[] = {48, 45, 42, 40, 30,  24,  22,   20,  17.5,
                               15, 12, 6,  3,  2.4, 1.2, 0.24, 0.12};
constexpr double kInter100[] = {96,   48, 45.1, 42, 40, 30,  24,  22,   20,
                                17.5, 15, 12,   6,  3,  2.4, 1.2, 0.24, 0.12};
constexpr double kInter100Of30[] = {96, 86,   80, 48, 45.1, 42, 40,  30,  24,   22,
                                    20, 17.5, 15, 12, 6,    3,  2.4, 1.2, 0.24, 0.12};

using Speeds = std::span<const double>;

Speeds speeds_of(int cc, bool between_nodes, NcclVersion version) {
  if (cc >= 100) {
    const bool later = version == NcclVersion::v2_30;
    if (between_nodes) return later ? Speeds(kInter100Of30) : Speeds(kInter100);
    return later ? Speeds(kIntra100Of30) : Speeds(kIntra100);
  }
  if (cc >= 90) return between_nodes ? Speeds(kInter90) : Speeds(kIntra90);
  return between_nodes ? Speeds(kInter) : Speeds(kIntra);
}

double first_at_most(Speeds speeds, double limit) {
  for (double s : speeds)
    if (s <= limit) return s;
  return speeds.back();
}

void duplicate(NcclGraph& g, int cc) {
  const double s = g.bw_intra;
  if (s < 25 || (cc > 80 && s < 50 && g.channels > 4)) return;
  const int n = std::min(2 * g.channels, kMostRingChannels);
  const int copies = (n + g.channels - 1) / g.channels;
  g = {n, s / copies, s / copies};
}

NcclGraph ring_in_node(Speeds speeds, double total, int cc) {
  NcclGraph best;
  for (size_t i = 0; i < speeds.size(); ++i) {
    const double s = speeds[i];
    if (s > total) continue;
    if (best.channels > 0 && s / best.bw_intra <= kSlowerThanBest) break;
    const int n = std::min(kMostRingChannels, static_cast<int>(total / s));
    if (n * s > best.channels * best.bw_intra) best = {n, s, s};
    if (n * s >= total) break;
  }
  if (best.channels == 0) best = {1, total, total};
  duplicate(best, cc);
  return best;
}

// Over PCIe one ring runs at what the slowest link of its path gives.
NcclGraph ring_over_pcie(Speeds speeds, const NcclNode& node) {
  const double s = first_at_most(speeds, std::min(node.pcie_gbps, node.socket_gbps));
  NcclGraph g{1, s, s};
  duplicate(g, node.compute_capability);
  return g;
}

NcclGraph nvls_in_node(Speeds speeds, double total, int gpus) {
  const int n = std::min(kMostNvlsHeads, gpus);
  const double s = first_at_most(speeds, total / (n + 1));
  // The network's part climbs the list to twice the node's.
  double inter = s;
  for (size_t i = speeds.size(); i-- > 0;) {
    if (inter >= 2 * s) break;
    if (speeds[i] > inter) inter = speeds[i];
  }
  return {n, s, inter};
}

NcclGraph ring_between_nodes(Speeds speeds, const NcclNode& node) {
  const int n = std::clamp(node.nics, 1, kMostRingChannels);
  const double nic = std::min(node.pcie_gbps, node.nic_gbps);
  // A ring enters by one GPU of the node and leaves by another, which sends nothing inside.
  const double share = static_cast<double>(node.gpus - 1) / node.gpus;
  double limit = nic;
  if (node.nvlink_gbps > 0 && node.gpus > 1)
    limit = std::min(limit, node.nvlink_gbps / (n * share));
  if (node.nvlink_gbps <= 0 && node.gpus > 1) limit = std::min(limit, node.socket_gbps);
  const double s = first_at_most(speeds, limit);
  return {n, s, s};
}

// A tree does not close at the NIC where it began, which leaves more of NVLink to it.
void widen_tree(NcclGraph& tree, Speeds speeds, const NcclNode& node) {
  const double total = node.nvlink_gbps * node.gpus / (node.gpus - 1);
  for (size_t i = speeds.size(); i-- > 0;) {
    if (tree.bw_intra >= 2 * tree.bw_inter) break;
    if (speeds[i] > tree.bw_intra && tree.channels * speeds[i] <= total) tree.bw_intra = speeds[i];
  }
}

NcclGraph nvls_between_nodes(Speeds speeds, const NcclNode& node) {
  const int n = std::min({kMostNvlsHeads, node.gpus, std::max(1, node.nics)});
  const double nic = std::min(node.pcie_gbps, node.nic_gbps);
  return {n, first_at_most(speeds, std::min(nic, node.nvlink_gbps / (n + 1))),
          first_at_most(speeds, nic)};
}

}  // namespace

double nvlink_rate(int compute_capability) {
  if (compute_capability >= 100) return 40.1;
  if (compute_capability >= 90) return 20.6;
  if (compute_capability == 86) return 12.0;
  if (compute_capability >= 70) return 20.0;
  return compute_capability >= 60 ? 18.0 : 0;
}

NcclGraphs nccl_graphs(const NcclNode& node, int64_t nodes, NcclVersion version) {
  const int cc = node.compute_capability;
  const Speeds speeds = speeds_of(cc, nodes > 1, version);
  NcclGraphs out;
  out.nvlink = node.nvlink_gbps > 0;
  out.near_nics = nodes == 1 || node.near_nics;
  const bool multicast = cc >= 90 && out.nvlink && node.nvswitch && node.gpus > 1;
  if (nodes > 1) {
    out.ring = ring_between_nodes(speeds, node);
    if (multicast) out.nvls = nvls_between_nodes(speeds, node);
  } else {
    out.ring =
        out.nvlink ? ring_in_node(speeds, node.nvlink_gbps, cc) : ring_over_pcie(speeds, node);
    if (multicast) out.nvls = nvls_in_node(speeds, node.nvlink_gbps, node.gpus);
  }
  out.tree = out.ring;
  if (nodes > 1 && out.nvlink && node.gpus > 1) widen_tree(out.tree, speeds, node);
  out.channels = std::min(kMostChannels, 2 * out.ring.channels);
  if (cc >= 90 && nodes > 1 && out.ring.bw_intra > kDoubledAbove && out.channels < kDoubledBelow)
    out.channels *= 2;
  if (out.nvls.channels > 0)
    out.nvls_channels = cc < 100    ? kNvlsChannelsHopper
                        : nodes > 1 ? kNvlsChannelsBlackwellNodes
                                    : kNvlsChannelsBlackwell;
  return out;
}

}  // namespace shardsim
