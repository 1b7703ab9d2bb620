#include "sim/model/class_builder.h"

namespace shardsim {

OpShape features(int64_t rows, int64_t in, int64_t out) {
  OpShape s;
  s.rows = rows;
  s.in = in;
  s.out = out;
  return s;
}

namespace {

OpShape cast_to(DType type) {
  OpShape s;
  s.rows = 1;
  s.to = type;
  return s;
}

// weight * (y * rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) of y = x.float().
int16_t norm_in_one_expression(ClassBuilder& b, const OpShape& s, int16_t x, int32_t weight) {
  const OpShape row = features(s.rows, 1, 1);
  const int16_t y = b.run(OpKind::cast, cast_to(DType::fp32), {x, -1, -1});
  int16_t v = b.run(OpKind::square, s, {y, -1, -1});
  const auto next = [&](int16_t made) {
    b.drop({v});
    v = made;
  };
  next(b.run(OpKind::row_mean, s, {v, -1, -1}));
  next(b.run(OpKind::add_scalar, row, {v, -1, -1}));
  next(b.run(OpKind::rsqrt, row, {v, -1, -1}));
  next(b.run(OpKind::scale_rows, s, {y, v, -1}));
  next(b.run(OpKind::cast, cast_to(DType::fp32), {v, x, -1}));
  next(b.run(OpKind::mul_weight, s, {v, -1, -1}, {weight, -1}));
  b.drop({y});
  return v;
}

}  // namespace

int16_t written_out_norm(ClassBuilder& b, const OpShape& s, int16_t x, int32_t weight) {
  const OpShape row = features(s.rows, 1, 1);
  const int16_t wide = b.run(OpKind::cast, cast_to(DType::fp32), {x, -1, -1});
  const int16_t squares = b.run(OpKind::square, s, {wide, -1, -1});
  const int16_t mean = b.run(OpKind::row_mean, s, {squares, -1, -1});
  b.drop({squares});
  const int16_t sum = b.run(OpKind::add_scalar, row, {mean, -1, -1});
  const int16_t root = b.run(OpKind::rsqrt, row, {sum, -1, -1});
  b.drop({sum});
  const int16_t normed = b.run(OpKind::scale_rows, s, {wide, root, -1});
  b.drop({root, wide});
  const int16_t narrow = b.run(OpKind::cast, cast_to(DType::fp32), {normed, x, -1});
  const int16_t out = b.run(OpKind::mul_weight, s, {narrow, -1, -1}, {weight, -1});
  b.drop({narrow, normed, mean});
  return out;
}

int16_t rms_norm(ClassBuilder& b, const OpShape& s, int16_t x, int32_t weight) {
  if (s.norm == NormForm::hf && s.one_expression) return norm_in_one_expression(b, s, x, weight);
  if (s.norm == NormForm::hf) return written_out_norm(b, s, x, weight);
  return b.run(OpKind::rms_norm, s, {x, -1, -1}, {weight, -1});
}

int16_t eager_attention(ClassBuilder& b, const EagerAttention& a, int16_t q, int16_t k, int16_t v) {
  const int64_t pairs = a.batch * a.heads;
  OpShape product = features(a.seq, a.head_dim, a.seq);
  product.batch = pairs;
  product.copies = static_cast<uint8_t>(kCopiesFirst | (a.contiguous_kv ? 0 : kCopiesSecond));
  OpShape scores = features(pairs * a.seq, a.seq, a.seq);
  scores.batch = a.batch;
  scores.seq = a.seq;
  int16_t w = b.run(OpKind::matmul, product, {q, k, -1});
  const auto rebind = [&](int16_t to) {
    b.drop({w});
    w = to;
  };
  if (a.scaled) rebind(b.run(OpKind::mul_scalar, scores, {w, -1, -1}));
  if (a.causal) {
    const int16_t mask = b.run(OpKind::causal_mask, scores, {w, -1, -1});
    const int16_t masked = b.run(OpKind::add_to_scores, scores, {w, mask, -1});
    b.drop({mask});
    rebind(masked);
  }
  if (a.bias >= 0) rebind(b.run(OpKind::add_to_scores, scores, {w, a.bias, -1}));
  const int16_t wide = b.run(OpKind::cast, cast_to(DType::fp32), {w, -1, -1});
  const int16_t soft = b.run(OpKind::softmax, scores, {wide, -1, -1});
  b.drop({wide});
  const int16_t narrow = b.run(OpKind::cast, cast_to(DType::fp32), {soft, w, -1});
  b.drop({soft});
  rebind(narrow);
  if (a.dropout > 0) rebind(b.run(OpKind::dropout, scores, {w, -1, -1}));
  product = features(a.seq, a.seq, a.head_dim);
  product.batch = pairs;
  product.copies = static_cast<uint8_t>(kCopiesGradient | (a.contiguous_kv ? 0 : kCopiesSecond));
  const int16_t out = b.run(OpKind::matmul, product, {w, v, -1});
  b.drop({w});
  return out;
}

}  // namespace shardsim
