#include "sim/model/blocks.h"

namespace shardsim {

StageClass gpt2_block(const Architecture& a, const Sizes& z) {
  ClassBuilder b;
  const int64_t t = z.tokens, h = a.hidden;
  const auto linear = [&](int64_t in, int64_t out) {
    OpShape s = features(t, in, out);
    s.bias = s.conv1d = !a.no_bias;
    return s;
  };
  int32_t p = 0;
  const auto call = [&](uint32_t module, OpKind op, const OpShape& s, int16_t in) {
    b.enter(module, in);
    const int16_t out = b.run(op, s, {in, -1, -1}, {p, a.no_bias ? -1 : p + 1});
    p += a.no_bias ? 1 : 2;
    b.exit(module, out);
    return out;
  };
  const int16_t x = 0;
  const int16_t n1 = call(1, OpKind::layer_norm, features(t, h, h), x);
  b.enter(2, n1);
  const int16_t qkv = call(3, OpKind::linear, linear(h, 3 * h), n1);
  const int16_t q = b.run(OpKind::split_qkv, features(t, 3 * h, 3 * h), {qkv, -1, -1});
  b.drop({qkv});
  const auto k = static_cast<int16_t>(q + 1), v = static_cast<int16_t>(q + 2);
  OpShape att = features(t, 0, 0);
  att.batch = z.batch;
  att.seq = z.seq;
  att.heads = att.kv_heads = a.heads;
  att.head_dim = a.head_dim;
  att.dropout = a.dropout;
  att.sdpa = a.sdpa;
  const int16_t o = b.run(OpKind::attention, att, {q, k, v});
  int16_t proj = call(4, OpKind::linear, linear(h, h), o);
  const auto drop_out = [&](int16_t& y) {
    if (a.dropout == 0) return;
    const int16_t dropped = b.run(OpKind::dropout, features(t, h, h), {y, -1, -1});
    b.drop({y});
    y = dropped;
  };
  drop_out(proj);
  b.drop({q, k, v, o});
  b.exit(2, proj);
  b.drop({n1});
  const int16_t mid = b.run(OpKind::add, features(t, h, h), {x, proj, -1});
  b.drop({proj});
  const int16_t n2 = call(5, OpKind::layer_norm, features(t, h, h), mid);
  b.enter(6, n2);
  const int16_t fc = call(7, OpKind::linear, linear(h, a.ffn), n2);
  const int16_t act = b.run(OpKind::gelu, features(t, a.ffn, a.ffn), {fc, -1, -1});
  b.drop({fc});
  int16_t down = call(8, OpKind::linear, linear(a.ffn, h), act);
  b.drop({act});
  drop_out(down);
  b.exit(6, down);
  b.drop({n2});
  const int16_t out = b.run(OpKind::add, features(t, h, h), {mid, down, -1});
  b.drop({down, mid});
  return b.finish(out, true);
}

// Gpt2Block of the recorder's FSDP1 program, where q, k and v live until it returns; in that of training
// memory (GptBlock) so do the attention's result and the MLP's.
StageClass flat_gpt2_block(const Architecture& a, const Sizes& z) {
  ClassBuilder b;
  const int64_t t = z.tokens, h = a.hidden;
  const bool memory = a.naming == Naming::recorder_memory;
  int32_t p = 0;
  const auto call = [&](uint32_t module, OpKind op, int64_t in, int64_t out_features, bool bias,
                        int16_t x) {
    b.enter(module, x);
    OpShape s = features(t, in, out_features);
    s.bias = bias;
    const int16_t out = b.run(op, s, {x, -1, -1}, {p, bias ? p + 1 : -1});
    p += bias ? 2 : 1;
    b.exit(module, out);
    return out;
  };
  const auto dropped = [&](int16_t v, bool temporary) {
    if (a.dropout == 0) return v;
    const int16_t out = b.run(OpKind::dropout, features(t, h, h), {v, -1, -1});
    if (temporary) b.drop({v});
    return out;
  };
  const bool bias = !a.no_bias;
  const int16_t x = 0;
  const int16_t n1 = call(1, OpKind::layer_norm, h, h, bias, x);
  const int16_t qkv = call(2, OpKind::linear, h, 3 * h, bias, n1);
  b.drop({n1});
  const int16_t q = b.run(OpKind::split_qkv, features(t, 3 * h, 3 * h), {qkv, -1, -1});
  b.drop({qkv});
  const auto k = static_cast<int16_t>(q + 1), v = static_cast<int16_t>(q + 2);
  OpShape att = features(t, 0, 0);
  att.batch = z.batch;
  att.seq = z.seq;
  att.heads = att.kv_heads = a.heads;
  att.head_dim = a.head_dim;
  att.sdpa = a.sdpa;
  att.dropout = a.dropout;
  const int16_t o = b.run(OpKind::attention, att, {q, k, v});
  const int16_t proj = call(3, OpKind::linear, h, h, bias, o);
  if (!memory) b.drop({o});
  const int16_t branch = dropped(proj, true);
  const int16_t mid = b.run(OpKind::add, features(t, h, h), {x, branch, -1});
  b.drop({branch});
  const int16_t n2 = call(4, OpKind::layer_norm, h, h, bias, mid);
  const int16_t fc = call(5, OpKind::linear, h, a.ffn, bias, n2);
  b.drop({n2});
  const int16_t act = b.run(OpKind::gelu, features(t, a.ffn, a.ffn), {fc, -1, -1});
  b.drop({fc});
  const int16_t down = call(6, OpKind::linear, a.ffn, h, bias, act);
  b.drop({act});
  const int16_t branch2 = dropped(down, false);
  const int16_t out = b.run(OpKind::add, features(t, h, h), {mid, branch2, -1});
  if (a.dropout > 0) b.drop({branch2});
  if (memory)
    b.drop({mid, q, k, v, o, down});
  else
    b.drop({down, mid, q, k, v});
  return b.finish(out, true);
}

}  // namespace shardsim
