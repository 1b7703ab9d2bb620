// Vectors are those of spec/cost-model.md section F, by their numbers; tolerance 0.1 %.
#include "sim/cost/collectives.h"

#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/cluster/catalogue.h"

namespace shardsim {
namespace {

void expect_within(double got, double want, double fraction) {
  EXPECT_NEAR(got, want, want * fraction);
}

Cluster system_of(const char* name, int nodes) {
  Cluster c = find_system(name).value();
  c.nodes = nodes;
  return c;
}

Work collective(WorkKind kind, Bytes bytes, ReduceOp op = ReduceOp::none) {
  Work w;
  w.kind = kind;
  w.bytes = bytes;
  w.dtype = DType::bf16;
  w.op = op;
  return w;
}

CollectiveCost cost(const Cluster& c, const Comm& comm, const Work& w, CollectiveModel model = {}) {
  return collective_cost(c, calibration_of(c.gpu), comm, w, model);
}

CollectiveModel by(CollectiveModel::Backend backend) {
  CollectiveModel m;
  m.backend = backend;
  return m;
}

TEST(Collectives, Vectors22And39RingGathers) {
  const auto gather = [](double alpha, double bus, int64_t n, Bytes s) {
    return ring_us(WorkKind::AllGather, {alpha, bus}, n, s);
  };
  expect_within(gather(9.9, 359, 256, 32 << 20), 2617.6, 1e-4);
  expect_within(gather(5.0, 354, 8, 436'224'000), 1113.2, 1e-4);
  expect_within(gather(7.6, 318, 128, 436'224'000), 2326.3, 1e-4);
  expect_within(gather(4.0, 230, 8, 436'224'000), 1687.5, 1e-4);
  expect_within(gather(5.0, 45, 64, 404'766'720), 9169.3, 1e-4);
}

TEST(Collectives, Vector23TwoLevels) {
  const TwoLevel t = two_level_us(WorkKind::AllGather, {5.9, 354}, {14, 45}, 8, 10, Bytes{1} << 30);
  expect_within(t.inter_us, 2810.4, 1e-4);
  expect_within(t.intra_us, 2695.3, 1e-4);
  expect_within(t.us(), 5505.7, 1e-4);
  expect_within(t.pipelined_us(), 2810.4, 1e-4);
}

TEST(Collectives, Vector24HybridSharding) {
  // 405e6 bf16 gradients: reduce-scatter over 8 on a node, all-reduce of an eighth over 4 nodes.
  Cluster c;
  c.gpus_per_node = 8;
  c.nodes = 4;
  c.intra = {5.9, 354};
  c.inter = {14, 318};
  c.rail = {14, 45};
  const CollectiveModel ring = by(CollectiveModel::Backend::ring);
  expect_within(cost(c, {8, 1, ""}, collective(WorkKind::ReduceScatter, 810'000'000), ring).us,
                2043.4, 1e-4);
  expect_within(cost(c, {4, 8, ""}, collective(WorkKind::AllReduce, 101'250'000), ring).us, 3459.0,
                1e-4);
}

TEST(Collectives, Vector25Padding) {
  EXPECT_EQ(padded_to_16(1'000'002, 8) / 8, 125'008);
  EXPECT_EQ(padded_to_16(1'000'002, 8), 1'000'064);
  EXPECT_EQ(padded_to_16(1'000'064, 8), 1'000'064);
}

TEST(Collectives, UnalignedPartsAreSlow) {
  const Cluster c = system_of("hgx-h100", 1);
  const Comm comm{8, 1, "shard"};
  const CollectiveModel ring = by(CollectiveModel::Backend::ring);
  // 35 us of latency; the rest of 64 MiB + 8 x 8 B over 3.5 times, or 1.5 times, its time.
  const double moving = 7.0 / 8 * 67'108'928 / 354e3;
  expect_within(cost(c, comm, collective(WorkKind::AllGather, 67'108'928), ring).us,
                35 + 3.5 * moving, 1e-9);
  expect_within(cost(c, comm, collective(WorkKind::ReduceScatter, 67'108'928), ring).us,
                35 + 1.5 * moving, 1e-9);
  CollectiveModel padded = ring;
  padded.pad_to_16 = true;
  expect_within(cost(c, comm, collective(WorkKind::AllGather, 67'108'928), padded).us, 35 + moving,
                1e-5);
  // All-reduces have no parts, and LL no packs.
  const double whole = cost(c, comm, collective(WorkKind::AllReduce, 67'108'928), ring).us;
  expect_within(whole, 70 + 2 * moving, 1e-9);
  expect_within(cost(c, comm, collective(WorkKind::AllGather, 4104)).us,
                cost(c, comm, collective(WorkKind::AllGather, 4096)).us, 1e-3);
}

TEST(Collectives, BroadcastAndReduce) {
  // 7 * 5 + 354e6 / 354e3 = 35 + 1000.
  EXPECT_NEAR(ring_us(WorkKind::Broadcast, {5, 354}, 8, 354'000'000), 1035, 1e-9);
  EXPECT_NEAR(ring_us(WorkKind::Reduce, {5, 354}, 8, 354'000'000), 1035, 1e-9);
  EXPECT_EQ(ring_us(WorkKind::AllReduce, {5, 354}, 1, 354'000'000), 2.5);
  const Cluster c = system_of("hgx-h100", 1);
  for (WorkKind k : {WorkKind::Broadcast, WorkKind::Reduce}) {
    const CollectiveCost t = cost(c, {8, 1, ""}, collective(k, 354'000'000));
    EXPECT_EQ(t.algorithm, NcclAlgorithm::ring);
    expect_within(t.us, 1043, 1e-3);
  }
}

TEST(Collectives, LinksByThePlaceOfTheRanks) {
  Cluster c = system_of("dgx-h100", 4);
  const auto bus = [&](int64_t n, int64_t stride) { return link_of(c, n, stride).bus_gbps; };
  EXPECT_EQ(bus(8, 1), 354);
  EXPECT_EQ(bus(4, 1), 354);
  EXPECT_EQ(bus(2, 4), 354);  // ranks 0 and 4 of one node
  EXPECT_EQ(bus(32, 1), 318);
  EXPECT_EQ(bus(4, 8), 47.5);  // one rank a node
  EXPECT_EQ(bus(2, 16), 47.5);
  EXPECT_EQ(bus(8, 4), 95);  // two rails a node
  EXPECT_EQ(link_of(c, 8, 4).alpha_us, 7.6);
  c.rail = {};
  EXPECT_EQ(bus(4, 8), 318.0 / 8);
}

TEST(Collectives, AutomaticTakesNcclsChoice) {
  const Cluster c = system_of("dgx-h100", 2);
  const Comm node{8, 1, "shard"}, world{16, 1, "world"}, rail{2, 8, "replicate"};
  const CollectiveCost gather = cost(c, node, collective(WorkKind::AllGather, 436'224'000));
  EXPECT_EQ(gather.algorithm, NcclAlgorithm::ring);
  EXPECT_EQ(gather.protocol, NcclProtocol::simple);
  EXPECT_EQ(gather.ctas, 24);
  // 43 + 7/8 x 436.224e6 / 354e3.
  expect_within(gather.us, 1121.2, 1e-4);
  const Work sum = collective(WorkKind::AllReduce, 1 << 30, ReduceOp::sum);
  const Work avg = collective(WorkKind::AllReduce, 1 << 30, ReduceOp::avg);
  EXPECT_EQ(cost(c, node, sum).algorithm, NcclAlgorithm::nvls);
  EXPECT_EQ(cost(c, node, sum).ctas, 16);
  EXPECT_EQ(cost(c, node, avg).algorithm, NcclAlgorithm::ring);
  EXPECT_LT(cost(c, node, sum).us, .8 * cost(c, node, avg).us);
  EXPECT_EQ(cost(c, world, sum).algorithm, NcclAlgorithm::nvls_tree);
  EXPECT_EQ(cost(c, rail, avg).channels, 4);  // 1 x 48 GB/s, doubled twice
}

// Published rows (data of nccl-tests), one for each form; what the model is off by is
// `shardsim validate`'s to say.
TEST(Collectives, AutomaticIsNearMeasurements) {
  const Cluster ndr = system_of("dgx-h100", 10), p5 = system_of("aws-p5.48xlarge", 32);
  const auto near = [](const Cluster& c, int64_t ranks, int64_t stride, WorkKind k, Bytes b,
                       double measured, double tolerance) {
    const ReduceOp op = k == WorkKind::AllGather ? ReduceOp::none : ReduceOp::sum;
    expect_within(cost(c, {ranks, stride, ""}, collective(k, b, op)).us, measured, tolerance);
  };
  near(ndr, 80, 1, WorkKind::AllGather, 1'073'740'800, 4001, .05);
  near(ndr, 80, 1, WorkKind::AllGather, 33'553'920, 682.2, .05);
  near(ndr, 80, 1, WorkKind::AllReduce, 1 << 30, 6149, .05);
  near(ndr, 80, 1, WorkKind::AllReduce, 64 << 20, 939.8, .05);
  near(ndr, 10, 8, WorkKind::AllGather, 1'073'741'760, 20610, .05);
  near(ndr, 8, 1, WorkKind::ReduceScatter, 1 << 30, 2742, .05);
  near(ndr, 8, 1, WorkKind::AllReduce, 1 << 30, 4001, .05);
  near(p5, 256, 1, WorkKind::AllGather, 256 << 20, 3099, .05);
  near(p5, 128, 1, WorkKind::AllReduce, 512 << 20, 4760, .05);
  const Cluster racks = system_of("gb200-nvl72", 20);
  near(racks, 144, 1, WorkKind::AllReduce, 1 << 30, 3574, .05);
  near(racks, 1440, 1, WorkKind::AllReduce, 1 << 30, 9806, .1);
}

// Steps inside a rack of 72 are no slower than in a node: two racks' all-reduces start at about 3 us for
// each of 286 steps (github coreweave/nccl-tests), and a gather has half of them.
TEST(Collectives, StepsInsideARack) {
  const Cluster c = system_of("gb200-nvl72", 2);
  EXPECT_LT(cost(c, {144, 1, ""}, collective(WorkKind::AllGather, Bytes{144} << 20)).us, 2000);
}

TEST(Collectives, ALinkOfTheScenarioIsARing) {
  Cluster c = system_of("dgx-h100", 2);
  c.inter = {10, 100, true};
  const Work w = collective(WorkKind::AllReduce, 1 << 30, ReduceOp::sum);
  // 2 (15 x 10 + 15/16 x 1,073,741.824 / 100).
  expect_within(cost(c, {16, 1, ""}, w).us, 20432.7, 1e-5);
  EXPECT_NE(cost(c, {8, 1, ""}, w).us, ring_us(w.kind, c.intra, 8, w.bytes));
  // While bytes move it is full, whatever its NICs could do: 20,132.7 of 20,432.7 us.
  EXPECT_NEAR(cost(c, {16, 1, ""}, w).load.nic, .98532, 1e-4);
}

TEST(Collectives, OversubscriptionBeyondAPod) {
  Cluster c = system_of("dgx-h100", 8);
  const Work w = collective(WorkKind::AllGather, Bytes{4} << 30);
  const CollectiveModel ring = by(CollectiveModel::Backend::ring);
  const double flat = cost(c, {64, 1, ""}, w, ring).us;
  c.network.pod_nodes = 4;
  c.network.oversubscription = 7;
  c.network.hop_us = 2;
  // A quarter of the steps leaves a pod: 7.6 + 2 x 2 / 4 a step, and a seventh of the bandwidth.
  expect_within(cost(c, {64, 1, ""}, w, ring).us, 63 * 8.6 + 63.0 / 64 * 4'294'967.296 * 7 / 318,
                1e-6);
  EXPECT_EQ(cost(c, {32, 1, ""}, w, ring).us, ring_us(w.kind, c.inter, 32, w.bytes));
  EXPECT_GT(cost(c, {64, 1, ""}, w).us, 4 * flat);
  EXPECT_GT(cost(c, {64, 1, ""}, w).load.spine, .8);
  EXPECT_LT(cost(c, {64, 1, ""}, w).load.nic, .2);
  EXPECT_EQ(cost(c, {32, 1, ""}, w).load.spine, 0);
}

TEST(Collectives, LoadsOfLinks) {
  const Cluster c = system_of("dgx-h100", 4);
  const Work big = collective(WorkKind::AllGather, Bytes{4} << 30);
  const Load node = cost(c, {8, 1, ""}, big).load;
  EXPECT_GT(node.nvlink, .98);
  EXPECT_EQ(node.nic, 0);
  const Load world = cost(c, {32, 1, ""}, big).load;
  // 318 GB/s of a node over 8 NICs that give 47.5, and of 354 inside.
  EXPECT_NEAR(world.nic, 318 / 8.0 / 47.5, .05);
  EXPECT_NEAR(world.nvlink, 318 / 354.0, .05);
  const Load rail = cost(c, {4, 8, ""}, big).load;
  EXPECT_GT(rail.nic, .95);
  EXPECT_EQ(rail.nvlink, 0);
  // Of 8 bytes hardly anything moves.
  EXPECT_LT(cost(c, {8, 1, ""}, collective(WorkKind::AllReduce, 8, ReduceOp::sum)).load.nvlink,
            1e-5);
}

TEST(Collectives, Tables) {
  NcclTable table;
  table.file = "sweep.txt";
  table.sweeps = {{"all_gather", 8, 1, {{1 << 20, 100}, {16 << 20, 400}}}};
  CollectiveModel m;
  m.table = std::make_shared<const NcclTable>(table);
  const Cluster c = system_of("dgx-h100", 2);
  const auto us = [&](Bytes b) {
    return cost(c, {8, 1, ""}, collective(WorkKind::AllGather, b), m).us;
  };
  EXPECT_NEAR(us(4 << 20), 200, 1e-9);  // half way, in logarithms
  EXPECT_EQ(us(1 << 10), 100);
  EXPECT_EQ(us(32 << 20), 800);
  const Work reduce = collective(WorkKind::AllReduce, 1 << 20, ReduceOp::sum);
  EXPECT_EQ(cost(c, {8, 1, ""}, reduce, m).us, cost(c, {8, 1, ""}, reduce).us);
  m.backend = CollectiveModel::Backend::table;
  try {
    cost(c, {16, 1, "shard"}, reduce, m);
    FAIL() << "the table has no all-reduce";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "cost.nccl_table: sweep.txt has no all_reduce over 16 ranks on 2 nodes, for "
                 "communicator shard");
    EXPECT_EQ(
        e.hint(),
        "it has all_gather over 8 ranks; with collectives: auto the rest is priced without it");
  }
}

}  // namespace
}  // namespace shardsim
