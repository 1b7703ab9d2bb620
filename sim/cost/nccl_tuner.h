// NCCL's tuner: the time that it expects of each algorithm and protocol, which it takes, and how many
// channels, which are the thread blocks that hold SMs while it runs. A replay of its arithmetic.
//
//   t = latency c + bytes / (1000 bandwidth)   us, bytes of the whole gathered or reduced tensor,
//   c the number of aggregated operations on a channel (for others than the ring a tenth of it)
//   bandwidth, latency: latency_of and bandwidth_of in nccl_tuner.cpp, which read like
//   ncclTopoTuneModel; the constants stand there, from src/graph/tuning.cc
// The least t of what is eligible is taken, ties to the lower number; the tuner of EFA's plugin takes a
// ring where that is an NVLS tree (it is not replayed: that is what sweeps of p5 and p5en show, whose
// latency grows with ranks as that of LL128 rings). Eligible:
//   ring             everything
//   tree             all-reduce
//   NVLS             all-reduce, gathers and scatters by Simple, cc >= 90 with NVSwitch: reductions of
//                    plain sums alone (AVG is a PreMulSum); between nodes with SHARP
//   NVLS tree        the same for all-reduce between nodes
//   PAT              gathers and scatters of one rank a node, no scatter of a PreMulSum
//   CollNet          with SHARP alone, up to 8 ranks a node
//   LL128            NVLink inside the node, NICs under a PCIe switch with their GPUs, ranks of the same
//                    GPU from compute capability 70 on
// Channels of ring and tree: one fewer while bytes < channels x threads x threshold, and at least
// 16 KiB of traffic a channel.
//
// Source: NVIDIA/nccl v2.28.9-1 src/graph/tuning.cc, src/enqueue.cc; 2.30.7 where the version says.
// Worked number: a 64 MiB gather over 8 H100 is Ring/Simple, 32.2 us + 67,108,864 / 411,430 = 195.31
// us on 24 channels; the all-reduce of 1 MiB Ring/LL in 28.01 us.
#pragma once

#include <span>

#include "sim/cost/nccl_graph.h"
#include "sim/schedule/instruction.h"

namespace shardsim {

enum class NcclAlgorithm : uint8_t {
  tree,
  ring,
  collnet_direct,
  collnet_chain,
  nvls,
  nvls_tree,
  pat,
  none,  // not by NCCL's choice: one rank, a table
};
inline constexpr int kNcclAlgorithms = 7;

enum class NcclProtocol : uint8_t { ll, ll128, simple, none };
inline constexpr int kNcclProtocols = 3;

const char* name_of(NcclAlgorithm a);  // "Ring", as NCCL writes it
const char* name_of(NcclProtocol p);   // "LL128"

// A communicator as the tuner sees it.
struct NcclComm {
  NcclVersion version = NcclVersion::v2_28;
  int compute_capability = 90;
  int64_t ranks = 8, nodes = 1;
  NcclGraphs graphs;
  CpuVendor cpu = CpuVendor::intel;
  double nic_latency_us = 0;         // what the network plugin states
  bool rings_for_nvls_tree = false;  // a plugin's tuner takes them (EFA)
  bool sharp = false;  // CollNet, with a NIC for each GPU and its own gathers and scatters
};

// What is asked of it.
struct NcclOp {
  WorkKind kind = WorkKind::AllGather;
  ReduceOp op = ReduceOp::none;
  DType dtype = DType::bf16;
  Bytes bytes = 0;    // the whole gathered, reduced or broadcast tensor
  int pipelined = 1;  // operations of one group on each channel
};

// 0 bandwidth: not available.
struct NcclModel {
  double latency_us = 0, bandwidth = 0;
};
NcclModel nccl_model(const NcclComm& comm, WorkKind kind, NcclAlgorithm a, NcclProtocol p);

// What of that time grows with bytes.
double nccl_moving_us(const NcclComm& comm, const NcclOp& op, NcclAlgorithm a, NcclProtocol p);

// Negative: not available for this operation.
double nccl_time(const NcclComm& comm, const NcclOp& op, NcclAlgorithm a, NcclProtocol p);

struct NcclChoice {
  NcclAlgorithm algorithm = NcclAlgorithm::none;
  NcclProtocol protocol = NcclProtocol::none;
  double us = 0;          // as the tuner expects it
  double latency_us = 0;  // the part of it that does not depend on bytes
  int channels = 0;       // of this operation; each is a thread block
};
NcclChoice nccl_choose(const NcclComm& comm, const NcclOp& op);

// Channels that an operation of these bytes gets.
int nccl_channels(const NcclComm& comm, const NcclOp& op, NcclAlgorithm a, NcclProtocol p);

// Bytes that all channels and heads of an NVLS tree have under way in one round, each one chunk
// (enqueue.cc, calcCollChunking): 16 channels of 8 heads with 64 KiB are 8 MiB.
Bytes nccl_nvls_tree_round(const NcclComm& comm, Bytes bytes);

// What an NVLS tree's bytes take at the rate of a node's 8 heads: the tuner's rate of a channel is of such
// nodes, and more heads give a GPU no less to copy.
double nccl_nvls_tree_of_gpu_us(const NcclComm& comm, Bytes bytes);

// Levels of a tree over the nodes, as the tuner counts them.
int nccl_tree_depth(const NcclComm& comm);

// How many operations of a group NCCL gives one choice: those of one kind, operation and type within
// four times the smallest one's bytes, from the first on.
int nccl_aggregated(std::span<const Bytes> ascending);

}  // namespace shardsim
