#include "sim/model/blocks.h"

namespace shardsim {

StageClass rotary_tables(const Architecture& a, const Sizes& z) {
  ClassBuilder b;
  OpShape ids = features(z.seq, 1, 1), half = features(z.seq, 1, a.head_dim / 2),
          whole = features(z.seq, 1, a.head_dim);
  ids.seq = z.seq;
  OpShape wide;
  wide.to = half.to = whole.to = DType::fp32;
  const int16_t positions = b.run(OpKind::arange, ids, {-1, -1, -1});
  const int16_t floats = b.run(OpKind::cast, wide, {positions, -1, -1});
  const int16_t angles = b.run(OpKind::table, half, {-1, -1, -1});
  b.drop({floats});
  OpShape twice = whole;
  twice.copies = 2;
  const int16_t doubled = b.run(OpKind::table, twice, {-1, -1, -1});
  std::vector<int16_t> tables;
  for (int i = 0; i < 2; ++i) {
    const int16_t made = b.run(OpKind::table, whole, {-1, -1, -1});
    tables.push_back(b.run(OpKind::cast, wide, {made, 0, -1}));
    b.drop({made});
  }
  StageClass c = b.finish(0);
  c.published = tables;
  c.root_locals = {positions, angles, doubled};
  return c;
}

// Module and parameter numbers below a block follow build_model's order.
StageClass llama_block(const Architecture& a, const Sizes& z) {
  const bool tables = a.rope == RopeForm::hf, eager = a.attention == AttentionForm::eager;
  ClassBuilder b(tables ? 2 : 0);
  const int64_t t = z.tokens, h = a.hidden, q_dim = a.heads * a.head_dim,
                kv_dim = a.kv_heads * a.head_dim;
  OpShape norm = features(t, h, h);
  norm.norm = a.norm;
  norm.one_expression = a.naming == Naming::recorder_compiled;
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

  const auto norm_of = [&](uint32_t module, const OpShape& s, int16_t in, int32_t weight) {
    b.enter(module, in);
    const int16_t out = rms_norm(b, s, in, weight);
    b.exit(module, out);
    return out;
  };

  const int16_t x = 0;
  const int16_t n1 = norm_of(m_norm, norm, x, p_in_norm[0]);
  b.enter(m_attn, n1);
  const auto rebind = [&](int16_t& v, int16_t to) {
    b.drop({v});
    v = to;
  };
  // A gradient comes back laid out by heads from what made a copy of its own: rotate_half's halves,
  // repeat_kv, products of matrices; the view before that takes it in the linear's layout only.
  const bool repeats = a.kv_heads != a.heads && (a.repeat_kv || eager);
  const auto view = [&](int16_t& v, int64_t features_of, bool by_heads) {
    if (by_heads) rebind(v, b.run(OpKind::relayout, features(t, 0, features_of), {v, -1, -1}));
  };
  // Complex numbers have the copy made among their own steps.
  const bool complex = a.rope == RopeForm::complex;
  const bool by_heads = eager || a.sdpa == Sdpa::math;
  const bool views_q = !complex && (by_heads || tables), views_k = views_q || (!complex && repeats);
  int16_t q = call(m_q, OpKind::linear, linear(h, q_dim, a.qkv_bias), n1, p_q);
  if (!a.qk_norm) view(q, q_dim, views_q);
  int16_t k = call(m_k, OpKind::linear, linear(h, kv_dim, a.qkv_bias), n1, p_k);
  if (!a.qk_norm) view(k, kv_dim, views_k);
  if (a.qk_norm) {
    OpShape s = norm;
    s.in = s.out = a.head_dim;
    s.rows = t * a.heads;
    rebind(q, norm_of(m_qn, s, q, p_qn[0]));
    s.rows = t * a.kv_heads;
    rebind(k, norm_of(m_kn, s, k, p_kn[0]));
    view(q, q_dim, views_q);
    view(k, kv_dim, views_k);
  }
  OpShape att = features(t, 0, 0);
  att.batch = z.batch;
  att.seq = z.seq;
  att.heads = a.heads;
  att.kv_heads = a.kv_heads;
  att.head_dim = a.head_dim;
  att.sdpa = a.sdpa;
  const auto rotate = [&] {
    OpShape s = att;
    s.rope = a.rope;
    s.by_chunk = a.naming == Naming::recorder_compiled;
    const int16_t cos = tables ? 1 : -1, sin = tables ? 2 : -1;
    s.out = q_dim;
    s.copies = by_heads ? kCopiesGradient : uint8_t{0};
    const int16_t q_rotated = b.run(OpKind::rope, s, {q, cos, sin});
    s.out = kv_dim;
    s.copies = by_heads || repeats ? kCopiesGradient : uint8_t{0};
    const int16_t k_rotated = b.run(OpKind::rope, s, {k, cos, sin});
    b.drop({k, q});
    q = q_rotated;
    k = k_rotated;
  };
  if (complex) rotate();
  int16_t v = call(m_v, OpKind::linear, linear(h, kv_dim, a.qkv_bias), n1, p_v);
  view(v, kv_dim, by_heads || repeats);
  if (tables) rotate();
  // What the attention function expands is its own.
  int16_t keys = k, values = v;
  if (repeats) {
    keys = b.run(OpKind::repeat_kv, att, {k, -1, -1});
    values = b.run(OpKind::repeat_kv, att, {v, -1, -1});
    att.kv_heads = a.heads;
  }
  int16_t o = -1;
  if (eager)
    o = eager_attention(b, {z.batch, z.seq, a.heads, a.head_dim, repeats}, q, keys, values);
  else
    o = b.run(OpKind::attention, att, {q, keys, values});
  if (repeats) b.drop({keys, values});
  // o.transpose(1, 2).reshape(...): a copy of what lies by heads.
  int16_t rows = o;
  if (by_heads) rows = b.run(OpKind::contiguous, features(t, 0, q_dim), {o, -1, -1});
  const int16_t proj = call(m_o, OpKind::linear, linear(q_dim, h, a.o_bias), rows, p_o);
  if (by_heads) b.drop({rows});
  b.drop({q, k, v, o});
  b.exit(m_attn, proj);
  b.drop({n1});
  const int16_t mid = b.run(OpKind::add, features(t, h, h), {x, proj, -1});
  b.drop({proj});

  const int16_t n2 = norm_of(m_post, norm, mid, p_post[0]);
  b.enter(m_mlp, n2);
  if (a.experts > 0) {
    const int16_t mixed = experts(b, a, t, n2, m_mlp, p_gate[0]);
    b.exit(m_mlp, mixed);
    b.drop({n2});
    const int16_t sum = b.run(OpKind::add, features(t, h, h), {mid, mixed, -1});
    b.drop({mixed, mid});
    return b.finish(sum, true);
  }
  const int16_t gate = call(m_gate, OpKind::linear, linear(h, a.ffn, a.mlp_bias), n2, p_gate);
  const int16_t act =
      b.run(a.gelu ? OpKind::gelu : OpKind::silu, features(t, a.ffn, a.ffn), {gate, -1, -1});
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

}  // namespace shardsim
