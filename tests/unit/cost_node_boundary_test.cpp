#include "sim/cost/node_boundary.h"

#include <gtest/gtest.h>

#include "sim/cluster/catalogue.h"

namespace shardsim {
namespace {

Cluster nodes_of(int gpus, int nodes) {
  Cluster c = *find_system("dgx-h100");
  c.gpus_per_node = gpus;
  c.nodes = nodes;
  return c;
}

// User case UC108: bf16 parameters of P = 8e9, 16 ranks on 2 nodes, one pass: 2 P (R-1)/R through each
// node's boundary, at least 2 P (n-1)/n.
TEST(NodeBoundary, FlatRingOverTwoNodes) {
  const NodeBoundary b =
      node_boundary(nodes_of(8, 2), {16, 1, "shard"}, WorkKind::AllGather, 16'000'000'000);
  EXPECT_EQ(b.nodes, 2);
  EXPECT_EQ(b.ring, 15'000'000'000);
  EXPECT_EQ(b.least, 8'000'000'000);
  EXPECT_EQ(b.steps_inside, 14);
  EXPECT_EQ(b.steps_between, 1);
}

// HSDP over 4 nodes of 8: the 8 all-reduces of 1e9 bytes each put 2 x 3/4 x 8e9 on the boundary, and
// with one rank a node the ring is the least.
TEST(NodeBoundary, ReplicasSideBySide) {
  const NodeBoundary b =
      node_boundary(nodes_of(8, 4), {4, 8, "replicate"}, WorkKind::AllReduce, 1'000'000'000);
  EXPECT_EQ(b.nodes, 4);
  EXPECT_EQ(b.ring, 12'000'000'000);
  EXPECT_EQ(b.least, b.ring);
  EXPECT_EQ(b.steps_inside, 0);
  EXPECT_EQ(b.steps_between, 6);
}

// User case UC076, nodes of 12: a flat group of 24 crosses, one of 12 does not, and one of 12 beside
// tensor parallelism of 2 inside does (ranks 0, 2, .. 22).
TEST(NodeBoundary, WhichGroupsCross) {
  const Cluster c = nodes_of(12, 2);
  const auto crosses = [&](int64_t ranks, int64_t stride) {
    return node_boundary(c, {ranks, stride, "shard"}, WorkKind::AllGather, 24).nodes > 1;
  };
  EXPECT_TRUE(crosses(24, 1));
  EXPECT_FALSE(crosses(12, 1));
  EXPECT_TRUE(crosses(12, 2));
  EXPECT_EQ(node_boundary(c, {12, 1, "shard"}, WorkKind::AllGather, 24).ring, 0);
}

// NCCL 2.28.9's nInterSteps: of an all-reduce's 2 (16 - 1) steps over 2 nodes, 2 (2 - 1).
TEST(NodeBoundary, StepsOfAnAllReduce) {
  const NodeBoundary b = node_boundary(nodes_of(8, 2), {16, 1, "shard"}, WorkKind::AllReduce, 16);
  EXPECT_EQ(b.steps_inside, 28);
  EXPECT_EQ(b.steps_between, 2);
}

}  // namespace
}  // namespace shardsim
