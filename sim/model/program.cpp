#include "sim/model/program.h"

#include <algorithm>
#include <string>

#include "sim/base/error.h"

namespace shardsim {

namespace {

// Builds one class. Variables are slots; each may be given a module's scope.
class ClassBuilder {
 public:
  int16_t slot() { return c_.slots++; }

  int16_t run(OpKind op, const OpShape& shape, std::array<int16_t, 3> in,
              std::array<int32_t, 2> param = {-1, -1}) {
    Step s;
    s.op = op;
    s.shape = shape;
    s.in = in;
    s.param = param;
    s.out[0] = slot();
    if (op == OpKind::split_qkv) {
      s.out[1] = slot();
      s.out[2] = slot();
    }
    c_.steps.push_back(s);
    return s.out[0];
  }
  void drop(std::initializer_list<int16_t> slots) {
    for (int16_t v : slots) {
      Step s;
      s.what = Step::What::drop;
      s.out[0] = v;
      c_.steps.push_back(s);
    }
  }
  void enter(uint32_t module, int16_t in) { hook(Step::What::enter, module, in); }
  void exit(uint32_t module, int16_t out) { hook(Step::What::exit, module, out); }
  StageClass finish(int16_t output, bool cuttable = false) {
    c_.output = output;
    c_.cuttable = cuttable;
    return std::move(c_);
  }

