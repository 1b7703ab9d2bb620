#include <algorithm>
#include <string>

#include "sim/base/error.h"
#include "sim/model/op_kinds.h"
#include "sim/model/op_writer.h"

namespace shardsim::op {

void rope(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]), n = s.rows * s.out;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  const uint8_t t0 = extra(0), t1 = extra(1), t2 = extra(2);
  if (s.rope == RopeForm::complex) {
    const bool by_heads = (s.copies & kCopiesGradient) != 0;
    if (e == 4) {
      f.alloc(0, 4 * n);
      f.pointwise("complex_mul", 8 * n, 4 * n, KernelClass::strided);
      // A gradient that lies by heads is copied before it can be seen as complex numbers.
      if (by_heads) {
        b.alloc(temp(3), 4 * n);
        b.pointwise("copy", 8 * n, 4 * n, KernelClass::strided);
        b.take_gradient();
      }
      b.alloc(temp(0), 4 * s.seq * s.head_dim);
      b.kernel("conj", KernelClass::pointwise, 8 * s.seq * s.head_dim);
      b.alloc(0, 4 * n);
      b.pointwise("complex_mul", 8 * n, 4 * n, KernelClass::strided);
      b.free(temp(0));
      if (by_heads) b.free(temp(3));
      return;
    }
    f.alloc(t0, 4 * n);
    f.pointwise("cast", (e + 4) * n, 4 * n);
    f.alloc(t1, 4 * n);
    f.pointwise("complex_mul", 8 * n, 4 * n, KernelClass::strided);
    f.free(t0);
    f.alloc(0, e * n);
    f.pointwise("cast", (e + 4) * n, 4 * n);
    f.free(t1);
    b.alloc(temp(0), 4 * n);
    b.pointwise("cast", (e + 4) * n, 4 * n);
    b.take_gradient();
    const uint8_t wide_grad = by_heads ? temp(3) : temp(0);
    if (by_heads) {
      b.alloc(wide_grad, 4 * n);
      b.pointwise("copy", 8 * n, 4 * n, KernelClass::strided);
      b.free(temp(0));
    }
    b.alloc(temp(1), 4 * s.seq * s.head_dim);
    b.kernel("conj", KernelClass::pointwise, 8 * s.seq * s.head_dim);
    b.alloc(temp(2), 4 * n);
    b.pointwise("complex_mul", 8 * n, 4 * n, KernelClass::strided);
    b.free(temp(1));
    b.free(wide_grad);
    b.alloc(0, e * n);
    b.pointwise("cast", (e + 4) * n, 4 * n);
    b.free(temp(2));
    return;
  }
  // rotate_half: q * cos + cat(-q2, q1) * sin. Tables of a wider type make the products wider.
  const DType wide = x.has_in[1] ? promote(x.in[0], x.in[1]) : x.in[0];
  const int64_t w = bytes_of(wide);
  c.out = wide;
  f.alloc(t0, w * n);
  f.pointwise("mul", (e + w) * n, w * n, KernelClass::strided);
  f.alloc(t1, e * n / 2);
  f.pointwise("neg", e * n, e * n / 2);
  f.alloc(t2, e * n);
  f.kernel("cat", KernelClass::cat, 2 * e * n);
  f.free(t1);
  f.alloc(extra(3), w * n);
  f.pointwise("mul", (e + w) * n, w * n, KernelClass::strided);
  f.free(t2);
  f.alloc(0, w * n);
  f.pointwise("add", 3 * w * n, w * n);
  f.free(t0);
  f.free(extra(3));
  if (x.has_in[1]) c.saved = {input(2), input(1)};
  // A product's gradient, cast to q's type where that is narrower.
  const auto product = [&](uint8_t slot) {
    const uint8_t made = w != e ? temp(4) : slot;
    b.alloc(made, w * n);
    b.pointwise("mul", 2 * w * n, w * n, KernelClass::strided);
    if (w == e) return;
    b.alloc(slot, e * n);
    b.pointwise("cast", (e + w) * n, w * n);
    b.free(made);
  };
  // slice_backward: zeros, and the half in its place.
  const auto slice = [&](uint8_t slot) {
    b.alloc(slot, e * n);
    b.zeros(x, e * n);
    b.pointwise("copy", e * n, e * n / 2);
  };
  product(temp(0));
  if (x.has_in[1]) b.release(0);
  b.alloc(temp(1), e * n / 2);
  b.pointwise("neg", e * n, e * n / 2);
  if (s.by_chunk) {
    b.alloc(0, e * n);
    b.kernel("cat", KernelClass::cat, 2 * e * n);
    b.free(temp(0));
    b.free(temp(1));
  } else {
    slice(0);
    b.free(temp(1));
    slice(temp(2));
    b.free(temp(0));
    b.pointwise("add", 3 * e * n, e * n);
    b.free(temp(2));
  }
  product(temp(3));
  b.take_gradient();
  if (x.has_in[1]) b.release(1);
  b.pointwise("add", 3 * e * n, e * n);
  b.free(temp(3));
}

