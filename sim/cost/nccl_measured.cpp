#include "sim/cost/nccl_measured.h"

#include <algorithm>
#include <cmath>

namespace shardsim {
namespace {

using A = NcclAlgorithm;
using P = NcclProtocol;

constexpr double kLaunchUs = 39;  // nothing in a node is faster
constexpr double kLlUs = 40, kLlRate = 1.2;
constexpr double kLl128Rate = .80;
constexpr double kRingUs = 43, kRingReduceLatency = 2.6;
constexpr double kNvlsUs = 60, kNvlsBlackwellUs = 85;
constexpr double kLl128Payload = .92;

constexpr double kHides = 1.3;
constexpr double kHopLl = 1.8, kHopLl128 = 1.9, kHopSimple = 1.8;
constexpr double kBesideLl128 = .94, kBesideLl128Ampere = .3;
constexpr double kMostOfNode = 8, kHopSimpleOfRack = 3.4;
constexpr double kNetLl = 2.7, kNetLl128 = 4.0, kNetSimple = 20;
constexpr double kNicOfLl128 = .6;
constexpr double kBaseLl = 6.6, kBaseLl128 = 14, kBaseSimple = 8.4;
constexpr double kTreeLatency = 1.8;
constexpr double kRoundsOfLevel = 2;  // a chunk arrives whole before it leaves

CollectiveTime in_node(const NcclChoice& c, int cc, WorkKind kind, double tuner_latency,
                       double moving, double factor) {
  double latency = kLaunchUs + tuner_latency, rate = 1;
  if (c.protocol == P::ll) {
    latency = kLlUs;
    rate = kLlRate;
  } else if (c.protocol == P::ll128) {
    rate = kLl128Rate;
  } else if (c.algorithm == A::nvls) {
    latency = cc >= 100 ? kNvlsBlackwellUs : kNvlsUs;
  } else if (c.algorithm == A::ring) {
    latency =
        kind == WorkKind::AllReduce ? kLaunchUs + kRingReduceLatency * tuner_latency : kRingUs;
  }
  return {latency * factor + moving / rate, moving / rate};
}

double ring_latency(const NcclComm& comm, P protocol, double passes, double nic_us) {
  const auto nodes = static_cast<double>(comm.nodes);
  const double outer = passes * (nodes - 1);
  const double inner = passes * (static_cast<double>(comm.ranks) - nodes);
  const double of_node = static_cast<double>(comm.ranks) / nodes;
  switch (protocol) {
    case P::ll: return kBaseLl + inner * kHopLl + outer * (kNetLl + nic_us);
    case P::ll128: {
      const double beside = comm.compute_capability >= 90 ? kBesideLl128 : kBesideLl128Ampere;
      const double hop = kHopLl128 + beside * (std::min(of_node, kMostOfNode) - 1);
      return kBaseLl128 + inner * hop + outer * (kNetLl128 + kNicOfLl128 * nic_us);
    }
    default: {
      const double hop = of_node > kMostOfNode ? kHopSimpleOfRack : kHopSimple * (of_node - 1);
      return kBaseSimple + inner * hop + outer * (kNetSimple + 2 * nic_us);
    }
  }
}

// What passes until the first chunks of an NVLS tree have gone up and down again.
double filling_us(const NcclComm& comm, Bytes bytes, double moving) {
  const auto round = static_cast<double>(nccl_nvls_tree_round(comm, bytes));
  const double part = std::min(1.0, round / static_cast<double>(bytes));
  return kRoundsOfLevel * 2 * nccl_tree_depth(comm) * moving * part;
}

}  // namespace

CollectiveTime measured_time(const NcclComm& comm, const NcclOp& op, const NcclChoice& choice,
                             const MeasuredLinks& links) {
  NcclComm shown = comm;
  shown.nic_latency_us = links.nic_us;
  const double tuner_latency =
      nccl_model(shown, op.kind, choice.algorithm, choice.protocol).latency_us;
  double moving = nccl_moving_us(shown, op, choice.algorithm, choice.protocol);
  const auto n = static_cast<double>(comm.ranks);
  const double passes = op.kind == WorkKind::AllReduce ? 2 : 1;
  const NcclGraph& ring = comm.graphs.ring;
  const auto bytes = static_cast<double>(op.bytes);
  if (choice.algorithm == A::ring) {
    const bool whole = op.kind == WorkKind::Broadcast || op.kind == WorkKind::Reduce;
    const double share = whole ? 1 : passes * (n - 1) / n;
    if (choice.protocol == P::ll128) {
      const double bw = comm.nodes <= 2 ? ring.bw_intra : ring.bw_inter;
      moving = share * bytes / (1000 * kLl128Payload * ring.channels * bw);
    }
    if (links.ring_gbps > 0) {
      const double measured = share * bytes / (1000 * links.ring_gbps);
      const bool known = comm.nodes == 1 && choice.protocol == P::simple;
      moving = known ? measured : std::max(moving, measured);
    }
  } else if (links.net_gbps > 0) {
    moving *= std::max(1.0, ring.channels * ring.bw_inter / links.net_gbps);
  }
  if (choice.algorithm == A::nvls_tree)
    moving = std::max(moving, nccl_nvls_tree_of_gpu_us(comm, op.bytes));
  moving /= links.bandwidth;
  if (comm.nodes == 1)
    return in_node(choice, comm.compute_capability, op.kind, tuner_latency, moving, links.latency);
  double latency = tuner_latency;
  switch (choice.algorithm) {
    case A::ring: latency = ring_latency(comm, choice.protocol, passes, links.nic_us); break;
    case A::tree: latency *= kTreeLatency; break;
    case A::nvls_tree: latency += filling_us(comm, op.bytes, moving); break;
    default: break;
  }
  latency *= links.latency;
  return {std::pow(std::pow(latency, kHides) + std::pow(moving, kHides), 1 / kHides), moving};
}

}  // namespace shardsim