 private:
  void hook(Step::What what, uint32_t module, int16_t v) {
    Step s;
    s.what = what;
    s.module = module;
    (what == Step::What::enter ? s.in : s.out)[0] = v;
    c_.steps.push_back(s);
  }
  StageClass c_;
};

OpShape features(int64_t rows, int64_t in, int64_t out) {
  OpShape s;
  s.rows = rows;
  s.in = in;
  s.out = out;
  return s;
}

struct Sizes {
  int64_t batch = 0, seq = 0, tokens = 0;
};

// Module and parameter numbers below a block follow build_model's order.
StageClass llama_block(const Architecture& a, const Sizes& z) {
  ClassBuilder b;
  const int64_t t = z.tokens, h = a.hidden, q_dim = a.heads * a.head_dim,
                kv_dim = a.kv_heads * a.head_dim;
  OpShape norm = features(t, h, h);
  norm.norm = a.norm;
  const auto linear = [&](int64_t in, int64_t out, bool bias) {
    OpShape s = features(t, in, out);
    s.bias = bias;
    return s;
  };
  // Parameters in the order of the module tree.
  int32_t p = 0;
  const auto next = [&](bool bias) {
    const std::array<int32_t, 2> out{p, bias ? p + 1 : -1};
    p += bias ? 2 : 1;
    return out;
  };
  const auto p_in_norm = next(false), p_q = next(a.qkv_bias), p_k = next(a.qkv_bias),
             p_v = next(a.qkv_bias), p_o = next(a.o_bias);
  std::array<int32_t, 2> p_qn{-1, -1}, p_kn{-1, -1};
  if (a.qk_norm) {
    p_qn = next(false);
    p_kn = next(false);
  }
  const auto p_post = next(false), p_gate = next(a.mlp_bias), p_up = next(a.mlp_bias),
             p_down = next(a.mlp_bias);
  uint32_t m = 1;  // module numbers: 0 is the block
  const uint32_t m_norm = m++, m_attn = m++, m_q = m++, m_k = m++, m_v = m++, m_o = m++,
                 m_qn = a.qk_norm ? m++ : 0, m_kn = a.qk_norm ? m++ : 0, m_post = m++, m_mlp = m++,
                 m_gate = m++, m_up = m++, m_down = m++;
  const auto call = [&](uint32_t module, OpKind op, const OpShape& s, int16_t in,
                        std::array<int32_t, 2> params) {
    b.enter(module, in);
    const int16_t out = b.run(op, s, {in, -1, -1}, params);
    b.exit(module, out);
    return out;
  };

  const int16_t x = 0;
  const int16_t n1 = call(m_norm, OpKind::rms_norm, norm, x, p_in_norm);
  b.enter(m_attn, n1);
  int16_t q = call(m_q, OpKind::linear, linear(h, q_dim, a.qkv_bias), n1, p_q);
  int16_t k = call(m_k, OpKind::linear, linear(h, kv_dim, a.qkv_bias), n1, p_k);
  const auto rebind = [&](int16_t& v, int16_t to) {
    b.drop({v});
    v = to;
  };
  if (a.qk_norm) {
    OpShape s = norm;
    s.in = s.out = a.head_dim;
    s.rows = t * a.heads;
    rebind(q, call(m_qn, OpKind::rms_norm, s, q, p_qn));
    s.rows = t * a.kv_heads;
    rebind(k, call(m_kn, OpKind::rms_norm, s, k, p_kn));
  }
  OpShape att = features(t, 0, 0);
  att.batch = z.batch;
  att.seq = z.seq;
  att.heads = a.heads;
  att.kv_heads = a.kv_heads;
  att.head_dim = a.head_dim;
  if (a.rope != RopeForm::none) {
    OpShape s = att;
    s.rope = a.rope;
    s.out = q_dim;
    rebind(q, b.run(OpKind::rope, s, {q, -1, -1}));
    s.out = kv_dim;
    rebind(k, b.run(OpKind::rope, s, {k, -1, -1}));
  }
  int16_t v = call(m_v, OpKind::linear, linear(h, kv_dim, a.qkv_bias), n1, p_v);
  if (a.repeat_kv && a.kv_heads != a.heads) {
    rebind(k, b.run(OpKind::repeat_kv, att, {k, -1, -1}));
    rebind(v, b.run(OpKind::repeat_kv, att, {v, -1, -1}));
    att.kv_heads = a.heads;
  }
  const int16_t o = b.run(OpKind::attention, att, {q, k, v});
  const int16_t proj = call(m_o, OpKind::linear, linear(q_dim, h, a.o_bias), o, p_o);
  b.drop({q, k, v, o});
  b.exit(m_attn, proj);
  b.drop({n1});
  const int16_t mid = b.run(OpKind::add, features(t, h, h), {x, proj, -1});
  b.drop({proj});

  const int16_t n2 = call(m_post, OpKind::rms_norm, norm, mid, p_post);
  b.enter(m_mlp, n2);
  const int16_t gate = call(m_gate, OpKind::linear, linear(h, a.ffn, a.mlp_bias), n2, p_gate);
  const int16_t act = b.run(OpKind::silu, features(t, a.ffn, a.ffn), {gate, -1, -1});
  b.drop({gate});
  const int16_t up = call(m_up, OpKind::linear, linear(h, a.ffn, a.mlp_bias), n2, p_up);
  const int16_t prod = b.run(OpKind::mul, features(t, a.ffn, a.ffn), {act, up, -1});
  b.drop({act, up});
  const int16_t down = call(m_down, OpKind::linear, linear(a.ffn, h, a.mlp_bias), prod, p_down);
  b.drop({prod});
  b.exit(m_mlp, down);
  b.drop({n2});
  const int16_t out = b.run(OpKind::add, features(t, h, h), {mid, down, -1});
  b.drop({down, mid});
  StageClass c = b.finish(out, true);
  c.unnamed = {gate, act, up, prod};
  return c;
}

StageClass gpt2_block(const Architecture& a, const Sizes& z) {
  ClassBuilder b;
  const int64_t t = z.tokens, h = a.hidden;
  const auto linear = [&](int64_t in, int64_t out) {
    OpShape s = features(t, in, out);
    s.bias = true;
    s.conv1d = true;
    return s;
  };
  const auto call = [&](uint32_t module, OpKind op, const OpShape& s, int16_t in,
                        std::array<int32_t, 2> params) {
    b.enter(module, in);
    const int16_t out = b.run(op, s, {in, -1, -1}, params);
    b.exit(module, out);
    return out;
  };
  const int16_t x = 0;
  const int16_t n1 = call(1, OpKind::layer_norm, features(t, h, h), x, {0, 1});
  b.enter(2, n1);
  const int16_t qkv = call(3, OpKind::linear, linear(h, 3 * h), n1, {2, 3});
  const int16_t q = b.run(OpKind::split_qkv, features(t, 3 * h, 3 * h), {qkv, -1, -1});
  b.drop({qkv});
  const auto k = static_cast<int16_t>(q + 1), v = static_cast<int16_t>(q + 2);
  OpShape att = features(t, 0, 0);
  att.batch = z.batch;
  att.seq = z.seq;
  att.heads = att.kv_heads = a.heads;
  att.head_dim = a.head_dim;
  const int16_t o = b.run(OpKind::attention, att, {q, k, v});
  const int16_t proj = call(4, OpKind::linear, linear(h, h), o, {4, 5});
  b.drop({q, k, v, o});
  b.exit(2, proj);
  b.drop({n1});
  const int16_t mid = b.run(OpKind::add, features(t, h, h), {x, proj, -1});
  b.drop({proj});
  const int16_t n2 = call(5, OpKind::layer_norm, features(t, h, h), mid, {6, 7});
  b.enter(6, n2);
  const int16_t fc = call(7, OpKind::linear, linear(h, a.ffn), n2, {8, 9});
  const int16_t act = b.run(OpKind::gelu, features(t, a.ffn, a.ffn), {fc, -1, -1});
  b.drop({fc});
  const int16_t down = call(8, OpKind::linear, linear(a.ffn, h), act, {10, 11});
  b.drop({act});
  b.exit(6, down);
  b.drop({n2});
  const int16_t out = b.run(OpKind::add, features(t, h, h), {mid, down, -1});
  b.drop({down, mid});
  return b.finish(out, true);
}

// Gpt2Block of the recorder's FSDP1 program: q, k and v live until it returns.
StageClass flat_gpt2_block(const Architecture& a, const Sizes& z) {
  ClassBuilder b;
  const int64_t t = z.tokens, h = a.hidden;
  const auto linear = [&](int64_t in, int64_t out) {
    OpShape s = features(t, in, out);
    s.bias = true;
    return s;
  };
  const auto call = [&](uint32_t module, OpKind op, const OpShape& s, int16_t in) {
    b.enter(module, in);
    const int32_t p = 2 * (static_cast<int32_t>(module) - 1);
    const int16_t out = b.run(op, s, {in, -1, -1}, {p, p + 1});
    b.exit(module, out);
    return out;
  };
  const int16_t x = 0;
  const int16_t n1 = call(1, OpKind::layer_norm, features(t, h, h), x);
  const int16_t qkv = call(2, OpKind::linear, linear(h, 3 * h), n1);
  b.drop({n1});
  const int16_t q = b.run(OpKind::split_qkv, features(t, 3 * h, 3 * h), {qkv, -1, -1});
  b.drop({qkv});
  const auto k = static_cast<int16_t>(q + 1), v = static_cast<int16_t>(q + 2);
  OpShape att = features(t, 0, 0);
  att.batch = z.batch;
  att.seq = z.seq;
  att.heads = att.kv_heads = a.heads;
  att.head_dim = a.head_dim;
  const int16_t o = b.run(OpKind::attention, att, {q, k, v});
  const int16_t proj = call(3, OpKind::linear, linear(h, h), o);
  b.drop({o});
  const int16_t mid = b.run(OpKind::add, features(t, h, h), {x, proj, -1});
  b.drop({proj});
  const int16_t n2 = call(4, OpKind::layer_norm, features(t, h, h), mid);
  const int16_t fc = call(5, OpKind::linear, linear(h, a.ffn), n2);
  b.drop({n2});
  const int16_t act = b.run(OpKind::gelu, features(t, a.ffn, a.ffn), {fc, -1, -1});
  b.drop({fc});
  const int16_t down = call(6, OpKind::linear, linear(a.ffn, h), act);
  b.drop({act});
  const int16_t out = b.run(OpKind::add, features(t, h, h), {mid, down, -1});
  b.drop({down, mid, q, k, v});
  return b.finish(out, true);
}

// x * p.mean() for each vector.
StageClass vector_block(const std::vector<int64_t>& sizes, int64_t rows, int64_t width) {
  ClassBuilder b;
  int16_t v = 0;
  int32_t p = 0;
  for (int64_t n : sizes) {
    const int16_t mean = b.run(OpKind::mean, features(rows, n, 1), {-1, -1, -1}, {p++, -1});
    const int16_t out = b.run(OpKind::scale, features(rows, width, width), {v, mean, -1});
    b.drop({mean});
    if (v != 0) b.drop({v});
    v = out;
  }
  return b.finish(v, true);
}

StageClass transformer_block(const Architecture& a, const Sizes& z) {
  ClassBuilder b;
  const int64_t t = z.tokens, d = a.hidden;
  const auto linear = [&](int64_t in, int64_t out, bool bias) {
    OpShape s = features(t, in, out);
    s.bias = bias;
    return s;
  };
  const auto call = [&](uint32_t module, OpKind op, const OpShape& s, int16_t in,
                        std::array<int32_t, 2> params) {
    b.enter(module, in);
    const int16_t out = b.run(op, s, {in, -1, -1}, params);
    b.exit(module, out);
    return out;
  };
  const int16_t x = 0;
  const int16_t n1 = call(1, OpKind::layer_norm, features(t, d, d), x, {0, 1});
  b.enter(2, n1);
  const int16_t q = call(3, OpKind::linear, linear(d, d, false), n1, {2, -1});
  const int16_t k = call(4, OpKind::linear, linear(d, d, false), n1, {3, -1});
  const int16_t v = call(5, OpKind::linear, linear(d, d, false), n1, {4, -1});
  OpShape att = features(t, 0, 0);
  att.batch = z.batch;
  att.seq = z.seq;
  att.heads = att.kv_heads = a.heads;
  att.head_dim = a.head_dim;
  const int16_t o = b.run(OpKind::attention, att, {q, k, v});
  const int16_t proj = call(6, OpKind::linear, linear(d, d, false), o, {5, -1});
  b.drop({q, k, v, o});
  b.exit(2, proj);
  b.drop({n1});
  const int16_t mid = b.run(OpKind::add, features(t, d, d), {x, proj, -1});
  b.drop({proj});
  const int16_t n2 = call(7, OpKind::layer_norm, features(t, d, d), mid, {6, 7});
  b.enter(8, n2);
  const int16_t w1 = call(9, OpKind::linear, linear(d, a.ffn, true), n2, {8, 9});
  const int16_t act = b.run(OpKind::gelu, features(t, a.ffn, a.ffn), {w1, -1, -1});
  b.drop({w1});
  const int16_t w2 = call(10, OpKind::linear, linear(a.ffn, d, true), act, {10, 11});
  b.drop({act});
  b.exit(8, w2);
  b.drop({n2});
  const int16_t out = b.run(OpKind::add, features(t, d, d), {mid, w2, -1});
  b.drop({w2, mid});
  return b.finish(out, true);
}

// h + pos_embeddings(arange): the ids and the rows looked up stay with the root's forward.
StageClass learned_positions(const Architecture& a, const Sizes& z) {
  ClassBuilder b;
  OpShape s = features(z.seq, a.max_positions, a.hidden);
  s.seq = z.seq;
  const int16_t ids = b.run(OpKind::arange, s, {-1, -1, -1});
  b.enter(0, ids);
  const int16_t rows = b.run(OpKind::embedding, s, {ids, -1, -1}, {0, -1});
  b.exit(0, rows);
  s.rows = z.tokens;
  StageClass c = b.finish(b.run(OpKind::add_rows, s, {0, rows, -1}));
  c.enters_itself = true;
  c.root_locals = {ids, rows};
  return c;
}

StageClass single(OpKind op, const OpShape& s, std::array<int32_t, 2> params = {-1, -1}) {
  ClassBuilder b;
  const int16_t out = b.run(op, s, {0, -1, -1}, params);
  return b.finish(out);
}

// The last stages of a model that returns the loss.
void loss_in_forward(Program& program, const Model& model, const ProgramInput& in, const Sizes& z) {
  const Architecture& a = model.architecture;
  const ModuleId head = model.head[1];
  const auto stage = [&](StageClass c, ModuleId m) -> Stage& {
    program.classes.push_back(std::move(c));
    Stage& s = program.stages.emplace_back();
    s.cls = static_cast<uint32_t>(program.classes.size() - 1);
    s.module = m;
    s.first_param = m.valid() ? model.modules[m.v].first_param : 0;
    s.inside = ModuleId{0};
    return s;
  };
  const auto loss_of = [&](int64_t rows) {
    OpShape s = features(rows, a.vocab, 1);
    s.to = in.float_loss ? DType::fp32 : DType::bf16;
    return s;
  };
  switch (in.loss) {
    case ProgramInput::Loss::plain: {
      stage(single(OpKind::linear, features(z.tokens, a.hidden, a.vocab), {0, -1}), head).keeps =
          in.keep_logits;
      if (in.keep_float_logits) {
        OpShape wide = features(z.tokens, a.vocab, a.vocab);
        wide.to = DType::fp32;
        stage(single(OpKind::cast, wide), {}).keeps = true;
      }
      stage(single(OpKind::cross_entropy, loss_of(z.tokens)), {}).loss = true;
      return;
    }
    case ProgramInput::Loss::checkpointed: {
      const int64_t size = ceil_div(z.tokens, in.chunks);
      int32_t chunk = 0;
      uint32_t cls = 0;
      for (int64_t begin = 0; begin < z.tokens; begin += size, ++chunk) {
        const int64_t rows = std::min(size, z.tokens - begin);
        ClassBuilder b;
        OpShape linear = features(rows, a.hidden, a.vocab);
        linear.matrix_input = true;
        b.enter(0, 0);
        const int16_t logits = b.run(OpKind::linear, linear, {0, -1, -1}, {0, -1});
        b.exit(0, logits);
        const int16_t loss = b.run(OpKind::cross_entropy, loss_of(rows), {logits, -1, -1});
        b.drop({logits});
        if (chunk == 0 || rows < size) {
          StageClass c = b.finish(loss);
          c.checkpointed = c.enters_itself = true;
          stage(std::move(c), head);
          cls = program.stages.back().cls;
        } else {
          program.stages.push_back(program.stages.back());
          program.stages.back().cls = cls;
        }
        program.stages.back().chunk = chunk;
        program.stages.back().slices = program.stages.back().adds_loss = true;
      }
      program.stages.back().loss = true;
      return;
    }
    case ProgramInput::Loss::split_logits: {
      stage(single(OpKind::linear, features(z.tokens, a.hidden, a.vocab), {0, -1}), head);
      const int64_t size = ceil_div(z.tokens, in.chunks);
      int32_t chunk = 0;
      for (int64_t begin = 0; begin < z.tokens; begin += size, ++chunk) {
        Stage& s =
            stage(single(OpKind::cross_entropy, loss_of(std::min(size, z.tokens - begin))), {});
        s.chunk = chunk;
        s.slices = s.adds_loss = true;
      }
      program.stages.back().loss = true;
      return;
    }
    case ProgramInput::Loss::fused: {
      OpShape s = features(z.tokens, a.hidden, a.vocab);
      s.chunks = in.chunks;
      StageClass c = single(OpKind::fused_loss, s, {0, -1});
      c.enters_itself = true;  // the head's weight is read, its forward not called
      stage(std::move(c), head).loss = true;
      return;
    }
  }
}

void decoder(Program& program, const Model& model, const ProgramInput& in) {
  const Architecture& a = model.architecture;
  const bool is_gpt2 = a.family == Family::gpt2, is_test = a.family == Family::transformer;
  const Sizes z{in.micro_batch, in.seq_len, in.micro_batch * in.seq_len};
  program.tokens = z.tokens;
  const auto add = [&](StageClass c) {
    program.classes.push_back(std::move(c));
    return static_cast<uint32_t>(program.classes.size() - 1);
  };
  const auto stage = [&](uint32_t cls, ModuleId m, bool loss = false) {
    Stage& s = program.stages.emplace_back();
    s.cls = cls;
    s.module = m;
    s.first_param = m.valid() ? model.modules[m.v].first_param : 0;
    s.loss = loss;
  };
  OpShape ids = features(z.tokens, 1, 1);
  ids.to = DType::i64;
  stage(add(single(OpKind::input, ids)), {});
  OpShape table = features(z.tokens, a.vocab, a.hidden);
  stage(add(single(OpKind::embedding, table, {0, -1})), model.embedding[0]);
  if (is_gpt2) {
    OpShape rows = features(z.tokens, a.max_positions, a.hidden);
    rows.seq = z.seq;
    ClassBuilder b;
    const int16_t out = b.run(OpKind::positions, rows, {0, -1, -1}, {0, -1});
    stage(add(b.finish(out)), model.embedding[1]);
  }
  if (is_test) stage(add(learned_positions(a, z)), model.embedding[1]);
  const uint32_t block =
      add(is_gpt2   ? (a.naming == Naming::hugging_face ? gpt2_block(a, z) : flat_gpt2_block(a, z))
          : is_test ? transformer_block(a, z)
                    : llama_block(a, z));
  for (ModuleId m : model.blocks) stage(block, m);
  OpShape norm = features(z.tokens, a.hidden, a.hidden);
  norm.norm = a.norm;
  StageClass last_norm = is_gpt2 || is_test ? single(OpKind::layer_norm, norm, {0, 1})
                                            : single(OpKind::rms_norm, norm, {0, -1});
  last_norm.holds_input = in.loss_in_forward;
  stage(add(std::move(last_norm)), model.head[0]);
  if (in.loss_in_forward) return loss_in_forward(program, model, in, z);
  if (in.chunks > 1) {
    // torch.chunk: slices of ceil(seq / chunks), and what is left.
    const int64_t size = ceil_div(z.seq, in.chunks);
    uint32_t head = 0, cross_entropy = 0;
    int32_t chunk = 0;
    for (int64_t begin = 0; begin < z.seq; begin += size, ++chunk) {
      const int64_t rows = z.batch * std::min(size, z.seq - begin);
      if (chunk == 0 || begin + size > z.seq) {
        // A slice of several sequences has its rows apart: what reads it as one matrix copies it.
        const bool apart = z.batch > 1;
        ClassBuilder b;
        const OpShape slice = features(rows, a.hidden, a.hidden);
        const int16_t h = apart ? b.run(OpKind::dense, slice, {0, -1, -1}, {-1, -1}) : 0;
        const int16_t logits =
            b.run(OpKind::linear, features(rows, a.hidden, a.vocab), {h, -1, -1}, {0, -1});
        if (apart) b.drop({h});
        head = add(b.finish(logits));
        OpShape loss = features(rows, a.vocab, 1);
        loss.sliced = apart;
        loss.to = in.float_loss ? DType::fp32 : DType::bf16;
        cross_entropy = add(single(OpKind::cross_entropy, loss));
      }
      stage(head, model.head[1]);
      program.stages.back().chunk = chunk;
      program.stages.back().slices = true;
      stage(cross_entropy, {}, begin + size >= z.seq);
      program.stages.back().chunk = chunk;
      program.stages.back().adds_loss = true;
    }
    return;
  }
  stage(add(single(OpKind::linear, features(z.tokens, a.hidden, a.vocab), {0, -1})), model.head[1]);
  OpShape loss = features(z.tokens, a.vocab, 1);
  if (is_test) {
    // The root returns its output in fp32, and the loss is its sum.
    loss.to = DType::fp32;
    OpShape wide = features(z.tokens, a.vocab, a.vocab);
    wide.to = DType::fp32;
    stage(add(single(OpKind::cast, wide)), {});
    program.stages.back().inside = ModuleId{0};
    stage(add(single(OpKind::sum, loss)), {}, true);
    return;
  }
  loss.to = in.float_loss ? DType::fp32 : DType::bf16;
  stage(add(single(OpKind::cross_entropy, loss)), {}, true);
}

bool alike(const std::vector<LinearShape>& a, const std::vector<LinearShape>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].out != b[i].out || a[i].in != b[i].in) return false;
  return true;
}

