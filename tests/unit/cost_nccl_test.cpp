// Vectors are those of spec/cost-model.md section F, by their numbers; tolerance 0.1 %.
#include <gtest/gtest.h>

#include <array>

#include "sim/cost/nccl_tuner.h"

namespace shardsim {
namespace {

using A = NcclAlgorithm;
using P = NcclProtocol;

constexpr double kTolerance = 1e-3;
void expect_near(double got, double want) { EXPECT_NEAR(got, want, want * kTolerance); }

NcclNode hopper(int gpus, int nics = 8, double nic = 50) {
  return {90, gpus, 18 * nvlink_rate(90), true, 48, 10, nics, nic};
}

NcclComm comm_of(const NcclNode& node, int64_t nodes, CpuVendor cpu = CpuVendor::intel,
                 NcclVersion version = NcclVersion::v2_28) {
  NcclComm c;
  c.version = version;
  c.compute_capability = node.compute_capability;
  c.nodes = nodes;
  c.ranks = node.gpus * nodes;
  c.graphs = nccl_graphs(node, nodes, version);
  c.cpu = cpu;
  return c;
}

NcclOp op(WorkKind kind, Bytes bytes, ReduceOp reduce = ReduceOp::sum, int pipelined = 1) {
  return {kind, kind == WorkKind::AllGather ? ReduceOp::none : reduce, DType::bf16, bytes,
          pipelined};
}

void expect_graph(const NcclGraph& g, int channels, double intra, double inter) {
  EXPECT_EQ(g.channels, channels);
  EXPECT_EQ(g.bw_intra, intra);
  EXPECT_EQ(g.bw_inter, inter);
}

TEST(NcclGraph, Vectors1To4) {
  const NcclGraphs h = nccl_graphs(hopper(8), 1, NcclVersion::v2_28);
  expect_graph(h.ring, 12, 30, 30);
  expect_graph(h.nvls, 8, 40, 60);
  EXPECT_EQ(h.channels, 24);

  const NcclGraphs a = nccl_graphs({80, 8, 12 * nvlink_rate(80), true, 24, 10, 8, 25}, 1, {});
  expect_graph(a.ring, 12, 20, 20);
  EXPECT_EQ(a.nvls.channels, 0);
  EXPECT_EQ(a.channels, 24);

  const NcclGraphs b = nccl_graphs({100, 8, 18 * nvlink_rate(100), true, 48, 10, 8, 50}, 1, {});
  expect_graph(b.ring, 16, 45, 45);
  expect_graph(b.nvls, 8, 80, 90);
  EXPECT_EQ(b.channels, 32);

  const NcclGraphs four = nccl_graphs(hopper(4), 1, NcclVersion::v2_28);
  expect_graph(four.ring, 12, 30, 30);
  expect_graph(four.nvls, 4, 60, 60);
}

TEST(NcclGraph, BetweenNodes) {
  // DGX A100 8x200 Gb/s 8 x 24, DGX H100 8x400 8 x 48, a rail alone 1 x 48 (spec A.1).
  expect_graph(nccl_graphs({80, 8, 240, true, 24, 10, 8, 25}, 2, {}).ring, 8, 24, 24);
  const NcclGraphs h = nccl_graphs(hopper(8), 10, NcclVersion::v2_28);
  expect_graph(h.ring, 8, 48, 48);
  EXPECT_EQ(h.channels, 16);
  const NcclGraphs rail = nccl_graphs(hopper(1, 1), 8, NcclVersion::v2_28);
  expect_graph(rail.ring, 1, 48, 48);
  EXPECT_EQ(rail.nvls.channels, 0);
  // 2 channels, doubled for Hopper between nodes above 45 GB/s.
  EXPECT_EQ(rail.channels, 4);
  // Four NICs of 100 Gb/s: channels are two a NIC; a tree of two nodes is given 24 GB/s inside them.
  const NcclGraphs four = nccl_graphs({80, 8, 240, true, 24, 10, 4, 12.5}, 2, {});
  EXPECT_EQ(four.channels, 8);
  expect_graph(four.ring, 4, 12, 12);
  expect_graph(four.tree, 4, 24, 12);
}

TEST(NcclGraph, PcieNodesRunOneSlowRing) {
  const NcclGraphs g = nccl_graphs({89, 8, 0, true, 24, 10, 0, 0}, 1, {});
  expect_graph(g.ring, 1, 10, 10);
  EXPECT_EQ(g.channels, 2);
  EXPECT_FALSE(g.nvlink);
  const NcclComm c = comm_of({89, 8, 0, true, 24, 10, 0, 0}, 1);
  EXPECT_LT(nccl_time(c, op(WorkKind::AllReduce, 1 << 20), A::ring, P::ll128), 0);
}

TEST(NcclTuner, Vectors5To9OneHopperNode) {
  const NcclComm c = comm_of(hopper(8), 1);
  const auto check = [&](WorkKind kind, A a, P p, double bandwidth, double latency) {
    const NcclModel m = nccl_model(c, kind, a, p);
    expect_near(m.bandwidth, bandwidth);
    expect_near(m.latency_us, latency);
  };
  check(WorkKind::AllReduce, A::ring, P::simple, 205.71, 56.0);
  check(WorkKind::AllReduce, A::ring, P::ll, 80.57, 15.0);
  check(WorkKind::AllReduce, A::nvls, P::simple, 272.0, 25.0);
  check(WorkKind::AllGather, A::ring, P::simple, 411.43, 32.2);
  check(WorkKind::AllGather, A::nvls, P::simple, 208.25, 25.0);
}

TEST(NcclTuner, Vectors10And11TenNodes) {
  const NcclComm c = comm_of(hopper(8), 10, CpuVendor::amd);
  const NcclModel simple = nccl_model(c, WorkKind::AllGather, A::ring, P::simple);
  expect_near(simple.bandwidth, 388.86);
  expect_near(simple.latency_us, 554.4);
  const NcclModel ll128 = nccl_model(c, WorkKind::AllGather, A::ring, P::ll128);
  expect_near(ll128.bandwidth, 297.32);
  expect_near(ll128.latency_us, 190.0);
}

TEST(NcclTuner, Vector12ThreeNodes) {
  // NVIDIA/nccl issue 1453 logs 43194.9 us.
  const NcclComm c = comm_of(hopper(8, 8, 24), 3);
  EXPECT_EQ(c.graphs.channels, 16);
  expect_near(nccl_time(c, op(WorkKind::AllReduce, Bytes{4} << 30), A::ring, P::simple), 43165.2);
}

TEST(NcclTuner, Vector13OneRankANode) {
  const NcclComm c = comm_of(hopper(1, 1), 8);
  const NcclModel ring = nccl_model(c, WorkKind::AllGather, A::ring, P::simple);
  expect_near(ring.bandwidth, 54.86);
  expect_near(ring.latency_us, 106.4);
  const NcclModel pat = nccl_model(c, WorkKind::AllGather, A::pat, P::simple);
  expect_near(pat.bandwidth, 36.0);
  expect_near(pat.latency_us, 42.4);
}

TEST(NcclTuner, Vectors14To19Choices) {
  const NcclComm c = comm_of(hopper(8), 1);
  const auto check = [&](WorkKind kind, Bytes bytes, A a, P p, double us) {
    const NcclChoice choice = nccl_choose(c, op(kind, bytes));
    EXPECT_EQ(choice.algorithm, a);
    EXPECT_EQ(choice.protocol, p);
    expect_near(choice.us, us);
  };
  check(WorkKind::AllReduce, 1 << 20, A::ring, P::ll, 28.01);
  check(WorkKind::AllReduce, 2 << 20, A::nvls, P::simple, 32.71);
  check(WorkKind::AllReduce, 1 << 30, A::nvls, P::simple, 3972.58);
  check(WorkKind::AllGather, 1 << 20, A::ring, P::ll, 17.31);
  check(WorkKind::AllGather, 64 << 20, A::ring, P::simple, 195.31);
  check(WorkKind::AllGather, 1 << 30, A::ring, P::simple, 2641.99);
}

TEST(NcclTuner, Vector20TwoAmpereNodes) {
  const NcclComm c = comm_of({80, 8, 240, true, 24, 10, 8, 25}, 2, CpuVendor::amd);
  expect_near(nccl_time(c, op(WorkKind::AllGather, 512 << 20), A::ring, P::simple), 2727.8);
}

TEST(NcclTuner, Vector21Aggregation) {
  const NcclComm c = comm_of(hopper(8), 1);
  expect_near(
      nccl_time(c, op(WorkKind::AllGather, 256 << 20, ReduceOp::none, 3), A::ring, P::simple),
      749.05);
  // Within four times the smallest, from it on (src/enqueue.cc).
  const std::array<Bytes, 4> sizes{100, 399, 400, 500};
  EXPECT_EQ(nccl_aggregated(sizes), 2);
}

TEST(NcclTuner, AveragesNeverGetMulticastNorPat) {
  // AVG of floats is a PreMulSum; Sum runs at 476, Avg at 360 GB/s of bus on 8 H100 (spec A.3).
  const NcclComm c = comm_of(hopper(8), 1);
  for (ReduceOp r : {ReduceOp::avg, ReduceOp::premul_sum}) {
    EXPECT_LT(nccl_time(c, op(WorkKind::AllReduce, 1 << 30, r), A::nvls, P::simple), 0);
    const NcclChoice avg = nccl_choose(c, op(WorkKind::AllReduce, 1 << 30, r));
    EXPECT_EQ(avg.algorithm, A::ring);
    // 1 GiB at 360 x 8/14 GB/s and 56 us.
    expect_near(avg.us, 1073741.824 / 205.714 + 56);
  }
  const NcclComm rail = comm_of(hopper(1, 1), 8);
  EXPECT_LT(nccl_time(rail, op(WorkKind::ReduceScatter, 1 << 20, ReduceOp::avg), A::pat, P::simple),
            0);
  EXPECT_GT(nccl_time(rail, op(WorkKind::ReduceScatter, 1 << 20), A::pat, P::simple), 0);
}

TEST(NcclTuner, ChannelsOfAnOperation) {
  const NcclComm c = comm_of(hopper(8), 1);
  const auto channels = [&](WorkKind kind, Bytes bytes) {
    return nccl_choose(c, op(kind, bytes)).channels;
  };
  EXPECT_EQ(channels(WorkKind::AllGather, 1 << 30), 24);  // as the forum's profile shows
  EXPECT_EQ(channels(WorkKind::AllReduce, 1 << 30), 16);  // NVLS
  EXPECT_EQ(channels(WorkKind::AllReduce, 4), 1);
  // LL: while bytes < n x 512 x 8 x 8 ranks; 256 KiB are 8 channels.
  EXPECT_EQ(channels(WorkKind::AllGather, 256 << 10), 8);
  EXPECT_EQ(nccl_choose(comm_of(hopper(8), 10), op(WorkKind::AllGather, 1 << 30)).channels, 16);
}

TEST(NcclTuner, VersionTwoThirty) {
  const NcclNode node{100, 8, 18 * nvlink_rate(100), true, 48, 10, 8, 50};
  const auto ll128 = [&](NcclVersion v) {
    return nccl_model(comm_of(node, 4, CpuVendor::intel, v), WorkKind::AllGather, A::ring, P::ll128)
        .bandwidth;
  };
  // .92 x 384 against 8 channels x 40 GB/s.
  expect_near(ll128(NcclVersion::v2_28), 353.28 * 32 / 31);
  expect_near(ll128(NcclVersion::v2_30), 320.0 * 32 / 31);
}

TEST(NcclTuner, APluginsTunerTakesRingsForNvlsTrees) {
  NcclComm c = comm_of(hopper(8), 8);
  EXPECT_EQ(nccl_choose(c, op(WorkKind::AllReduce, 1 << 30)).algorithm, A::nvls_tree);
  c.rings_for_nvls_tree = true;
  EXPECT_EQ(nccl_choose(c, op(WorkKind::AllReduce, 1 << 30)).algorithm, A::ring);
}

// calcCollChunking (enqueue.cc): 16 channels x 8 heads x 64 KiB from 4 nodes on, 128 KiB below, less
// where 4 or 1 such rounds are more than there is.
TEST(NcclTuner, RoundsOfAnNvlsTree) {
  const NcclComm ten = comm_of(hopper(8), 10), two = comm_of(hopper(8), 2);
  EXPECT_EQ(nccl_nvls_tree_round(ten, 64 << 20), 8 << 20);
  EXPECT_EQ(nccl_nvls_tree_round(ten, 4 << 20), 4 << 20);
  EXPECT_EQ(nccl_nvls_tree_round(two, 64 << 20), 16 << 20);
  EXPECT_EQ(nccl_nvls_tree_round(two, 63 << 20), 8 << 20);
  // 4 heads have half of it.
  EXPECT_EQ(nccl_nvls_tree_round(comm_of(hopper(4, 4), 10), 64 << 20), 4 << 20);
}

// 8 heads x 43.8 GB/s of bus over 20 racks of 72, however many heads they have: 1 GiB takes
// 2 x 1439/1440 x 2^30 / 350.4e3 us.
TEST(NcclTuner, AnNvlsTreeOfARackMovesWhatANodesDoes) {
  const NcclComm racks =
      comm_of({100, 72, 18 * nvlink_rate(100), true, 48, 10, 72, 50}, 20, CpuVendor::other);
  EXPECT_EQ(racks.graphs.nvls.channels, 32);
  expect_near(nccl_nvls_tree_of_gpu_us(racks, 1 << 30), 6124.5);
}

TEST(NcclTuner, ReducedPrecisionRingsAreTheLastResort) {
  const NcclComm c = comm_of(hopper(8), 2);
  NcclOp o = op(WorkKind::AllReduce, 1 << 30);
  o.dtype = DType::fp8;
  EXPECT_NE(nccl_choose(c, o).algorithm, A::ring);
}

}  // namespace
}  // namespace shardsim
