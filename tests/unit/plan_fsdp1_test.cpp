// FSDP1's flat parameters and units: fsdp1-ddp-zero-runtime section 8, vectors 1-18, 30 and 31 (recorded
// with PyTorch 2.15, or what its own functions return).
#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/plan/flat_layout.h"
#include "sim/plan/plan_fsdp1.h"
#include "sim/plan/size_policy.h"

namespace shardsim {
namespace {

using Sizes = std::vector<int64_t>;

FlatLayout lay(const Sizes& sizes, int64_t ranks, DType forward, bool use_orig_params) {
  return flat_layout(sizes, ranks, forward, use_orig_params);
}

struct Expected {
  const char* vector;
  Sizes sizes;
  int64_t ranks;
  DType forward;
  bool use_orig_params;
  int64_t length, shard;
};

TEST(FlatLayout, Vectors1To10) {
  const std::vector<Expected> all{
      {"1", {3, 5}, 4, DType::bf16, false, 8, 2},
      {"2", {3, 5}, 4, DType::bf16, true, 16, 4},
      {"4", {3, 5}, 4, DType::fp32, true, 12, 3},
      {"6", {7}, 4, DType::bf16, false, 7, 2},
      {"6, use_orig_params", {7}, 4, DType::bf16, true, 8, 2},
      {"7", {5}, 4, DType::bf16, false, 5, 2},
      {"8", {5, 6, 7}, 8, DType::bf16, false, 18, 3},
      {"8, use_orig_params", {5, 6, 7}, 8, DType::bf16, true, 24, 3},
      {"9", {1, 1, 1}, 2, DType::bf16, true, 18, 9},
      {"10", {16'777'216, 4096}, 8, DType::bf16, true, 16'781'312, 2'097'664},
  };
  for (const Expected& e : all) {
    const FlatLayout x = lay(e.sizes, e.ranks, e.forward, e.use_orig_params);
    EXPECT_EQ(x.length, e.length) << e.vector;
    EXPECT_EQ(x.shard, e.shard) << e.vector;
  }
  EXPECT_EQ(lay({3, 5}, 4, DType::bf16, true).padding(), 5 + 3);
  EXPECT_EQ(lay({3, 5}, 4, DType::fp32, true).padding(), 1 + 3);
  EXPECT_EQ(lay({5, 6, 7}, 8, DType::bf16, true).padding(), 3 + 2 + 1);
  EXPECT_EQ(lay({5, 6, 7}, 8, DType::bf16, false).gathered(), 24);
}

TEST(FlatLayout, RealElementsOfEveryRank) {
  const auto real = [](const FlatLayout& x) {
    Sizes out;
    for (int64_t r = 0; r < x.ranks; ++r) out.push_back(x.of_rank(r).size());
    return out;
  };
  EXPECT_EQ(real(lay({7}, 4, DType::bf16, false)), (Sizes{2, 2, 2, 1}));  // 6
  EXPECT_TRUE(lay({7}, 4, DType::bf16, false).pad_copy());
  EXPECT_FALSE(lay({7}, 4, DType::bf16, true).pad_copy());
  EXPECT_EQ(real(lay({5}, 4, DType::bf16, false)), (Sizes{2, 2, 1, 0}));                    // 7
  EXPECT_EQ(real(lay({5, 6, 7}, 8, DType::bf16, false)), (Sizes{3, 3, 3, 3, 3, 3, 0, 0}));  // 8
}

// Vectors 11 and 12: which elements of each parameter a rank holds.
TEST(FlatLayout, ShardMaps) {
  const auto map = [](bool use_orig_params) {
    const FlatLayout x = lay({3, 5}, 4, DType::bf16, use_orig_params);
    std::vector<std::pair<int64_t, int64_t>> out;
    for (int64_t r = 0; r < 4; ++r)
      for (size_t p = 0; p < 2; ++p) {
        const FlatLayout::Range range = x.of_param(p, r);
        out.emplace_back(range.size() ? range.begin : -1, range.size() ? range.end - 1 : -1);
      }
    return out;
  };
  using Map = std::vector<std::pair<int64_t, int64_t>>;
  const std::pair<int64_t, int64_t> none{-1, -1};
  EXPECT_EQ(map(true), (Map{{0, 2}, none, none, none, none, {0, 3}, none, {4, 4}}));
  EXPECT_EQ(map(false), (Map{{0, 1}, none, {2, 2}, {0, 0}, none, {1, 2}, none, {3, 4}}));
}

// A module with its own elements and its children.
struct Tree {
  int64_t own = 0;
  std::vector<Tree> children;
  Module::Kind kind = Module::Kind::plain;
};

ModuleId grow(Model& model, const Tree& tree, ModuleId parent) {
  const ModuleId id{static_cast<uint32_t>(model.modules.size())};
  Module m;
  m.parent = parent;
  m.index = static_cast<int32_t>(id.v);
  m.kind = tree.kind;
  m.first_param = static_cast<uint32_t>(model.params.size());
  m.own_params = tree.own > 0 ? 1 : 0;
  model.modules.push_back(m);
  if (tree.own > 0) model.params.push_back({id, "weight", -1, Shape::of(tree.own), {}});
  for (const Tree& child : tree.children) grow(model, child, id);
  model.modules[id.v].end = static_cast<uint32_t>(model.modules.size());
  model.modules[id.v].end_param = static_cast<uint32_t>(model.params.size());
  return id;
}

// Elements of each unit, the root's last.
Sizes units(const Tree& tree, int64_t min_num_params) {
  Model model;
  grow(model, tree, {});
  Training t;
  t.strategy = Strategy::fsdp1;
  t.wrap.policy = WrapPolicy::size;
  t.wrap.min_params = min_num_params;
  Sizes out;
  for (const Group& g : build_plan(model, t).groups) out.push_back(g.numel);
  return out;
}

TEST(SizePolicy, Vectors13To17) {
  const Tree nested{5, {{10, {{60, {}}, {50, {}}}}, {120, {}}}};
  EXPECT_EQ(units(nested, 100), (Sizes{120, 120, 5}));
  EXPECT_EQ(units(nested, 50), (Sizes{60, 50, 120, 15}));
  EXPECT_EQ(units(nested, 200), (Sizes{245}));
  const Tree lists{30, {{0, {{40, {}}, {70, {}}, {40, {}}}, Module::Kind::module_list}, {90, {}}}};
  EXPECT_EQ(units(lists, 60), (Sizes{70, 90, 110}));
  EXPECT_EQ(units(lists, 80), (Sizes{90, 180}));
  const Tree attention{0, {{50, {{120, {}}}, Module::Kind::multihead_attention}, {100, {}}}};
  EXPECT_EQ(units(attention, 100), (Sizes{100, 170}));
}

TEST(DivideFactors, Vector18) {
  const std::vector<std::array<double, 3>> all{{1, 1, 1}, {2, 2, 1},  {4, 2, 2},  {6, 4, 1.5},
                                               {8, 4, 2}, {16, 4, 4}, {64, 8, 8}, {128, 16, 8}};
  for (const auto& [world, before, after] : all) {
    const double f = gradient_predivide_factor(static_cast<int64_t>(world));
    EXPECT_EQ(f, before) << world;
    EXPECT_EQ(world / f, after) << world;
  }
}

struct Planned {
  Model model;
  Plan plan;
};

// 4 units (1000 x 1000, 1000), a root of 500000, 8 ranks.
Planned vector30(Training& t) {
  Architecture a;
  a.family = Family::stack;
  a.naming = Naming::recorder_fsdp1;
  a.hidden = 1000;
  a.bias = true;
  a.linear_blocks.assign(4, {{1000, 1000}});
  a.root_last = {500, 1000};
  t.strategy = Strategy::fsdp1;
  t.mesh.shard = 8;
  t.precision.compute = DType::bf16;
  t.precision.reduce = DType::fp32;
  t.fsdp1.use_orig_params = true;
  Planned p;
  p.model = build_model(a);
  p.plan = build_plan(p.model, t);
  return p;
}

TEST(PlanFsdp1, Vector30And31) {
  Training t;
  const Planned p = vector30(t);
  ASSERT_EQ(p.plan.groups.size(), 5u);
  const Group& unit = p.plan.groups[0];
  EXPECT_EQ(unit.flat, 1'001'000);
  EXPECT_EQ(unit.shard, 125'125);
  EXPECT_EQ(unit.shard * bytes_of(t.precision.storage), 500'500);
  EXPECT_EQ(unit.shard * bytes_of(compute_dtype(t.precision)), 250'250);
  EXPECT_EQ(all_gather_bytes(unit, t.precision), 2'002'000);
  EXPECT_EQ(reduce_scatter_bytes(unit, p.model, t), 4'004'000);
  Bytes resident = 0, gathered = 0, reduced = 0;
  for (const Group& g : p.plan.groups) {
    const bool root = p.plan.states[g.state].root;
    resident += 16 * g.shard;  // parameters, gradients and Adam's two moments in fp32
    gathered += (root ? 1 : 2) * all_gather_bytes(g, t.precision) * 7 / 8;
    reduced += reduce_scatter_bytes(g, p.model, t) * 7 / 8;
  }
  EXPECT_EQ(resident, 9'008'000);
  EXPECT_EQ(gathered, 14'889'000);
  EXPECT_EQ(reduced, 15'764'000);
}

TEST(PlanFsdp1, StatesStandInPreOrderTheRootFirst) {
  Training t;
  const Planned p = vector30(t);
  ASSERT_EQ(p.plan.states.size(), 5u);
  EXPECT_TRUE(p.plan.states[0].root);
  EXPECT_EQ(p.plan.states[0].reshard, Reshard::Kind::no);
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(p.plan.states[i].modules[0], p.model.blocks[i - 1]);
    EXPECT_EQ(p.plan.states[i].reshard, Reshard::Kind::yes);
  }
  EXPECT_TRUE(p.plan.groups.back().modules[0].v == 0);  // constructed last
}

TEST(PlanFsdp1, NoShardKeepsTheWhole) {
  Training t;
  t.fsdp1.sharding_strategy = ShardingStrategy::no_shard;
  const Planned p = vector30(t);
  EXPECT_EQ(p.plan.groups[0].shard, 1'001'000);
  EXPECT_EQ(p.plan.groups[0].params[0].local, 1'000'000);
  Training one;
  one.mesh.shard = 1;
  EXPECT_EQ(effective_sharding_strategy(one), ShardingStrategy::no_shard);
}

TEST(PlanFsdp1, GradientsAreReducedInTheComputeTypeWhereNoneIsGiven) {
  Training t;
  t.strategy = Strategy::fsdp1;
  t.precision.compute = DType::bf16;
  EXPECT_EQ(reduce_dtype(t), DType::bf16);
  t.strategy = Strategy::fsdp2;
  EXPECT_EQ(reduce_dtype(t), DType::fp32);
}

// The words of PyTorch 2.15, which refuses these programs (recorded), or trains something else.
std::string refusal(const Training& t, Architecture a) {
  Model model = build_model(a);
  freeze(model, t.frozen);
  try {
    build_plan(model, t);
  } catch (const Error& e) {
    return e.hint();
  }
  return "accepted";
}

TEST(PlanFsdp1, Refusals) {
  Architecture a;
  a.family = Family::stack;
  a.naming = Naming::recorder_fsdp1;
  a.hidden = 64;
  a.linear_blocks.assign(2, {{64, 64}, {64, 64}});
  Training t;
  t.strategy = Strategy::fsdp1;
  t.mesh.shard = 4;
  t.frozen = {"layers.0.0.*"};
  EXPECT_NE(
      refusal(t, a).find("layers.0 has both parameters with requires_grad=True and False. FSDP "
                         "does not support wrapping such modules when use_orig_params=False."),
      std::string::npos);
  t.wrap.policy = WrapPolicy::root_only;
  EXPECT_NE(refusal(t, a).find("Must flatten tensors with uniform `requires_grad` when "
                               "`use_orig_params=False`"),
            std::string::npos);
  t.fsdp1.use_orig_params = true;
  EXPECT_EQ(refusal(t, a), "accepted");
  t.fsdp1.sharding_strategy = ShardingStrategy::hybrid_shard;
  EXPECT_NE(
      refusal(t, a).find("Manual wrapping with ShardingStrategy.HYBRID_SHARD requires explicit "
                         "specification of process group or device_mesh."),
      std::string::npos);
  t.mesh.replicate = 2;
  EXPECT_EQ(refusal(t, a), "accepted");
  t.fsdp1.sharding_strategy = ShardingStrategy::no_shard;
  EXPECT_NE(refusal(t, a).find("the mesh's first dimension"), std::string::npos);
}

}  // namespace
}  // namespace shardsim