void stack(Program& program, const Model& model, const ProgramInput& in) {
  const Architecture& a = model.architecture;
  const int64_t rows = in.micro_batch;
  program.tokens = rows;
  program.input_is_float = true;
  program.input_features = a.hidden;
  const auto add = [&](StageClass c) {
    program.classes.push_back(std::move(c));
    return static_cast<uint32_t>(program.classes.size() - 1);
  };
  const auto stage = [&](uint32_t cls, ModuleId m, bool loss = false) {
    Stage& s = program.stages.emplace_back();
    s.cls = cls;
    s.module = m;
    s.first_param = m.valid() ? model.modules[m.v].first_param : 0;
    s.loss = loss;
  };
  const auto linear = [&](const LinearShape& l, bool bias) {
    OpShape s = features(rows, l.in, l.out);
    s.matrix_input = true;
    s.bias = bias;
    return s;
  };
  OpShape batch = features(rows, a.hidden, a.hidden);
  batch.to = in.input;
  stage(add(single(OpKind::input, batch)), {});
  int64_t width = a.hidden;
  if (a.root_first.out) {
    stage(add(single(OpKind::linear, linear(a.root_first, a.root_first_bias),
                     {0, a.root_first_bias ? 1 : -1})),
          model.embedding[0]);
    width = a.root_first.out;
  }
  uint32_t cls = 0;
  std::vector<uint32_t> class_of(model.blocks.size());
  // Where parameters differ in type, each block is given its input in its own.
  const bool mixed = std::any_of(model.params.begin(), model.params.end(),
                                 [](const Param& q) { return q.dtype.has_value(); });
  const auto dtype_of = [&](ModuleId m) {
    return model.params[model.modules[m.v].first_param].dtype.value_or(in.storage);
  };
  DType type = a.root_first.out ? dtype_of(model.embedding[0]) : in.input;
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    if (a.family == Family::stack) {
      const auto& block = a.linear_blocks[i];
      const DType own = mixed && !block.empty() ? dtype_of(model.blocks[i]) : type;
      if (i == 0 || mixed || !alike(block, a.linear_blocks[i - 1])) {
        ClassBuilder b;
        int16_t v = 0;
        int32_t p = 0;
        uint32_t m = 1;
        if (own != type) {
          OpShape cast = features(rows, width, width);
          cast.to = own;
          v = b.run(OpKind::cast, cast, {0, -1, -1});
          type = own;
        }
        const int16_t argument = v;
        for (const LinearShape& l : block) {
          b.enter(m, v);
          const int16_t out =
              b.run(OpKind::linear, linear(l, a.bias), {v, -1, -1}, {p, a.bias ? p + 1 : -1});
          b.exit(m++, out);
          // Sequential rebinds its variable; its argument belongs to the caller.
          if (v != argument) b.drop({v});
          v = out;
          p += a.bias ? 2 : 1;
        }
        if (argument != 0) b.drop({argument});
        cls = add(b.finish(v, true));
      }
      if (!block.empty()) width = block.back().out;
    } else if (a.family == Family::vectors) {
      const auto& block = a.bag_blocks[i];
      if (i == 0 || block != a.bag_blocks[i - 1]) {
        std::vector<int64_t> sizes;
        for (const auto& dims : block) sizes.push_back(dims.front());
        cls = add(vector_block(sizes, rows, width));
      }
    } else {
      const auto& block = a.bag_blocks[i];
      if (i == 0 || block != a.bag_blocks[i - 1]) {
        ClassBuilder b;
        int16_t v = 0;
        int32_t p = 0;
        for (const auto& dims : block) {
          int64_t n = 1;
          for (int64_t d : dims) n *= d;
          OpShape s = features(rows, width, n);
          s.scale = a.scale;
          const int16_t out = b.run(OpKind::bag, s, {v, -1, -1}, {p++, -1});
          if (v != 0) b.drop({v});
          v = out;
        }
        cls = add(b.finish(v, true));
      }
    }
    class_of[i] = cls;
  }
  std::vector<int64_t> calls = a.calls;
  if (calls.empty())
    for (size_t i = 0; i < model.blocks.size(); ++i) calls.push_back(static_cast<int64_t>(i));
  for (int64_t i : calls) {
    if (i < 0 || i >= static_cast<int64_t>(model.blocks.size()))
      throw Error("model: calls: there is no block " + std::to_string(i));
    stage(class_of[i], model.blocks[i]);
    program.stages.back().detach = std::find(a.detach.begin(), a.detach.end(), i) != a.detach.end();
  }
  if (!a.root_vectors.empty()) stage(add(vector_block(a.root_vectors, rows, width)), model.head[0]);
  if (a.root_last.out) {
    stage(add(single(OpKind::linear, linear(a.root_last, a.root_last_bias),
                     {0, a.root_last_bias ? 1 : -1})),
          model.head[0]);
    width = a.root_last.out;
  }
  OpShape loss = features(rows, width, 1);
  loss.to = in.float_loss ? DType::fp32 : DType::bf16;
  stage(add(single(OpKind::sum, loss)), {}, true);
}

}  // namespace

Program build_program(const Model& model, const ProgramInput& input) {
  Program program;
  program.stages.reserve(model.blocks.size() + 8);
  if (takes_tokens(model.architecture.family))
    decoder(program, model, input);
  else
    stack(program, model, input);
  return program;
}

int64_t model_flops_per_token(const Model& model, int64_t seq_len) {
  const Architecture& a = model.architecture;
  if (!takes_tokens(a.family)) return 6 * model.numel();
  // The embedding is a lookup; a tied head is a product all the same.
  const int64_t products =
      model.numel() - (a.tied ? 0 : a.vocab * a.hidden) - a.max_positions * a.hidden;
  return 6 * products + 12 * a.layers * a.heads * a.head_dim * seq_len;
}

}  // namespace shardsim
