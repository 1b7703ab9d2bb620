#include "sim/cost/nccl_tuner.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "sim/base/error.h"

namespace shardsim {
namespace {

using A = NcclAlgorithm;
using P = NcclProtocol;

// All tables: src/graph/tuning.cc. Microseconds and GB/s; by algorithm (tree, ring, CollNet direct and
// chain, NVLS, NVLS tree, PAT) and protocol (LL, LL128, Simple).
constexpr double kBase[kNcclAlgorithms][kNcclProtocols] = {
    {6.8, 14.0, 8.4}, {6.6, 14.0, 8.4}, {0, 0, 0},      {0, 0, 0},
    {0, 0, 0},        {0, 0, 0},        {8.0, 8.0, 8.0}};

enum Hardware { kNvlink, kPci, kNet };
constexpr double kHop[3][kNcclAlgorithms][kNcclProtocols] = {
    {{0.6, 1.25, 4.0},
     {0.6, 1.9, 3.4},
     {0, 0, 3.7},
     {0, 0, 2.8},
     {0, 0, 25},
     {0, 0, 25},
     {0, 0, 4.0}},
    {{1.0, 1.9, 4.0}, {1.0, 2.5, 5.7}, {0, 0, 3.7}, {0, 0, 2.8}, {0, 0, 0}, {0, 0, 0}, {0, 0, 4.0}},
    {{5.0, 8.5, 14}, {2.7, 4.0, 14}, {0, 0, 31}, {0, 0, 30}, {0, 0, 18}, {0, 0, 20.9}, {0, 0, 14}}};

enum Generation { kVolta, kAmpere, kHopper, kBlackwell };
// Columns: one node, two, more. The first row of LL between nodes is for Intel and other CPUs, the
// second for AMD.
constexpr double kLlMax[4][3] = {{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}};
constexpr double kRingLl128[4][3] = {
    {20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {73.4, 34.6, 73.4}};
constexpr double kRingLl128BlackwellOf30 = 40.0;
constexpr double kTreeLl128[4][3] = {
    {20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}};
constexpr double kTree[4][3] = {
    {26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}};
constexpr double kNvlsTree[4][3] = {
    {26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 43.8}};
constexpr double kNvlsTreeBlackwellOf30 = 80.0;
constexpr double kNvlsEfficiency[4] = {0, 0, 0.85, 0.74};

// By log2 of bytes / 64; 2.30 has one column more.
constexpr double kTreeCorrection[kNcclProtocols][24] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
     .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}};
constexpr int kTreeCorrections = 23;
constexpr int kNvlsTreeCorrectionsOf30 = 24;

// device.h, comm.h, enqueue.cc.
constexpr int kThreads[kNcclProtocols] = {512, 640, 512};
constexpr int kThreshold[kNcclProtocols] = {8, 8, 64};
constexpr Bytes kLeastTraffic = 16 * kKiB;
constexpr int64_t kCollsOfBatch = 10;
constexpr int64_t kPlateauBytes = 64;  // of a rank on a channel, from which rings stall
constexpr int kMostLocalOfCollNet = 8;
constexpr int kMostLocalOfNvls = 32;
constexpr double kLastResort = 1024;  // fp8 rings over more than 8 ranks lose precision
constexpr Bytes kAggregateWithin = 4;
constexpr Bytes kNvlsChunk = 128 * kKiB;
constexpr Bytes kNvlsTreeChunkOfMany = 64 * kKiB;
constexpr int64_t kManyNodes = 4;
constexpr double kHeadsOfNode = 8;

constexpr size_t at(A a) { return static_cast<size_t>(a); }
constexpr size_t at(P p) { return static_cast<size_t>(p); }

int log2_of(int64_t n) {
  return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(1, n))) - 1;
}

struct Sizes {
  explicit Sizes(const NcclComm& c)
      : generation(c.compute_capability >= 100  ? kBlackwell
                   : c.compute_capability >= 90 ? kHopper
                   : c.compute_capability >= 80 ? kAmpere
                                                : kVolta),
        column(c.nodes <= 2 ? static_cast<int>(c.nodes) - 1 : 2),
        per_node(static_cast<double>(c.ranks) / static_cast<double>(c.nodes)) {}
  int generation, column;
  double per_node;
};

