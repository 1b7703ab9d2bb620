// Which parameters meet in one group: fsdp2-runtime section 1 and vector 14, every wrapping policy.
#include "sim/plan/wrap.h"

#include <gtest/gtest.h>

#include <string>

#include "sim/base/error.h"
#include "sim/plan/plan.h"

namespace shardsim {
namespace {

// `blocks` blocks of two linears with biases: layers.<i>.0 and layers.<i>.1, 4 parameters each block:
// [2048, 512], [2048], [512, 2048], [512].
Model stack(int blocks, bool root = false) {
  Architecture a;
  a.family = Family::stack;
  a.hidden = 512;
  a.bias = true;
  a.linear_blocks.assign(static_cast<size_t>(blocks), {{2048, 512}, {512, 2048}});
  if (root) {
    a.root_first = {512, 512};
    a.root_last = {512, 512};
  }
  return build_model(a);
}

Model llama(int64_t layers, bool tied = false) {
  Architecture a;
  a.vocab = 64;
  a.hidden = 32;
  a.layers = layers;
  a.ffn = 48;
  a.heads = 4;
  a.kv_heads = 2;
  a.head_dim = 8;
  a.tied = tied;
  return build_model(a);
}

Training training(WrapPolicy policy, std::vector<std::vector<std::string>> patterns = {}) {
  Training t;
  t.mesh.shard = 2;
  t.wrap.policy = policy;
  t.wrap.groups = std::move(patterns);
  return t;
}

std::string error_of(const Model& model, const Training& t) {
  try {
    build_plan(model, t);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// "layers.0:4 root:2": the groups in the order of the calls, with their number of parameters.
std::string groups(const Model& model, const Plan& plan) {
  std::string out;
  for (const Group& g : plan.groups)
    out += (out.empty() ? "" : " ") + g.name(model) + ":" + std::to_string(g.params.size());
  return out;
}

std::string groups(const Model& model, const Training& t) {
  return groups(model, build_plan(model, t));
}

std::string states(const Model& model, const Plan& plan) {
  std::string out;
  for (const ShardState& s : plan.states) {
    out += out.empty() ? "" : " ";
    for (size_t i = 0; i < s.modules.size(); ++i)
      out += (i ? "," : "") + (s.root ? std::string("root") : model.module_name(s.modules[i]));
  }
  return out;
}

// Sequential(MLP, MLP): fully_shard(0.in_proj), (0.out_proj), root -> states [root, 0.in_proj,
// 0.out_proj]; the root owns module 1's four parameters.
TEST(PlanWrap, Vector14) {
  const Model m = stack(2);
  const Training t = training(WrapPolicy::list, {{"layers.0.0"}, {"layers.0.1"}});
  const Plan plan = build_plan(m, t);
  EXPECT_EQ(states(m, plan), "root layers.0.0 layers.0.1");
  EXPECT_EQ(groups(m, plan), "layers.0.0:2 layers.0.1:2 root:4");
  for (const ShardedParam& p : plan.groups[2].params)
    EXPECT_TRUE(m.param_name(p.id).starts_with("layers.1.")) << m.param_name(p.id);
}

TEST(PlanWrap, RootOnly) {
  const Model m = stack(3, true);
  EXPECT_EQ(groups(m, training(WrapPolicy::root_only)), "root:14");
}

TEST(PlanWrap, PerBlock) {
  const Model m = stack(3, true);
  EXPECT_EQ(groups(m, training(WrapPolicy::per_block)), "layers.0:4 layers.1:4 layers.2:4 root:2");
  // A root with no parameters left makes a state, but no group.
  const Plan bare = build_plan(stack(3), training(WrapPolicy::per_block));
  EXPECT_EQ(bare.states.size(), 4u);
  EXPECT_EQ(bare.groups.size(), 3u);
  EXPECT_TRUE(bare.states[0].root);
  EXPECT_FALSE(bare.states[0].group.valid());
}

// k blocks are one list group; the last takes what is left.
TEST(PlanWrap, EveryK) {
  const Model m = stack(5);
  Training t = training(WrapPolicy::every_k);
  t.wrap.every = 2;
  EXPECT_EQ(groups(m, t), "layers.0,layers.1:8 layers.2,layers.3:8 layers.4:4");
  const Plan plan = build_plan(m, t);
  EXPECT_EQ(states(m, plan), "root layers.0,layers.1 layers.2,layers.3 layers.4");
  EXPECT_EQ(plan.state_of[m.blocks[1].v], 1);  // both members belong to one state
  EXPECT_EQ(plan.groups[0].numel, 2 * (2 * 2048 * 512 + 2048 + 512));
}

// Children first, then the block, whose state has nothing left.
TEST(PlanWrap, NestedAndChildren) {
  const Model m = stack(2, true);
  const std::string children = "layers.0.0:2 layers.0.1:2 layers.1.0:2 layers.1.1:2 root:2";
  EXPECT_EQ(groups(m, training(WrapPolicy::nested)), children);
  EXPECT_EQ(groups(m, training(WrapPolicy::children)), children);
  const Plan nested = build_plan(m, training(WrapPolicy::nested));
  EXPECT_EQ(states(m, nested),
            "root layers.0 layers.0.0 layers.0.1 layers.1 layers.1.0 layers.1.1");
  EXPECT_FALSE(nested.states[1].group.valid());
  EXPECT_EQ(build_plan(m, training(WrapPolicy::children)).states.size(), 5u);
}

// Nested on a Llama block: norms, attention and MLP are its children.
TEST(PlanWrap, NestedDecoder) {
  const Model m = llama(1);
  EXPECT_EQ(groups(m, training(WrapPolicy::nested)),
            "model.layers.0.input_layernorm:1 model.layers.0.self_attn:4 "
            "model.layers.0.post_attention_layernorm:1 model.layers.0.mlp:3 root:3");
}

// Each match is its own call, deeper ones first; a module that holds a wrapped one keeps the rest.
TEST(PlanWrap, List) {
  const Model m = llama(2);
  EXPECT_EQ(groups(m, training(WrapPolicy::list, {{"model.layers.0"}, {"*.mlp"}})),
            "model.layers.0.mlp:3 model.layers.1.mlp:3 model.layers.0:6 root:9");
}

TEST(PlanWrap, Groups) {
  const Model m = llama(2);
  // Members nested in another member are dropped.
  EXPECT_EQ(groups(m, training(WrapPolicy::groups,
                               {{"model.layers.0", "model.layers.0.mlp", "model.layers.1"}})),
            "model.layers.0,model.layers.1:18 root:3");
  EXPECT_EQ(groups(m, training(WrapPolicy::groups, {{"model.norm", "lm_head"}, {"*.mlp"}})),
            "model.layers.0.mlp,model.layers.1.mlp:6 model.norm,lm_head:2 root:13");
}

TEST(PlanWrap, EmbeddingAndHead) {
  const Model m = llama(2);
  Training t = training(WrapPolicy::per_block);
  t.wrap.embedding = t.wrap.head = true;
  const Plan plan = build_plan(m, t);
  EXPECT_EQ(groups(m, plan),
            "model.layers.0:9 model.layers.1:9 model.embed_tokens:1 model.norm,lm_head:2");
  // The head is not resharded unless told to.
  EXPECT_EQ(plan.states[plan.groups[3].state].reshard, Reshard::Kind::no);
  EXPECT_EQ(plan.states[plan.groups[2].state].reshard, Reshard::Kind::yes);
}

// size_based_auto_wrap_policy: recurse while a module has min_params, wrap it if what its children
// left has min_params and it is no ModuleList. Without biases: linears 1,048,576, blocks 2,097,152.
TEST(PlanWrap, Size) {
  Architecture a;
  a.family = Family::stack;
  a.hidden = 512;
  a.linear_blocks.assign(4, {{2048, 512}, {512, 2048}});
  const Model m = build_model(a);
  Training t = training(WrapPolicy::size);
  t.wrap.min_params = 1'500'000;
  EXPECT_EQ(groups(m, t), "layers.0:2 layers.1:2 layers.2:2 layers.3:2");
  t.wrap.min_params = 1'048'576;
  EXPECT_EQ(groups(m, t),
            "layers.0.0:1 layers.0.1:1 layers.1.0:1 layers.1.1:1 layers.2.0:1 layers.2.1:1 "
            "layers.3.0:1 layers.3.1:1");
  // Only the list has as many, and a list has no forward.
  t.wrap.min_params = 3'000'000;
  EXPECT_EQ(groups(m, t), "root:8");
}

// Post-order of modules: children before the parent's own parameters; here all are leaves, so the
// order is that of the tree. Shared parameters count once.
TEST(PlanWrap, TiedInOneGroup) {
  const Model m = llama(1, true);
  const Plan plan = build_plan(m, training(WrapPolicy::per_block));
  EXPECT_EQ(groups(m, plan), "model.layers.0:9 root:2");
  EXPECT_EQ(plan.groups[1].numel, 64 * 32 + 32);
  EXPECT_EQ(m.param_name(plan.groups[1].params[0].id), "model.embed_tokens.weight");
  EXPECT_EQ(plan.group_of_param.back(), 1);
}

// 2.15 raises ValueError at lazy init.
TEST(PlanWrap, TiedAcrossGroups) {
  const Model m = llama(1, true);
  Training t = training(WrapPolicy::per_block);
  t.wrap.embedding = true;
  EXPECT_EQ(error_of(m, t),
            "training.wrap: parameter 'lm_head.weight' shares its storage with "
            "'model.embed_tokens.weight', "
            "which is in another group");
  t.wrap.embedding = false;
  t.wrap.head = true;
  EXPECT_NE(error_of(m, t), "no error");
}

TEST(PlanWrap, Refusals) {
  const Model m = stack(2);
  EXPECT_EQ(error_of(m, training(WrapPolicy::list, {{"layers"}})),
            "training.wrap.modules[0]: module 'layers' is a ModuleList, which has no forward");
  EXPECT_EQ(error_of(m, training(WrapPolicy::list, {{"layers.0"}, {"layers.0"}})),
            "training.wrap: module 'layers.0' is wrapped twice");
  EXPECT_EQ(error_of(m, training(WrapPolicy::list, {{"blocks.*"}})),
            "training.wrap.modules[0]: no module matches 'blocks.*'");
  Training t = training(WrapPolicy::per_block);
  t.fsdp2.overrides = {{"layers.7", {Reshard::Kind::no, 0}}};
  EXPECT_EQ(error_of(m, t),
            "training.fsdp2.reshard[0].module: no wrapped module matches 'layers.7'");
}

// Overrides apply in order, the last one wins; "" is the root.
TEST(PlanWrap, ReshardOverrides) {
  const Model m = stack(3, true);
  Training t = training(WrapPolicy::per_block);
  t.fsdp2.overrides = {{"layers.*", {Reshard::Kind::no, 0}},
                       {"layers.1", {Reshard::Kind::yes, 0}},
                       {"", {Reshard::Kind::yes, 0}}};
  const Plan plan = build_plan(m, t);
  EXPECT_EQ(plan.states[0].reshard, Reshard::Kind::yes);
  EXPECT_EQ(plan.states[1].reshard, Reshard::Kind::no);
  EXPECT_EQ(plan.states[2].reshard, Reshard::Kind::yes);
  EXPECT_EQ(plan.states[3].reshard, Reshard::Kind::no);
}

// Explicit prefetch over the blocks, as the recorder sets it: block i gathers i+1..i+depth in
// forward, i-1..i-depth in backward; the first block has none to prefetch in backward.
TEST(PlanWrap, ExplicitPrefetch) {
  const Model m = stack(4, true);
  Training t = training(WrapPolicy::per_block);
  t.fsdp2.forward_prefetch = 2;
  t.fsdp2.backward_prefetch = 2;
  t.fsdp2.root_forward_prefetch = 1;
  const Plan plan = build_plan(m, t);
  using L = std::vector<uint32_t>;
  EXPECT_EQ(plan.states[0].forward_prefetch, (L{1}));
  EXPECT_EQ(plan.states[1].forward_prefetch, (L{2, 3}));
  EXPECT_EQ(plan.states[3].forward_prefetch, (L{4}));
  EXPECT_EQ(plan.states[4].forward_prefetch, (L{}));
  EXPECT_EQ(plan.states[4].backward_prefetch, (L{3, 2}));
  EXPECT_EQ(plan.states[2].backward_prefetch, (L{1}));
  EXPECT_FALSE(plan.states[1].explicit_backward);
}

TEST(PlanWrap, Patterns) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_TRUE(matches("model.layers.*.mlp", "model.layers.12.mlp"));
  EXPECT_FALSE(matches("model.layers.*.mlp", "model.layers.12.mlp.up_proj"));
  EXPECT_TRUE(matches("*.0", "layers.10.0"));
  EXPECT_FALSE(matches("layers.1", "layers.10"));
  EXPECT_TRUE(matches("a*b*c", "a.b.b.c"));
  EXPECT_FALSE(matches("a*b*c", "a.c.b"));
}

}  // namespace
}  // namespace shardsim
