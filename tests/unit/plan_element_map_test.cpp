// Which elements each rank stores: fsdp1-ddp-zero-runtime section 8, vectors 1-12, and the example of two
// parameters of 3 and 5 elements on 4 ranks in bf16, 2 / 4 / 3 elements a rank.
#include "sim/plan/element_map.h"

#include <gtest/gtest.h>

#include <string>

namespace shardsim {
namespace {

using Sizes = std::vector<int64_t>;

struct Packed {
  Model model;
  PackedGroup group;
};

Packed packed(const Sizes& sizes, int64_t ranks, DType type, Packing packing,
              Strategy strategy = Strategy::fsdp2) {
  Architecture a;
  a.family = Family::bag;
  a.hidden = 16;
  a.bag_blocks.emplace_back();
  for (int64_t n : sizes) a.bag_blocks[0].push_back({n});
  Training t;
  t.strategy = strategy;
  t.mesh.shard = ranks;
  t.precision.storage = type;
  Packed p;
  p.model = build_model(a);
  const Plan plan = build_plan(p.model, t);
  p.group = pack(p.model, plan.groups[0], t, packing);
  return p;
}

// "0:0-1 1:0" is p0[0..1] and p1[0]; a, w, c and o are paddings of alignment, world, chunk, own.
std::string pieces(const PackedGroup& g, int64_t rank) {
  std::string out;
  for (const Piece& p : g.pieces(rank)) {
    if (!out.empty()) out += " ";
    if (p.of == Piece::Of::own)
      out += std::to_string(p.param) + ":o" + std::to_string(p.count);
    else if (p.padding())
      out += std::string(name_of(p.of).substr(0, 1)) + std::to_string(p.count);
    else
      out += std::to_string(p.param) + ":" + std::to_string(p.begin) +
             (p.count > 1 ? "-" + std::to_string(p.begin + p.count - 1) : "");
  }
  return out;
}

std::vector<std::string> map(const PackedGroup& g) {
  std::vector<std::string> out;
  for (int64_t r = 0; r < g.ranks; ++r) out.push_back(pieces(g, r));
  return out;
}

using Map = std::vector<std::string>;

TEST(ElementMap, ThreeAndFiveOnFourRanks) {
  for (const Strategy strategy : {Strategy::fsdp1, Strategy::fsdp2}) {
    const auto of = [&](Packing p) { return packed({3, 5}, 4, DType::bf16, p, strategy).group; };
    EXPECT_EQ(of(Packing::fsdp1).shard, 2);
    EXPECT_EQ(map(of(Packing::fsdp1)), (Map{"0:0-1", "0:2 1:0", "1:1-2", "1:3-4"}));  // 12
    EXPECT_EQ(of(Packing::fsdp1_orig_params).shard, 4);
    EXPECT_EQ(map(of(Packing::fsdp1_orig_params)),
              (Map{"0:0-2 a1", "a4", "1:0-3", "1:4 w3"}));  // 11
    EXPECT_EQ(of(Packing::fsdp2).shard, 3);
    EXPECT_EQ(map(of(Packing::fsdp2)),
              (Map{"0:0 1:0-1", "0:1 1:2-3", "0:2 1:4 1:o1", "0:o1 1:o2"}));
  }
}

TEST(ElementMap, PaddingBelongsToSomeone) {
  const auto owners = [](const PackedGroup& g) {
    std::string out;
    for (const Piece& p : g.padding_by_owner())
      out += std::string(name_of(p.of)) + " " + std::to_string(p.param) + " " +
             std::to_string(p.count) + ";";
    return out;
  };
  const auto of = [&](const Sizes& sizes, int64_t ranks, DType t, Packing p) {
    return owners(packed(sizes, ranks, t, p).group);
  };
  const Packing orig = Packing::fsdp1_orig_params;
  EXPECT_EQ(of({3, 5}, 4, DType::bf16, Packing::fsdp1), "");                // 1
  EXPECT_EQ(of({3, 5}, 4, DType::bf16, orig), "alignment 1 5;world 1 3;");  // 2
  EXPECT_EQ(of({3, 5}, 4, DType::bf16, Packing::fsdp2),                     // 3
            "parameter's own 0 1;parameter's own 1 3;");
  EXPECT_EQ(of({3, 5}, 4, DType::fp32, orig), "alignment 1 1;world 1 3;");  // 4
  EXPECT_EQ(of({7}, 4, DType::bf16, Packing::fsdp1), "chunk 0 1;");         // 6
  EXPECT_EQ(of({7}, 4, DType::bf16, orig), "world 0 1;");                   // 6
  EXPECT_EQ(of({5}, 4, DType::bf16, Packing::fsdp1), "chunk 0 3;");         // 7
  EXPECT_EQ(of({5, 6, 7}, 8, DType::bf16, Packing::fsdp1), "chunk 2 6;");   // 8
  EXPECT_EQ(of({5, 6, 7}, 8, DType::bf16, orig), "alignment 1 3;alignment 2 2;world 2 1;");
  EXPECT_EQ(of({1, 1, 1}, 2, DType::bf16, orig), "alignment 1 7;alignment 2 7;world 2 1;");  // 9
  EXPECT_EQ(of({16'777'216, 4096}, 8, DType::bf16, orig), "");                               // 10
}

// Vector 6: 2, 2, 2, 1 real elements; vector 8: 3 on six ranks, none on the last two.
TEST(ElementMap, LastChunks) {
  EXPECT_EQ(map(packed({7}, 4, DType::bf16, Packing::fsdp1).group),
            (Map{"0:0-1", "0:2-3", "0:4-5", "0:6 c1"}));
  EXPECT_EQ(map(packed({5}, 4, DType::bf16, Packing::fsdp1).group),
            (Map{"0:0-1", "0:2-3", "0:4 c1", "c2"}));
  const PackedGroup g = packed({5, 6, 7}, 8, DType::bf16, Packing::fsdp1).group;
  EXPECT_EQ(pieces(g, 1), "0:3-4 1:0");
  EXPECT_EQ(pieces(g, 5), "2:4-6");
  EXPECT_EQ(pieces(g, 6), "c3");
  EXPECT_EQ(pieces(g, 7), "c3");
}

// DeepSpeed's flat buffer on 4 ranks is padded to a multiple of 8 (vector 41's rule): 8 elements are 2 a
// rank; 9 are 16, 4 a rank. Round robin (42) places p0 p2 p1 on 2 ranks.
TEST(ElementMap, DeepSpeed) {
  const auto of = [](const Sizes& sizes, int64_t ranks, Strategy strategy, bool robin = false) {
    Architecture a;
    a.family = Family::bag;
    a.hidden = 16;
    a.bag_blocks.emplace_back();
    for (int64_t n : sizes) a.bag_blocks[0].push_back({n});
    Training t;
    t.strategy = strategy;
    t.mesh.shard = ranks;
    t.zero.round_robin_gradients = robin;
    const Model model = build_model(a);
    return pack(model, build_plan(model, t).groups[0], t, *packing_of(t));
  };
  EXPECT_EQ(map(of({3, 5}, 4, Strategy::zero1)), (Map{"0:0-1", "0:2 1:0", "1:1-2", "1:3-4"}));
  EXPECT_EQ(map(of({3, 6}, 4, Strategy::zero2)), (Map{"0:0-2 1:0", "1:1-4", "1:5 w3", "w4"}));
  EXPECT_EQ(of({1003}, 4, Strategy::zero2).shard, 252);
  EXPECT_EQ(of({1003}, 4, Strategy::zero2).padding(), 5);
  const PackedGroup robin = of({2, 3, 3}, 2, Strategy::zero1, true);
  EXPECT_EQ(robin.params[1].id.v, 2u);
  EXPECT_EQ(map(robin), (Map{"0:0-1 1:0-1", "1:2 2:0-2"}));
}

// Every packing holds every element once, and fills each rank.
TEST(ElementMap, NothingIsLostOrHeldTwice) {
  for (const Packing packing : kPackings)
    for (const int64_t ranks : {1, 2, 3, 5, 8, 64}) {
      const Sizes sizes{1, 17, 4, 1000, 3, 63, 8};
      const PackedGroup g = packed(sizes, ranks, DType::bf16, packing).group;
      std::vector<std::vector<int>> seen;
      for (int64_t n : sizes) seen.emplace_back(static_cast<size_t>(n), 0);
      int64_t padding = 0;
      for (int64_t r = 0; r < ranks; ++r) {
        int64_t stored = 0;
        for (const Piece& p : g.pieces(r)) {
          stored += p.count;
          if (p.padding())
            padding += p.count;
          else
            for (int64_t i = 0; i < p.count; ++i) ++seen[p.param][static_cast<size_t>(p.begin + i)];
        }
        EXPECT_EQ(stored, g.shard);
      }
      EXPECT_EQ(padding, g.padding());
      for (const auto& param : seen)
        for (const int times : param) EXPECT_EQ(times, 1);
      int64_t owned = 0;
      for (const Piece& p : g.padding_by_owner()) owned += p.count;
      EXPECT_EQ(owned, padding);
    }
}

}  // namespace
}  // namespace shardsim