const NcclGraph& graph_of(const NcclComm& c, A a) {
  switch (a) {
    case A::tree:
    case A::pat: return c.graphs.tree;
    case A::nvls:
    case A::nvls_tree: return c.graphs.nvls;
    default: return c.graphs.ring;
  }
}

bool played(const NcclComm& c, WorkKind kind, A a, P p) {
  const bool shards = kind == WorkKind::AllGather || kind == WorkKind::ReduceScatter;
  if (kind == WorkKind::Broadcast || kind == WorkKind::Reduce) {
    if (a != A::ring) return false;
  } else if (shards) {
    if (a == A::tree || a == A::collnet_chain || a == A::nvls_tree) return false;
  } else if (a == A::pat) {
    return false;
  }
  if (a != A::ring && a != A::tree && p != P::simple) return false;
  const bool collnet = a == A::collnet_direct || a == A::collnet_chain;
  const bool nvls = a == A::nvls || a == A::nvls_tree;
  if (p == P::ll128 && (!c.graphs.nvlink || !c.graphs.near_nics || c.compute_capability < 70))
    return false;
  if (collnet) {
    const bool direct_ok = a != A::collnet_direct || c.graphs.nvls.channels > 0;
    return c.sharp && c.nodes > 1 && c.ranks <= kMostLocalOfCollNet * c.nodes && direct_ok;
  }
  if (nvls) {
    if (c.graphs.nvls.channels < 2) return false;
    if (a == A::nvls_tree && c.nodes == 1) return false;
    if (a == A::nvls && c.nodes > 1 && !c.sharp) return false;
    return kind == WorkKind::AllReduce || c.ranks <= kMostLocalOfNvls * c.nodes;
  }
  if (a == A::pat) return c.nodes == c.ranks && c.compute_capability >= 60;
  return true;
}

double nvls_tree_of_channel(const NcclComm& c, const Sizes& s) {
  const bool later = c.version == NcclVersion::v2_30;
  if (later && s.generation == kBlackwell && s.column == 2) return kNvlsTreeBlackwellOf30;
  return kNvlsTree[s.generation][s.column];
}

double bus_bandwidth(const NcclComm& c, WorkKind kind, A a, P p, const Sizes& s) {
  const NcclGraph& g = graph_of(c, a);
  const double n = g.channels;
  const bool reduces_all = kind == WorkKind::AllReduce;
  const bool later = c.version == NcclVersion::v2_30;
  const bool collnet = a == A::collnet_direct || a == A::collnet_chain;
  double bw = c.nodes <= 2 || collnet ? g.bw_intra : g.bw_inter;
  if (a == A::nvls || a == A::nvls_tree) {
    double intra = g.bw_intra * kNvlsEfficiency[s.generation] * (n - 1) / n;
    intra *= reduces_all ? 2 : (s.per_node - 1) / s.per_node;
    bw = std::min(intra, g.bw_inter * (c.nodes <= 2 && a == A::nvls_tree ? 2 : 1));
    if (a == A::nvls_tree) bw = std::min(bw, nvls_tree_of_channel(c, s));
  }
  double bus = n * bw;
  const int ll_row = c.nodes == 1 ? s.generation : c.cpu == CpuVendor::amd ? 1 : 0;
  const double ll_max = kLlMax[ll_row][s.column];
  if (a == A::ring && p == P::ll) bus = std::min(ll_max, bus * .5);
  if (a == A::ring && p == P::ll128)
    bus = std::min(bus * .92,
                   n * (later && s.generation == kBlackwell ? kRingLl128BlackwellOf30
                                                            : kRingLl128[s.generation][s.column]));
  if (a == A::tree) {
    bus = std::min(bus * .92, n * kTree[s.generation][s.column]);
    if (p == P::ll) bus = std::min(bus / 3.8, ll_max);
    if (p == P::ll128)
      bus = std::min(bus * (c.nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0),
                     n * kTreeLl128[s.generation][s.column]);
    if (c.graphs.plain_tree) bus *= .85;
  }
  if (a == A::pat) bus *= .75;
  if (a == A::collnet_direct) {
    if (!reduces_all) {
      bus = s.per_node * std::min(g.bw_intra, g.bw_inter * .9);
    } else {
      // All GPUs need a NIC of their own to work at full speed.
      double factor = s.per_node / n;
      factor -= (factor - 1) / 2;
      bus /= factor;
      if (c.compute_capability >= 90) bus *= .85;
    }
  }
  return bus;
}