void repeat_kv(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]);
  const Bytes narrow = e * s.rows * s.kv_heads * s.head_dim,
              wide = e * s.rows * s.heads * s.head_dim;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, wide);
  f.pointwise("copy", narrow + wide, wide, KernelClass::strided);
  b.alloc(0, narrow);
  b.kernel("sum", KernelClass::reduction, narrow + wide);
}

namespace {

// _scaled_dot_product_attention_math: in fp32, q and k scaled both, the mask made on the spot. Grouped
// keys and values are expanded first. The result lies by heads.
void math_attention(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]), pairs = s.batch * s.heads, scores = pairs * s.seq * s.seq;
  const int64_t q = s.rows * s.heads * s.head_dim, kv = s.rows * s.kv_heads * s.head_dim;
  const bool narrow = e < 4, grouped = s.kv_heads != s.heads;
  const DType wide = DType::fp32;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  const auto make = [](Writer& w, uint8_t slot, Bytes bytes, const char* name,
                       KernelClass cls = KernelClass::pointwise) {
    w.alloc(slot, bytes);
    w.pointwise(name, 2 * bytes, bytes, cls);
  };
  const uint8_t q32 = extra(0), k32 = extra(1), v32 = extra(2), scaled_q = extra(3),
                mask = extra(4), scaled_k = extra(5), copy_q = extra(6), copy_k = extra(7),
                copy_v = extra(8), soft = extra(9), made = extra(10), weights = extra(11),
                out = narrow ? extra(12) : uint8_t{0}, all_k = extra(13), t0 = extra(14),
                t1 = extra(15), t2 = extra(16), t3 = extra(17);
  if (narrow) {
    make(f, q32, 4 * q, "cast");
    make(f, k32, 4 * kv, "cast");
    make(f, v32, 4 * kv, "cast");
  }
  make(f, scaled_q, 4 * q, "mul");
  make(f, t0, s.seq * s.seq, "fill");
  make(f, t1, s.seq * s.seq, "tril");
  f.free(t0);
  make(f, t2, 4, "fill");
  make(f, t3, 4, "fill");
  make(f, mask, 4 * s.seq * s.seq, "where");
  f.free(t3);
  f.free(t2);
  f.free(t1);
  if (grouped) {
    make(f, all_k, 4 * q, "copy", KernelClass::strided);
    make(f, copy_v, 4 * q, "copy", KernelClass::strided);
  }
  make(f, scaled_k, 4 * q, "mul");
  make(f, copy_q, 4 * q, "copy", KernelClass::strided);
  if (!grouped) make(f, copy_k, 4 * q, "copy", KernelClass::strided);
  f.alloc(made, 4 * scores);
  f.gemm(x, wide, "attention_scores", s.seq, s.seq, s.head_dim, false, pairs);
  if (!grouped) f.free(scaled_k);
  f.pointwise("add", 8 * scores, 4 * scores, KernelClass::strided);
  f.alloc(soft, 4 * scores);
  f.kernel("softmax", KernelClass::softmax, 8 * scores, 5 * scores);
  make(f, t0, scores, "eq");
  f.alloc(t1, pairs * s.seq);
  f.kernel("all", KernelClass::reduction, scores);
  make(f, t2, 4, "fill");
  f.pointwise("where", 4 * scores, 4 * scores, KernelClass::strided);
  f.free(t2);
  f.free(t1);
  f.free(t0);
  f.free(made);
  if (narrow) make(f, weights, e * scores, "cast");
  if (!grouped) make(f, copy_v, 4 * q, "copy", KernelClass::strided);
  f.alloc(out, 4 * q);
  f.gemm(x, wide, "attention_values", s.head_dim, s.seq, s.seq, false, pairs);
  if (narrow) {
    make(f, 0, e * q, "cast");
    f.free(out);
  }
  if (grouped) f.free(all_k);
  f.free(scaled_q);
  f.free(mask);
  if (narrow) {
    f.free(v32);
    f.free(k32);
    f.free(q32);
    f.free(weights);
  }
  c.saved = {kept(copy_v), kept(soft), kept(grouped ? scaled_k : copy_k), kept(copy_q)};

  if (narrow) {
    make(b, temp(0), 4 * q, "cast");
    b.take_gradient();
  }
  make(b, temp(1), 4 * q, "copy", KernelClass::strided);
  if (narrow)
    b.free(temp(0));
  else
    b.take_gradient();
  const uint8_t dv = grouped || narrow ? temp(2) : uint8_t{2};
  b.alloc(dv, 4 * q);
  b.gemm(x, wide, "attention_dv", s.head_dim, s.seq, s.seq, false, pairs);
  b.alloc(temp(3), 4 * scores);
  b.gemm(x, wide, "attention_dw", s.seq, s.seq, s.head_dim, false, pairs);
  b.free(temp(1));
  b.release(0);
  b.alloc(temp(4), 4 * scores);
  make(b, temp(5), 4 * scores, "mul");
  b.kernel("softmax_backward", KernelClass::softmax, 12 * scores, 4 * scores);
  b.free(temp(5));
  b.free(temp(3));
  b.release(1);
  b.alloc(temp(6), 4 * q);
  b.gemm(x, wide, "attention_dk", s.seq, s.head_dim, s.seq, false, pairs);
  b.alloc(temp(7), 4 * q);
  b.gemm(x, wide, "attention_dq", s.head_dim, s.seq, s.seq, false, pairs);
  b.free(temp(4));
  b.release(2);
  b.release(3);
  // k's factor, the sums over what was expanded, q's factor, the casts.
  const auto step = [&](uint8_t from, uint8_t to, Bytes bytes, const char* name,
                        KernelClass cls = KernelClass::pointwise) {
    make(b, to, bytes, name, cls);
    b.free(from);
    return to;
  };
  uint8_t dk = step(temp(6), grouped || narrow ? temp(8) : uint8_t{1}, 4 * q, "mul");
  uint8_t grad_v = dv;
  if (grouped) {
    grad_v = step(grad_v, narrow ? temp(9) : uint8_t{2}, 4 * kv, "sum", KernelClass::reduction);
    dk = step(dk, narrow ? temp(10) : uint8_t{1}, 4 * kv, "sum", KernelClass::reduction);
  }
  const uint8_t dq = step(temp(7), narrow ? temp(11) : uint8_t{0}, 4 * q, "mul");
  if (!narrow) return;
  step(grad_v, 2, e * kv, "cast");
  step(dk, 1, e * kv, "cast");
  step(dq, 0, e * q, "cast");
}

}  // namespace

