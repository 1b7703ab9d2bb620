// Operators and the forward as stages: kernels of kernel-sequence.md sections 2 to 4 and the tensors
// that autograd keeps (memory-model.md B, "Per layer, byte-exact").
#include "sim/model/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace shardsim {
namespace {

Architecture llama(int64_t layers = 1) {
  Architecture a;
  a.vocab = 128256;
  a.hidden = 4096;
  a.layers = layers;
  a.ffn = 14336;
  a.heads = 32;
  a.kv_heads = 8;
  a.head_dim = 128;
  return a;
}

Architecture gpt2() {
  Architecture a;
  a.family = Family::gpt2;
  a.vocab = 50257;
  a.hidden = 768;
  a.layers = 1;
  a.ffn = 3072;
  a.heads = a.kv_heads = 12;
  a.head_dim = 64;
  a.max_positions = 1024;
  a.tied = true;
  a.qkv_bias = a.o_bias = a.mlp_bias = true;
  return a;
}

struct Counts {
  int products = 0, kernels = 0, memsets = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};

void count(const std::vector<OpAction>& actions, Counts& c) {
  for (const OpAction& a : actions) {
    c.products += a.act == Act::gemm;
    c.kernels += a.act == Act::kernel;
    c.memsets += a.act == Act::memset;
  }
}

// One block with everything trainable, in one type: what its operators launch (the sums where
// gradients meet are the engine's), and the bytes that backward needs, each tensor once. `input` is
// the block's own input, which a norm keeps.
struct Block {
  Counts forward, backward;
  Bytes kept = 0;
  int64_t forward_flops = 0, backward_flops = 0;
};

Block block_of(const Architecture& a, DType type, int64_t batch, int64_t seq) {
  const Model model = build_model(a);
  ProgramInput input;
  input.micro_batch = batch;
  input.seq_len = seq;
  const Program program = build_program(model, input);
  const auto stage = std::find_if(program.stages.begin(), program.stages.end(),
                                  [&](const Stage& s) { return s.module == model.blocks[0]; });
  const StageClass& cls = program.classes[stage->cls];
  Block out;
  struct Tensor {
    int id = -1;
    Bytes bytes = 0;
    DType type = DType::fp32;
  };
  std::vector<Tensor> slots(static_cast<size_t>(cls.slots));
  int next = 0;
  slots[0] = {next++, bytes_of(type) * batch * seq * a.hidden, type};
  for (int e = 1; e <= cls.externals; ++e) slots[static_cast<size_t>(e)] = {next++, 0, type};
  std::set<int> kept;
  const auto keep = [&](const Tensor& t) {
    if (kept.insert(t.id).second) out.kept += t.bytes;
  };
  for (const Step& s : cls.steps) {
    if (s.what != Step::What::run) continue;
    OpContext x;
    for (int i = 0; i < 3; ++i) {
      if (s.in[i] < 0) continue;
      x.in[i] = slots[static_cast<size_t>(s.in[i])].type;
      x.in_grad[i] = s.in[i] == 0 || s.in[i] > cls.externals;
    }
    OpShape shape = s.shape;
    if (s.op == OpKind::cast) {
      const Tensor& from = slots[static_cast<size_t>(s.in[0])];
      if (s.in[1] >= 0) shape.to = slots[static_cast<size_t>(s.in[1])].type;
      shape.in = from.bytes / bytes_of(from.type);
      if (shape.to == from.type) {
        slots[static_cast<size_t>(s.out[0])] = from;
        continue;
      }
    }
    x.param = type;
    x.has_bias = s.param[1] >= 0;
    x.param_grad = s.param[0] >= 0;
    const OpCode code = op_code(s.op, shape, x);
    count(code.forward, out.forward);
    count(code.backward, out.backward);
    for (const OpAction& f : code.forward) out.forward_flops += f.flops;
    for (const OpAction& b : code.backward) out.backward_flops += b.flops;
    std::map<int, Tensor> made;
    for (const OpAction& f : code.forward)
      if (f.act == Act::alloc && !f.workspace) made[f.slot] = {next++, f.bytes, code.out};
    if (code.aliases_input)
      for (int i = 0; i < code.outputs; ++i) made[i] = slots[static_cast<size_t>(s.in[0])];
    for (uint8_t v : code.saved)
      keep(v < kSavedSlot ? slots[static_cast<size_t>(s.in[v])] : made.at(v - kSavedSlot));
    for (int i = 0; i < code.outputs; ++i)
      if (s.out[i] >= 0) slots[static_cast<size_t>(s.out[i])] = made.at(i);
  }
  return out;
}

// Llama: e T (4h + 2nd + 2kd + 4f) + 8T + 4nT + 24 (flash: a seed of 16 and an offset of 8 bytes).
// Llama-3-8B in bf16: 2 (16384 + 8192 + 2048 + 57344) + 8 + 128 = 168,072 a token.
TEST(ModelProgram, BytesKeptByALlamaBlock) {
  EXPECT_EQ(block_of(llama(), DType::bf16, 2, 512).kept, 1024 * 168'072 + 24);
  // fp32: the efficient kernel keeps two values of 8 bytes instead.
  EXPECT_EQ(block_of(llama(), DType::fp32, 2, 512).kept,
            1024 * (4 * (16384 + 8192 + 2048 + 57344) + 8 + 128) + 16);
}

// Norms as Hugging Face writes them: + 8Th, and one reciprocal root of 4T each as before. The fused
// norm keeps x (the fp32 copy takes its place): bf16.
TEST(ModelProgram, BytesKeptWithNormsWrittenOut) {
  Architecture a = llama();
  a.norm = NormForm::hf;
  EXPECT_EQ(block_of(a, DType::bf16, 2, 512).kept, 1024 * (168'072 + 8 * 4096) + 24);
  // K and V expanded before attention: + 2 e T (n - k) d.
  a = llama();
  a.repeat_kv = true;
  EXPECT_EQ(block_of(a, DType::bf16, 2, 512).kept, 1024 * (168'072 + 4 * (32 - 8) * 128) + 24);
}

// GPT-2: 32Th in bf16, 64Th in fp32, + 16T (two means and roots) + 4nT.
TEST(ModelProgram, BytesKeptByAGpt2Block) {
  EXPECT_EQ(block_of(gpt2(), DType::bf16, 4, 256).kept, 1024 * (32 * 768 + 16 + 4 * 12) + 24);
  EXPECT_EQ(block_of(gpt2(), DType::fp32, 4, 256).kept, 1024 * (64 * 768 + 16 + 4 * 12) + 16);
}

// kernel-sequence 3: forward 7 products and 7 kernels; backward 14 products and, without the sums of
// gradients that meet (k after gate, k after k and q, two residual adds: 5), norm 2 + 2, mul 2, silu
// 1, attention 3 + 2 with grouped heads.
TEST(ModelProgram, KernelsOfALlamaBlock) {
  const Block grouped = block_of(llama(), DType::bf16, 1, 1024);
  EXPECT_EQ(grouped.forward, (Counts{7, 7, 0}));
  EXPECT_EQ(grouped.backward, (Counts{14, 12, 0}));
  Architecture a = llama();
  a.kv_heads = 32;
  EXPECT_EQ(block_of(a, DType::bf16, 1, 1024).backward, (Counts{14, 10, 0}));
  // fp32 attention: m:8 m:8 k forward, k k k m k backward, and k k for grouped heads.
  const Block fp32 = block_of(llama(), DType::fp32, 1, 1024);
  EXPECT_EQ(fp32.forward, (Counts{7, 7, 2}));
  EXPECT_EQ(fp32.backward, (Counts{14, 13, 1}));
  // Rotary embeddings on a complex copy: k k k for q and for k in bf16, k k k k each backward.
  a = llama();
  a.rope = RopeForm::complex;
  EXPECT_EQ(block_of(a, DType::bf16, 1, 1024).forward, (Counts{7, 13, 0}));
  EXPECT_EQ(block_of(a, DType::bf16, 1, 1024).backward, (Counts{14, 20, 0}));
  EXPECT_EQ(block_of(a, DType::fp32, 1, 1024).forward, (Counts{7, 9, 2}));
  EXPECT_EQ(block_of(a, DType::fp32, 1, 1024).backward, (Counts{14, 17, 1}));
  // Norms written out: 8 kernels instead of 1 in bf16, 6 in fp32.
  a = llama();
  a.norm = NormForm::hf;
  EXPECT_EQ(block_of(a, DType::bf16, 1, 1024).forward, (Counts{7, 21, 0}));
  EXPECT_EQ(block_of(a, DType::fp32, 1, 1024).forward, (Counts{7, 17, 2}));
}

// kernel-sequence 4: forward ln, attention, add, ln, gelu, add: 6 kernels, 4 products; backward 8
// products, a bias sum each (4), gelu, 2 + 2 of the norms, attention 3 and cat. No memset at T 256.
TEST(ModelProgram, KernelsOfAGpt2Block) {
  const Block b = block_of(gpt2(), DType::bf16, 1, 256);
  EXPECT_EQ(b.forward, (Counts{4, 6, 0}));
  EXPECT_EQ(b.backward, (Counts{8, 13, 0}));
  // At T 1024 each bias sum clears a semaphore first.
  EXPECT_EQ(block_of(gpt2(), DType::bf16, 4, 256).backward, (Counts{8, 13, 4}));
}

// Products of a Llama-3-8B block: 6 FLOPs a parameter and token, of which 2 forward; its products
// have 218,103,808 parameters (218,112,000 less two norms of 4096).
TEST(ModelProgram, FlopsOfALlamaBlock) {
  const int64_t t = 1024;
  const Model model = build_model(llama());
  ProgramInput input;
  input.seq_len = t;
  const Program program = build_program(model, input);
  int64_t forward = 0, backward = 0;
  for (const Step& s : program.classes[program.stages[2].cls].steps) {
    if (s.what != Step::What::run || s.op != OpKind::linear) continue;
    OpContext x;
    x.in[0] = x.param = DType::bf16;
    x.in_grad[0] = x.param_grad = true;
    const OpCode code = op_code(s.op, s.shape, x);
    for (const OpAction& a : code.forward) forward += a.flops;
    for (const OpAction& a : code.backward) backward += a.flops;
  }
  EXPECT_EQ(forward, 2 * 218'103'808 * t);
  EXPECT_EQ(backward, 4 * 218'103'808 * t);
}

// kernel-sequence 2, single operators.
OpCode op(OpKind kind, OpShape s, DType t, bool input_grad = true) {
  OpContext x;
  x.in = {t, t, t};
  x.in_grad = {input_grad, input_grad, input_grad};
  x.param = t;
  x.param_grad = true;
  return op_code(kind, s, x);
}

std::vector<Bytes> memsets(const std::vector<OpAction>& actions) {
  std::vector<Bytes> out;
  for (const OpAction& a : actions)
    if (a.act == Act::memset) out.push_back(a.bytes);
  return out;
}

// Backward of a linear without bias: dW (in, out, T) before dx (in, T, out); with bias dx first.
// Without a gradient of the input there is no dx.
TEST(ModelProgram, OrderOfALinearsProducts) {
  OpShape s;
  s.rows = 64;
  s.in = 16;
  s.out = 32;
  const auto products = [](const OpCode& c) {
    std::vector<std::array<int64_t, 3>> out;
    for (const OpAction& a : c.backward)
      if (a.act == Act::gemm) out.push_back({a.m, a.n, a.k});
    return out;
  };
  using Products = std::vector<std::array<int64_t, 3>>;
  EXPECT_EQ(products(op(OpKind::linear, s, DType::bf16)), (Products{{16, 32, 64}, {16, 64, 32}}));
  EXPECT_EQ(products(op(OpKind::linear, s, DType::bf16, false)), (Products{{16, 32, 64}}));
  s.bias = true;
  EXPECT_EQ(products(op(OpKind::linear, s, DType::bf16)), (Products{{16, 64, 32}, {16, 32, 64}}));
  // Conv1D keeps its weight [in, out], so the gradient's row length is out.
  s.conv1d = true;
  EXPECT_EQ(products(op(OpKind::linear, s, DType::bf16)), (Products{{16, 64, 32}, {32, 16, 64}}));
}

// The workspace of a product: 32 MiB, 1 MiB where cublasLt adds a bias (backward: 32 MiB each).
TEST(ModelProgram, WorkspaceOfALinear) {
  OpShape s;
  s.rows = 64;
  s.in = 16;
  s.out = 32;
  const auto workspaces = [](const std::vector<OpAction>& actions) {
    std::vector<Bytes> out;
    for (const OpAction& a : actions)
      if (a.act == Act::alloc && a.workspace) out.push_back(a.bytes);
    return out;
  };
  using List = std::vector<Bytes>;
  const OpCode plain = op(OpKind::linear, s, DType::bf16);
  EXPECT_EQ(workspaces(plain.forward), (List{33'554'432}));
  EXPECT_EQ(workspaces(plain.backward), (List{33'554'432, 33'554'432}));
  s.bias = true;
  EXPECT_EQ(workspaces(op(OpKind::linear, s, DType::bf16).forward), (List{1'048'576}));
}

// A bias sum at T 1024 and 2048 clears 4 ceil(out / 128) bytes, at T 256 and below nothing.
TEST(ModelProgram, BiasSum) {
  OpShape s;
  s.in = 768;
  s.bias = true;
  for (int64_t out : {768, 2304, 3072}) {
    s.out = out;
    for (int64_t rows : {1024, 2048}) {
      s.rows = rows;
      EXPECT_EQ(memsets(op(OpKind::linear, s, DType::bf16).backward),
                (std::vector<Bytes>{4 * out / 128}))
          << out << " x " << rows;
    }
    s.rows = 256;
    EXPECT_TRUE(memsets(op(OpKind::linear, s, DType::bf16).backward).empty());
  }
}

// Up to 3072 rows m:V h bytes, k; above them a radix sort in p = ceil(bits(V - 1) / 8) passes:
// k m:4p m:2048p k k, p times (m:t k), m:V h bytes, 9 k. V 50257 has 16 bits: p 2.
TEST(ModelProgram, EmbeddingBackward) {
  OpShape s;
  s.in = 50257;
  s.out = 768;
  s.rows = 3072;
  Counts c;
  count(op(OpKind::embedding, s, DType::bf16).backward, c);
  EXPECT_EQ(c, (Counts{0, 1, 1}));
  s.rows = 4096;
  const OpCode sorted = op(OpKind::embedding, s, DType::bf16);
  c = {};
  count(sorted.backward, c);
  EXPECT_EQ(c, (Counts{0, 3 + 2 + 9, 2 + 2 + 1}));
  EXPECT_EQ(memsets(sorted.backward), (std::vector<Bytes>{8, 4096, 1024, 1024, 50257 * 768 * 2}));
  s.rows = 8192;
  EXPECT_EQ(memsets(op(OpKind::embedding, s, DType::bf16).backward),
            (std::vector<Bytes>{8, 4096, 2048, 2048, 50257 * 768 * 2}));
}

// Logits to loss in bf16: cast, log-softmax, nll; backward m:4TV k k k after the fill. A pointwise
// kernel with an operand of 2^31 bytes or more runs as two: the cast, from T V = 2^29 on.
TEST(ModelProgram, CrossEntropy) {
  OpShape s;
  s.rows = 1024;
  s.in = 32000;
  s.out = 1;
  s.to = DType::fp32;
  OpCode c = op(OpKind::cross_entropy, s, DType::bf16);
  Counts f, b;
  count(c.forward, f);
  count(c.backward, b);
  EXPECT_EQ(f, (Counts{0, 3, 0}));
  EXPECT_EQ(b, (Counts{0, 3, 1}));
  EXPECT_EQ(memsets(c.backward), (std::vector<Bytes>{4 * 1024 * 32000}));
  s.rows = 16384;
  s.in = 32768;  // T V = 2^29
  c = op(OpKind::cross_entropy, s, DType::bf16);
  f = b = {};
  count(c.forward, f);
  count(c.backward, b);
  EXPECT_EQ(f, (Counts{0, 4, 0}));
  EXPECT_EQ(b, (Counts{0, 4, 1}));
  s.in = 32767;
  f = {};
  count(op(OpKind::cross_entropy, s, DType::bf16).forward, f);
  EXPECT_EQ(f, (Counts{0, 3, 0}));
}

// Flash splits the keys only where b n ceil(s / 64) < 0.8 SMs and s > 256 at d 64, > 128 at d 128:
// seen at b 1, n 8, s 384, d 64 (48 blocks < 105.6).
TEST(ModelProgram, FlashSplitsTheKeys) {
  OpShape s;
  s.batch = 1;
  s.heads = s.kv_heads = 8;
  s.head_dim = 64;
  const auto kernels = [&](int64_t batch, int64_t seq) {
    s.batch = batch;
    s.seq = seq;
    s.rows = batch * seq;
    Counts c;
    count(op(OpKind::attention, s, DType::bf16).forward, c);
    return c.kernels;
  };
  EXPECT_EQ(kernels(1, 384), 2);
  EXPECT_EQ(kernels(1, 256), 1);
  EXPECT_EQ(kernels(3, 384), 1);  // 144 blocks
}

// y.sum() of one: recordings have no memset at 128,000 elements (64 x 2000), and one of 4 bytes at
// 131,072 (2048 x 64), 196,608 (2048 x 96) and 256,000 (256 x 1000).
TEST(ModelProgram, FullSum) {
  OpShape s;
  s.out = 1;
  s.to = DType::fp32;
  const auto cleared = [&](int64_t rows, int64_t features) {
    s.rows = rows;
    s.in = features;
    return memsets(op(OpKind::sum, s, DType::fp32).forward);
  };
  EXPECT_TRUE(cleared(64, 2000).empty());
  EXPECT_EQ(cleared(2048, 64), (std::vector<Bytes>{4}));
  EXPECT_EQ(cleared(2048, 96), (std::vector<Bytes>{4}));
  EXPECT_EQ(cleared(256, 1000), (std::vector<Bytes>{4}));
}

// Efficient attention's backward clears M bytes: 4,198,400 at b 2, s 512, n d 1024 (n 16), and
// 3,148,800 at n d 768 (n 12).
TEST(ModelProgram, EfficientAttentionWorkspace) {
  OpShape s;
  s.batch = 2;
  s.seq = 512;
  s.rows = 1024;
  s.head_dim = 64;
  s.heads = s.kv_heads = 16;
  EXPECT_EQ(memsets(op(OpKind::attention, s, DType::fp32).backward),
            (std::vector<Bytes>{4'198'400}));
  s.heads = s.kv_heads = 12;
  EXPECT_EQ(memsets(op(OpKind::attention, s, DType::fp32).backward),
            (std::vector<Bytes>{3'148'800}));
}

// Llama-3-8B: batch, embedding, 32 blocks of one class, norm, head, loss.
TEST(ModelProgram, Stages) {
  const Model model = build_model(llama(32));
  ProgramInput input;
  input.micro_batch = 2;
  input.seq_len = 8192;
  const Program p = build_program(model, input);
  EXPECT_EQ(p.stages.size(), 37u);
  EXPECT_EQ(p.classes.size(), 6u);
  EXPECT_EQ(p.tokens, 16384);
  EXPECT_TRUE(p.stages.back().loss);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(p.stages[2 + i].module, model.blocks[i]);
    EXPECT_EQ(p.stages[2 + i].cls, p.stages[2].cls);
  }
  EXPECT_TRUE(p.classes[p.stages[2].cls].cuttable);
  EXPECT_FALSE(p.classes[p.stages[35].cls].cuttable);
}

// torchtitan's formula: 6 (8,030,261,248 - 525,336,576) + 12 * 32 * 32 * 128 * 8192 = 57.91e9.
TEST(ModelProgram, FlopsPerToken) {
  const Model model = build_model(llama(32));
  EXPECT_EQ(model_flops_per_token(model, 8192), 57'914'449'920);
  Architecture tied = llama(32);
  tied.tied = true;  // one table, which is also a product
  EXPECT_EQ(model_flops_per_token(build_model(tied), 8192), 57'914'449'920);
}

}  // namespace
}  // namespace shardsim
