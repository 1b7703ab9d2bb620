// The module tree: names, shapes and parameter counts. Totals are those of public checkpoints
// (memory-model.md section D: KerasHub presets and Hugging Face safetensors headers), each from the
// sizes that section lists, so nothing here reads a shipped configuration.
#include "sim/model/model.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "sim/base/error.h"

namespace shardsim {
namespace {

struct Sizes {
  const char* name;
  int64_t vocab, hidden, layers, ffn, heads, kv_heads, head_dim;
  bool tied, qkv_bias, qk_norm;
  int64_t total;
};

Architecture decoder(const Sizes& s) {
  Architecture a;
  a.name = s.name;
  a.vocab = s.vocab;
  a.hidden = s.hidden;
  a.layers = s.layers;
  a.ffn = s.ffn;
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.head_dim = s.head_dim;
  a.tied = s.tied;
  a.qkv_bias = s.qkv_bias;
  a.qk_norm = s.qk_norm;
  return a;
}

Architecture gpt2() {
  Architecture a;
  a.family = Family::gpt2;
  a.vocab = 50257;
  a.hidden = 768;
  a.layers = 12;
  a.ffn = 3072;
  a.heads = a.kv_heads = 12;
  a.head_dim = 64;
  a.max_positions = 1024;
  a.tied = true;
  a.qkv_bias = a.o_bias = a.mlp_bias = true;
  return a;
}

const Sizes kLlama3_8b{"llama-3-8b", 128256, 4096,  32,    14336,        32, 8,
                       128,          false,  false, false, 8'030'261'248};

// name -> shape, without the names that share a storage.
std::map<std::string, Shape> shapes(const Model& m) {
  std::map<std::string, Shape> out;
  for (uint32_t i = 0; i < m.params.size(); ++i) out[m.param_name({i})] = m.params[i].shape;
  return out;
}

TEST(ModelTree, PublishedTotals) {
  const Sizes published[] = {
      {"llama-2-7b", 32000, 4096, 32, 11008, 32, 32, 128, false, false, false, 6'738'415'616},
      {"llama-2-70b", 32000, 8192, 80, 28672, 64, 8, 128, false, false, false, 68'976'648'192},
      kLlama3_8b,
      {"llama-3.1-405b", 128256, 16384, 126, 53248, 128, 8, 128, false, false, false,
       405'853'388'800},
      {"llama-3.2-1b", 128256, 2048, 16, 8192, 32, 8, 64, true, false, false, 1'235'814'400},
      {"mistral-7b-v0.3", 32768, 4096, 32, 14336, 32, 8, 128, false, false, false, 7'248'023'552},
      {"qwen2.5-7b", 152064, 3584, 28, 18944, 28, 4, 128, false, true, false, 7'615'616'512},
      {"qwen3-0.6b", 151936, 1024, 28, 3072, 16, 8, 128, true, false, true, 596'049'920},
      {"qwen3-8b", 151936, 4096, 36, 12288, 32, 8, 128, false, false, true, 8'190'735'360},
  };
  for (const Sizes& s : published) EXPECT_EQ(build_model(decoder(s)).numel(), s.total) << s.name;
  EXPECT_EQ(build_model(gpt2()).numel(), 124'439'808);
}

// A Llama block: 9 parameters; 32 of them, embedding, final norm and head are 291 tensors.
TEST(ModelTree, LlamaNamesAndShapes) {
  const Model m = build_model(decoder(kLlama3_8b));
  EXPECT_EQ(m.params.size(), 291u);
  const auto s = shapes(m);
  EXPECT_EQ(s.size(), 291u);
  EXPECT_EQ(s.at("model.embed_tokens.weight"), Shape::of(128256, 4096));
  EXPECT_EQ(s.at("model.layers.0.self_attn.q_proj.weight"), Shape::of(4096, 4096));
  EXPECT_EQ(s.at("model.layers.17.self_attn.k_proj.weight"), Shape::of(1024, 4096));
  EXPECT_EQ(s.at("model.layers.31.self_attn.v_proj.weight"), Shape::of(1024, 4096));
  EXPECT_EQ(s.at("model.layers.31.self_attn.o_proj.weight"), Shape::of(4096, 4096));
  EXPECT_EQ(s.at("model.layers.5.mlp.gate_proj.weight"), Shape::of(14336, 4096));
  EXPECT_EQ(s.at("model.layers.5.mlp.up_proj.weight"), Shape::of(14336, 4096));
  EXPECT_EQ(s.at("model.layers.5.mlp.down_proj.weight"), Shape::of(4096, 14336));
  EXPECT_EQ(s.at("model.layers.5.input_layernorm.weight"), Shape::of(4096));
  EXPECT_EQ(s.at("model.layers.5.post_attention_layernorm.weight"), Shape::of(4096));
  EXPECT_EQ(s.at("model.norm.weight"), Shape::of(4096));
  EXPECT_EQ(s.at("lm_head.weight"), Shape::of(128256, 4096));
  EXPECT_EQ(m.blocks.size(), 32u);
  EXPECT_EQ(m.module_name(m.blocks[31]), "model.layers.31");
  EXPECT_EQ(m.module_name({0}), "");
}

// Qwen3-0.6B: head_dim 128 is given, so q is 16 x 128 = 2048 wide on a hidden of 1024; tied.
TEST(ModelTree, QwenNamesAndShapes) {
  const Model m = build_model(
      decoder({"qwen3-0.6b", 151936, 1024, 28, 3072, 16, 8, 128, true, false, true, 596'049'920}));
  const auto s = shapes(m);
  EXPECT_EQ(s.at("model.layers.27.self_attn.q_proj.weight"), Shape::of(2048, 1024));
  EXPECT_EQ(s.at("model.layers.27.self_attn.o_proj.weight"), Shape::of(1024, 2048));
  EXPECT_EQ(s.at("model.layers.0.self_attn.q_norm.weight"), Shape::of(128));
  EXPECT_EQ(s.at("model.layers.0.self_attn.k_norm.weight"), Shape::of(128));
  const Param& head = m.params.back();
  ASSERT_TRUE(head.alias.valid());
  EXPECT_EQ(m.param_name(head.alias), "model.embed_tokens.weight");

  const Model biased = build_model(decoder(
      {"qwen2.5-7b", 152064, 3584, 28, 18944, 28, 4, 128, false, true, false, 7'615'616'512}));
  const auto b = shapes(biased);
  EXPECT_EQ(b.at("model.layers.3.self_attn.q_proj.bias"), Shape::of(3584));
  EXPECT_EQ(b.at("model.layers.3.self_attn.k_proj.bias"), Shape::of(512));
  EXPECT_EQ(b.count("model.layers.3.self_attn.o_proj.bias"), 0u);
}

// Conv1D stores [in, out].
TEST(ModelTree, Gpt2NamesAndShapes) {
  const auto s = shapes(build_model(gpt2()));
  EXPECT_EQ(s.at("transformer.wte.weight"), Shape::of(50257, 768));
  EXPECT_EQ(s.at("transformer.wpe.weight"), Shape::of(1024, 768));
  EXPECT_EQ(s.at("transformer.h.11.attn.c_attn.weight"), Shape::of(768, 2304));
  EXPECT_EQ(s.at("transformer.h.11.attn.c_attn.bias"), Shape::of(2304));
  EXPECT_EQ(s.at("transformer.h.0.attn.c_proj.weight"), Shape::of(768, 768));
  EXPECT_EQ(s.at("transformer.h.0.mlp.c_fc.weight"), Shape::of(768, 3072));
  EXPECT_EQ(s.at("transformer.h.0.mlp.c_proj.weight"), Shape::of(3072, 768));
  EXPECT_EQ(s.at("transformer.h.0.ln_2.bias"), Shape::of(768));
  EXPECT_EQ(s.at("transformer.ln_f.weight"), Shape::of(768));
}

// The recorder's programs: layers.<block>.<linear>.weight, layers.<block>.p.<index>.
TEST(ModelTree, RecorderPrograms) {
  Architecture a;
  a.family = Family::stack;
  a.hidden = 16;
  a.linear_blocks = {{{64, 16}, {16, 64}}, {{16, 16}}};
  a.bias = true;
  a.root_first = {16, 8};
  a.root_last = {4, 16};
  const Model stack = build_model(a);
  const auto s = shapes(stack);
  EXPECT_EQ(s.at("layers.0.0.weight"), Shape::of(64, 16));
  EXPECT_EQ(s.at("layers.0.0.bias"), Shape::of(64));
  EXPECT_EQ(s.at("layers.0.1.weight"), Shape::of(16, 64));
  EXPECT_EQ(s.at("layers.1.0.weight"), Shape::of(16, 16));
  EXPECT_EQ(s.at("first.weight"), Shape::of(16, 8));
  EXPECT_EQ(s.at("last.weight"), Shape::of(4, 16));
  // 64*16 + 64 + 16*64 + 16 + 16*16 + 16 + 16*8 + 4*16
  EXPECT_EQ(stack.numel(), 1024 + 64 + 1024 + 16 + 256 + 16 + 128 + 64);

  Architecture b;
  b.family = Family::bag;
  b.hidden = 16;
  b.bag_blocks = {{{5}, {7, 3}}, {{2, 3, 4}}};
  const auto p = shapes(build_model(b));
  EXPECT_EQ(p.at("layers.0.p.0").numel(), 5);
  EXPECT_EQ(p.at("layers.0.p.1"), Shape::of(7, 3));
  EXPECT_EQ(p.at("layers.1.p.0").numel(), 24);
  EXPECT_EQ(p.at("layers.1.p.0").rest(), 12);
}

// Modules stand in pre-order: a subtree is an id range, and so are its parameters.
TEST(ModelTree, SubtreesAreRanges) {
  const Model m = build_model(decoder(kLlama3_8b));
  for (ModuleId block : m.blocks) {
    const Module& x = m.modules[block.v];
    // block, 2 norms, self_attn with 4, mlp with 3: 12 modules, 9 parameters.
    EXPECT_EQ(x.end - block.v, 12u);
    EXPECT_EQ(x.end_param - x.first_param, 9u);
    int64_t numel = 0;
    for (uint32_t p = x.first_param; p < x.end_param; ++p) numel += m.params[p].shape.numel();
    EXPECT_EQ(numel, 218'112'000);
  }
  EXPECT_FALSE(m.modules[m.modules[m.blocks[0].v].parent.v].callable());
}

TEST(ModelTree, Refusals) {
  Sizes s = kLlama3_8b;
  s.layers = 0;
  EXPECT_THROW(build_model(decoder(s)), Error);
  s = kLlama3_8b;
  s.kv_heads = 5;
  EXPECT_THROW(build_model(decoder(s)), Error);
  Architecture empty;
  empty.family = Family::bag;
  EXPECT_THROW(build_model(empty), Error);
}

}  // namespace
}  // namespace shardsim