void attention(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]), d = s.head_dim;
  const Bytes q = e * s.rows * s.heads * d, kv = e * s.rows * s.kv_heads * d;
  const Bytes lse = 4 * s.batch * s.heads * s.seq;
  const bool grouped = s.kv_heads != s.heads;
  // 4*b*n*s^2*d, halved by the causal mask; backward 2.5 times that (cost-model D.2).
  const int64_t flops = 2 * s.batch * s.heads * s.seq * s.seq * d;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  const uint8_t l = extra(0), seed = extra(1), offset = extra(2);
  if (s.sdpa == Sdpa::math) return math_attention(c, s, x);
  if (s.sdpa == Sdpa::flash || (s.sdpa == Sdpa::best && e == 2)) {
    if (e != 2)
      throw Error("model.sdpa: flash attention takes bf16 and fp16, and gets " +
                      std::string(name_of(x.in[0])),
                  {}, "PyTorch raises RuntimeError (No available kernel); efficient and math do");
    f.alloc(0, q);
    f.alloc(l, lse);
    f.alloc(extra(3), 16);
    f.alloc(offset, 8);
    // With dropout the seed is a tensor of its own, and the one before it goes.
    if (s.dropout > 0) {
      f.alloc(seed, 16);
      f.free(extra(3));
    }
    // Splits the keys where the grid would leave SMs empty (num_splits_heuristic, kernel-sequence 2).
    const int64_t blocks = s.batch * s.heads * ceil_div(s.seq, 64);
    const bool split = 10 * blocks < 8 * x.sms && s.seq > (d > 64 ? 128 : 256);
    f.attention("flash_attention", c.out, s, 2 * q + 2 * kv, flops);
    if (split) f.kernel("flash_combine", KernelClass::reduction, 2 * q);
    const uint8_t state = s.dropout > 0 ? seed : extra(3);
    c.saved = {input(1), input(0), input(2), kept(l), kept(0), kept(state), kept(offset)};
    const int64_t rounded = ceil_div(s.seq, 128) * 128;
    b.alloc(0, q);
    b.alloc(1, kv);
    b.alloc(2, kv);
    b.alloc(temp(0), 4 * s.batch * s.heads * rounded);
    b.alloc(temp(1), 4 * s.batch * s.heads * rounded * d);
    if (grouped) {
      b.alloc(temp(2), q);
      b.alloc(temp(3), q);
    }
    b.kernel("flash_attention_dot", KernelClass::reduction, 2 * q);
    b.attention("flash_attention_backward", c.out, s, 4 * q + 4 * kv, 5 * flops / 2);
    b.kernel("flash_attention_convert", KernelClass::pointwise, 3 * q);
    if (grouped) {
      b.kernel("sum", KernelClass::reduction, q + kv);
      b.kernel("sum", KernelClass::reduction, q + kv);
      b.free(temp(3));
      b.free(temp(2));
    }
    b.free(temp(1));
    b.free(temp(0));
  } else {
    if (grouped && !x.behaviour->fuses_fp32_grouped)
      throw Error::at(
          "training.precision",
          "this build cannot play attention in fp32 with fewer key-value heads than heads",
          "PyTorch 2.7 computes it operator by operator; use compute: bf16, or model.repeat_kv");
    const bool seeds = !x.behaviour->seeds_on_host;
    if (seeds) {
      f.alloc(seed, 8);
      f.alloc(offset, 8);
    }
    f.alloc(0, q);
    f.alloc(l, 4 * s.batch * s.heads * ceil_div(s.seq, 32) * 32);
    if (seeds) {
      f.zeros(x, 8);
      f.zeros(x, 8);
    }
    f.attention("efficient_attention", c.out, s, 2 * q + 2 * kv, flops);
    c.saved = {input(1), input(0), input(2), kept(l), kept(0)};
    if (seeds) c.saved.insert(c.saved.end(), {kept(seed), kept(offset)});
    // One tile of dq and a lock for each block of queries, cleared where several blocks of keys meet
    // in it (kernel_backward.h). Seen at 16, 128 and 512 tokens, 4, 12 and 16 heads of 48 and 64; the
    // tile of 128 rows for wider heads is read.
    const int64_t tile = d <= 64 ? 64 : 128;
    const Bytes workspace =
        s.batch * s.heads * ceil_div(s.seq, tile) * ceil_div(d, 64) * (16 + 4 * tile * 64);
    b.alloc(0, q);
    b.alloc(1, grouped ? kv : q);
    b.alloc(2, grouped ? kv : q);
    if (grouped) {
      b.alloc(temp(2), q);
      b.alloc(temp(3), q);
    }
    if (e == 2) {  // the kernel's own
      b.alloc(temp(0), lse);
    } else {
      b.alloc(temp(4), q);
      b.kernel("mul", KernelClass::pointwise, 3 * q);
      b.alloc(temp(5), lse);
      b.kernel("sum", KernelClass::reduction, q);
      b.alloc(temp(0), lse);
      b.kernel("copy", KernelClass::pointwise, 2 * lse);
      b.free(temp(5));
      b.free(temp(4));
    }
    b.alloc(temp(1), workspace);
    if (s.seq > 64) b.zeros(x, workspace);
    b.attention("efficient_attention_backward", c.out, s, 4 * q + 4 * kv, 5 * flops / 2);
    if (grouped) {
      b.kernel("sum", KernelClass::reduction, q + kv);
      b.kernel("sum", KernelClass::reduction, q + kv);
    }
    b.free(temp(0));
    b.free(temp(1));
    if (grouped) {
      b.free(temp(3));
      b.free(temp(2));
    }
  }
}

void split_qkv(OpCode& c, const OpShape& s, const OpContext& x) {
  c.out = x.in[0];
  c.outputs = 3;
  c.aliases_input = true;
  c.split_gradient = true;
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.in;
  Writer b(c.backward);
  b.alloc(0, all);
  b.kernel("cat", KernelClass::cat, 2 * all);
}

}  // namespace shardsim::op
