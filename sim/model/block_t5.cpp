#include "sim/model/blocks.h"

namespace shardsim {

// t = na(x); x = x + dropout(attention(t, t)); the decoder's x + dropout(attention(nx(x), encoded)); then
// x + dropout(wo(dropout(relu(wi(nm(x)))))). Module and parameter numbers follow build_model's order.
StageClass t5_block(const Architecture& a, const Sizes& z, bool decoder) {
  ClassBuilder b(2);
  const int64_t t = z.tokens, h = a.hidden, width = a.heads * a.head_dim;
  OpShape norm = features(t, h, h);
  norm.norm = NormForm::hf;
  const auto norm_of = [&](uint32_t module, int16_t x, int32_t p) {
    b.enter(module, x);
    const int16_t out = rms_norm(b, norm, x, p);
    b.exit(module, out);
    return out;
  };
  const auto linear = [&](uint32_t module, int64_t in, int64_t out, int16_t x, int32_t p) {
    b.enter(module, x);
    const int16_t y = b.run(OpKind::linear, features(t, in, out), {x, -1, -1}, {p, -1});
    b.exit(module, y);
    return y;
  };
  const auto dropped = [&](int16_t v, int64_t features_of) {
    if (a.dropout == 0) return v;
    const int16_t out = b.run(OpKind::dropout, features(t, 0, features_of), {v, -1, -1});
    b.drop({v});
    return out;
  };
  const auto heads = [&](uint32_t module, int16_t x, int32_t p) {
    const int16_t rows = linear(module, h, width, x, p);
    const int16_t view = b.run(OpKind::relayout, features(t, 0, width), {rows, -1, -1});
    b.drop({rows});
    return view;
  };
  const auto attention = [&](uint32_t module, int32_t p, int16_t x, int16_t y, int16_t bias) {
    const int16_t q = heads(module, x, p), k = heads(module + 1, y, p + 1),
                  v = heads(module + 2, y, p + 2);
    EagerAttention how{z.batch, z.seq, a.heads, a.head_dim};
    how.scaled = how.causal = false;
    how.bias = bias;
    how.dropout = a.dropout;
    const int16_t o = eager_attention(b, how, q, k, v);
    const int16_t rows = b.run(OpKind::contiguous, features(t, 0, width), {o, -1, -1});
    b.drop({o});
    const int16_t out = linear(module + 3, width, h, rows, p + 3);
    b.drop({rows, q, k, v});
    return out;
  };
  const auto add = [&](int16_t x, int16_t branch) {
    const int16_t out = b.run(OpKind::add, features(t, h, h), {x, branch, -1});
    b.drop({branch});
    return out;
  };
  int16_t x = 0;
  const int16_t self = norm_of(6, x, 4);
  const int16_t mid = add(x, dropped(attention(2, 0, self, self, 1), h));
  x = mid;
  if (decoder) {
    const int16_t query = norm_of(15, x, 12);
    const int16_t branch = attention(11, 8, query, 2, -1);
    b.drop({query});
    const int16_t out = add(x, dropped(branch, h));
    b.drop({x});
    x = out;
  }
  const int16_t n = norm_of(7, x, 5);
  const int16_t wide = linear(8, h, a.ffn, n, 6);
  b.drop({n});
  const int16_t act = b.run(OpKind::relu, features(t, a.ffn, a.ffn), {wide, -1, -1});
  b.drop({wide});
  const int16_t thin = dropped(act, a.ffn);
  const int16_t down = linear(9, a.ffn, h, thin, 7);
  b.drop({thin});
  const int16_t out = add(x, dropped(down, h));
  b.drop({x, self});
  return b.finish(out, true);
}

}  // namespace shardsim