// The bytes of a buffer in a second: what a ring moves is counted by its steps.
double of_buffer(const NcclComm& c, WorkKind kind, A a, double bus) {
  const bool shards = kind == WorkKind::AllGather || kind == WorkKind::ReduceScatter;
  if (a != A::ring && shards) return bus;
  if (a != A::ring && a != A::nvls && a != A::nvls_tree) return bus * .5;
  const auto n = static_cast<double>(c.ranks);
  const double steps = kind == WorkKind::AllReduce ? 2 * (n - 1) : shards ? n - 1 : n;
  return bus * n / steps;
}

double latency(const NcclComm& c, WorkKind kind, A a, P p, const Sizes& s) {
  const int inside = c.graphs.nvlink ? kNvlink : kPci;
  const double base = kBase[at(a)][at(p)];
  double hop = kHop[inside][at(a)][at(p)];
  // With one rank a node a step's latency is fully seen.
  double net = s.per_node == 1 ? kHop[kNet][at(A::tree)][at(p)] : kHop[kNet][at(a)][at(p)];
  net += c.nic_latency_us * (p == P::simple ? 2 : 1);
  const auto n = static_cast<double>(c.ranks), nodes = static_cast<double>(c.nodes);
  const int64_t beside = c.ranks / c.nodes - 1;  // on a node
  const auto local = static_cast<double>(beside);
  const double depth = log2_of(c.nodes);
  switch (a) {
    case A::ring: {
      if (kind == WorkKind::Broadcast || kind == WorkKind::Reduce)
        return base + kHop[c.nodes > 1 ? kNet : inside][at(a)][at(p)];
      if (c.nodes > 1) {
        const double post = c.cpu == CpuVendor::amd ? 2.0 : 1.0;
        hop = std::max(hop, p == P::simple ? 3 * post : post);
      }
      const double twice = kind == WorkKind::AllReduce ? 2 : 1;
      return base + twice * ((n - nodes) * hop + (nodes - 1) * net);
    }
    case A::tree: return base + 2 * (local * hop + depth * net);
    case A::collnet_direct: return base + 2 * (std::min(1.0, local) * hop + local * .4) + net;
    case A::collnet_chain: return base + 2 * local * hop + net;
    case A::nvls: return hop + (c.nodes > 1 ? net : 0);
    case A::nvls_tree: return base + hop + 2 * depth * net;
    case A::pat: return base + depth * net / 3.5 + n * 2.8;
    case A::none: break;
  }
  return 0;
}

bool scales(ReduceOp op) { return op == ReduceOp::avg || op == ReduceOp::premul_sum; }

bool takes(const NcclOp& op, A a) {
  if ((a == A::nvls || a == A::nvls_tree) && scales(op.op)) return false;
  return a != A::pat || op.kind != WorkKind::ReduceScatter || !scales(op.op);
}

}  // namespace

const char* name_of(NcclAlgorithm a) {
  constexpr const char* kNames[] = {"Tree", "Ring",     "CollnetDirect", "CollnetChain",
                                    "NVLS", "NVLSTree", "PAT",           "none"};
  return kNames[at(a)];
}

const char* name_of(NcclProtocol p) {
  constexpr const char* kNames[] = {"LL", "LL128", "Simple", "none"};
  return kNames[at(p)];
}

NcclModel nccl_model(const NcclComm& comm, WorkKind kind, A a, P p) {
  if (!played(comm, kind, a, p)) return {};
  const Sizes s(comm);
  return {latency(comm, kind, a, p, s),
          of_buffer(comm, kind, a, bus_bandwidth(comm, kind, a, p, s))};
}

double nccl_moving_us(const NcclComm& comm, const NcclOp& op, A a, P p) {
  double bw = nccl_model(comm, op.kind, a, p).bandwidth;
  if (bw <= 0) return 0;
  const int size = op.bytes < 64 ? -1 : log2_of(op.bytes / 64);
  const bool tree = a == A::tree && size < kTreeCorrections;
  const bool nvls_tree = a == A::nvls_tree && comm.version == NcclVersion::v2_30 &&
                         comm.compute_capability >= 100 && size < kNvlsTreeCorrectionsOf30;
  if (op.kind == WorkKind::AllReduce && size >= 0 && (tree || nvls_tree))
    bw *= kTreeCorrection[at(p)][size];
  return static_cast<double>(op.bytes) / (1000 * bw);
}

