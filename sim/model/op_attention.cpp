#include <algorithm>

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
    if (e == 4) {
      f.alloc(0, 4 * n);
      f.pointwise("complex_mul", 8 * n, 4 * n, KernelClass::strided);
      b.alloc(temp(0), 4 * s.seq * s.head_dim);
      b.kernel("conj", KernelClass::pointwise, 8 * s.seq * s.head_dim);
      b.alloc(0, 4 * n);
      b.pointwise("complex_mul", 8 * n, 4 * n, KernelClass::strided);
      b.free(temp(0));
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
    b.alloc(temp(1), 4 * s.seq * s.head_dim);
    b.kernel("conj", KernelClass::pointwise, 8 * s.seq * s.head_dim);
    b.alloc(temp(2), 4 * n);
    b.pointwise("complex_mul", 8 * n, 4 * n, KernelClass::strided);
    b.free(temp(1));
    b.free(temp(0));
    b.alloc(0, e * n);
    b.pointwise("cast", (e + 4) * n, 4 * n);
    b.free(temp(2));
    return;
  }
  // rotate_half: q * cos + cat(-q2, q1) * sin.
  f.alloc(t0, e * n);
  f.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
  f.alloc(t1, e * n / 2);
  f.pointwise("neg", e * n, e * n / 2);
  f.alloc(t2, e * n);
  f.kernel("cat", KernelClass::pointwise, 2 * e * n);
  f.free(t1);
  f.alloc(extra(3), e * n);
  f.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
  f.free(t2);
  f.alloc(0, e * n);
  f.pointwise("add", 3 * e * n, e * n);
  f.free(t0);
  f.free(extra(3));
  b.alloc(temp(0), e * n);
  b.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
  b.alloc(temp(1), e * n / 2);
  b.pointwise("neg", e * n, e * n / 2);
  b.alloc(temp(2), e * n);
  b.zeros(x, e * n);
  b.pointwise("copy", e * n, e * n / 2);
  b.free(temp(1));
  b.alloc(0, e * n);
  b.zeros(x, e * n);
  b.pointwise("copy", e * n, e * n / 2);
  b.free(temp(0));
  b.pointwise("add", 3 * e * n, e * n);
  b.free(temp(2));
  b.alloc(temp(3), e * n);
  b.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
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
  if (e == 2) {
    f.alloc(0, q);
    f.alloc(l, lse);
    f.alloc(seed, 16);
    f.alloc(offset, 8);
    // Splits the keys where the grid would leave SMs empty (num_splits_heuristic, kernel-sequence 2).
    const int64_t blocks = s.batch * s.heads * ceil_div(s.seq, 64);
    const bool split = 10 * blocks < 8 * x.sms && s.seq > (d > 64 ? 128 : 256);
    f.attention("flash_attention", c.out, s, 2 * q + 2 * kv, flops);
    if (split) f.kernel("flash_combine", KernelClass::reduction, 2 * q);
    c.saved = {input(1), input(0), input(2), kept(l), kept(0), kept(seed), kept(offset)};
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
    b.alloc(temp(4), q);
    b.kernel("mul", KernelClass::pointwise, 3 * q);
    b.alloc(temp(5), lse);
    b.kernel("sum", KernelClass::reduction, q);
    b.alloc(temp(0), lse);
    b.kernel("copy", KernelClass::pointwise, 2 * lse);
    b.free(temp(5));
    b.free(temp(4));
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