double nccl_time(const NcclComm& comm, const NcclOp& op, A a, P p) {
  const NcclModel m = nccl_model(comm, op.kind, a, p);
  if (m.bandwidth <= 0 || !takes(op, a)) return -1;
  double us = m.latency_us;
  if (a == A::ring && p == P::simple && comm.nodes > 1 && op.kind == WorkKind::AllReduce &&
      op.bytes / (comm.graphs.channels * comm.ranks) >= kPlateauBytes)
    us *= comm.compute_capability < 80 ? 1.9 : 1.4;
  us *= a == A::ring ? op.pipelined : ceil_div(op.pipelined, kCollsOfBatch);
  us += nccl_moving_us(comm, op, a, p);
  if (op.dtype == DType::fp8 && a == A::ring && comm.ranks > 8) us *= kLastResort;
  return us;
}

int nccl_channels(const NcclComm& comm, const NcclOp& op, A a, P p) {
  if (a == A::none || p == P::none) return 0;
  int n = comm.graphs.channels;
  if (a == A::nvls || a == A::nvls_tree) {
    n = comm.graphs.nvls_channels;
    if (a == A::nvls && comm.nodes > 1) n = std::min(n, comm.graphs.channels);
    return n;
  }
  if (a == A::collnet_direct || a == A::collnet_chain) return n;
  int64_t threshold = kThreshold[at(p)];
  if (a == A::ring && p == P::ll) threshold *= comm.ranks;
  while (n >= 2 && op.bytes < n * kThreads[at(p)] * threshold) --n;
  Bytes traffic = op.kind == WorkKind::AllReduce ? 2 * op.bytes : op.bytes;
  if (p == P::ll) traffic *= 4;
  return static_cast<int>(
      std::min<int64_t>(n, std::max<int64_t>(1, ceil_div(traffic, kLeastTraffic))));
}

NcclChoice nccl_choose(const NcclComm& comm, const NcclOp& op) {
  NcclChoice best;
  double least = std::numeric_limits<double>::infinity();
  const auto take = [&](int a, int p) {
    const double us = nccl_time(comm, op, static_cast<A>(a), static_cast<P>(p));
    if (us < 0 || us >= least) return;
    least = us;
    best.algorithm = static_cast<A>(a);
    best.protocol = static_cast<P>(p);
  };
  for (int a = 0; a < kNcclAlgorithms; ++a)
    for (int p = 0; p < kNcclProtocols; ++p) take(a, p);
  if (comm.rings_for_nvls_tree && best.algorithm == A::nvls_tree) {
    least = std::numeric_limits<double>::infinity();
    for (int p = 0; p < kNcclProtocols; ++p) take(static_cast<int>(A::ring), p);
  }
  SHARDSIM_ASSERT(best.algorithm != A::none, "a ring plays every collective");
  best.us = least;
  best.latency_us = nccl_model(comm, op.kind, best.algorithm, best.protocol).latency_us;
  best.channels = nccl_channels(comm, op, best.algorithm, best.protocol);
  return best;
}

Bytes nccl_nvls_tree_round(const NcclComm& comm, Bytes bytes) {
  const Bytes parts = Bytes{comm.graphs.nvls_channels} * comm.graphs.nvls.channels;
  Bytes chunk = comm.nodes >= kManyNodes ? kNvlsTreeChunkOfMany : kNvlsChunk;
  if (bytes < 4 * parts * chunk) chunk = std::min(chunk, 64 * kKiB);
  if (bytes < parts * chunk) chunk = std::min(chunk, 32 * kKiB);
  return parts * chunk;
}

double nccl_nvls_tree_of_gpu_us(const NcclComm& comm, Bytes bytes) {
  const double heads = std::min<double>(kHeadsOfNode, comm.graphs.nvls.channels);
  const double bus = heads * nvls_tree_of_channel(comm, Sizes(comm));
  return static_cast<double>(bytes) /
         (1000 * of_buffer(comm, WorkKind::AllReduce, A::nvls_tree, bus));
}

int nccl_tree_depth(const NcclComm& comm) { return log2_of(comm.nodes); }

int nccl_aggregated(std::span<const Bytes> ascending) {
  int n = 0;
  while (n < static_cast<int>(ascending.size()) &&
         (n == 0 || ascending[n] < kAggregateWithin * ascending[0]))
    ++n;
  return n;
}

}  // namespace shardsim
