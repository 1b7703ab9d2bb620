#include <algorithm>

#include "sim/base/units.h"
#include "sim/model/op_kinds.h"
#include "sim/model/op_writer.h"

namespace shardsim::op {

namespace {

// Under autocast: log-softmax in the logits' type, nll_loss on an fp32 copy of it.
void narrow_cross_entropy(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.rows * s.in, e = bytes_of(x.in[0]);
  c.out = DType::fp32;
  Writer f(c.forward), b(c.backward);
  const uint8_t lsm = extra(0), wide = extra(1), total = extra(2);
  f.alloc(lsm, e * n);
  f.kernel("log_softmax", KernelClass::softmax, 2 * e * n, 5 * n);
  f.alloc(wide, 4 * n);
  f.pointwise("cast", (e + 4) * n, 4 * n);
  f.alloc(0, 4);
  f.alloc(total, 4);
  f.kernel("nll_loss", KernelClass::reduction, 12 * s.rows);
  c.saved = {kept(wide), kept(total), kept(lsm)};
  b.alloc(temp(0), 4 * n);
  b.zeros(x, 4 * n);
  b.kernel("nll_loss_backward", KernelClass::pointwise, 12 * s.rows);
  b.take_gradient();
  b.release(0);
  b.release(1);
  b.alloc(temp(1), e * n);
  b.pointwise("cast", (e + 4) * n, 4 * n);
  b.free(temp(0));
  b.alloc(0, e * n);
  b.kernel("log_softmax_backward", KernelClass::softmax, 3 * e * n, 4 * n);
  b.free(temp(1));
  b.release(2);
}

}  // namespace

void cross_entropy(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.rows * s.in, e = bytes_of(x.in[0]);
  const bool cast = s.to == DType::fp32 && x.in[0] != DType::fp32;
  if (s.autocast && !cast && e < 4) return narrow_cross_entropy(c, s, x);
  const int64_t w = cast ? 4 : e;
  c.out = cast ? DType::fp32 : x.in[0];
  Writer f(c.forward), b(c.backward);
  const uint8_t wide = extra(0), lsm = extra(1), total = extra(2), ids = extra(3);
  if (cast) {
    f.alloc(wide, 4 * n);
    f.pointwise("cast", (e + 4) * n, 4 * n);
  }
  if (s.sliced) {
    f.alloc(ids, 8 * s.rows);
    f.kernel("copy", KernelClass::strided, 16 * s.rows);
  }
  f.alloc(lsm, w * n);
  f.kernel("log_softmax", KernelClass::softmax, 2 * w * n, 5 * n);
  f.alloc(0, w);
  f.alloc(total, w);
  f.kernel("nll_loss", KernelClass::reduction, 12 * s.rows);
  if (cast) f.free(wide);
  c.saved = {kept(lsm), kept(total)};
  if (s.sliced) c.saved.push_back(kept(ids));
  const uint8_t nll = temp(0), grad = cast ? temp(1) : uint8_t{0};
  b.alloc(nll, w * n);
  b.zeros(x, w * n);
  b.kernel("nll_loss_backward", KernelClass::pointwise, 12 * s.rows);
  b.take_gradient();
  if (s.sliced) b.release(2);
  b.release(1);
  b.alloc(grad, w * n);
  b.kernel("log_softmax_backward", KernelClass::softmax, 3 * w * n, 4 * n);
  b.free(nll);
  b.release(0);
  if (cast) {
    b.alloc(0, e * n);
    b.pointwise("cast", (e + 4) * n, 4 * n);
    b.free(temp(1));
  }
}

// An autograd function whose forward makes the gradients of the hidden states (rows x in) and of the
// head's weight (out x in) chunk of tokens by chunk, as kernels of fused linear cross entropy do; its
// backward scales them. Of a chunk, probabilities and gradient live until the next chunk's replace
// them, as Python's variables do.
void fused_loss(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]), p = bytes_of(x.param), h = s.in, v = s.out;
  const int64_t size = ceil_div(s.rows, s.chunks);
  c.out = DType::fp32;
  Writer f(c.forward), b(c.backward);
  const uint8_t gx = extra(0), wide_gw = extra(1), gw = p < 4 ? extra(2) : wide_gw;
  f.alloc(gx, e * s.rows * h);
  f.alloc(wide_gw, 4 * v * h);
  f.zeros(x, 4 * v * h);
  // By turns: what a variable is bound to, and what replaces it.
  const uint8_t probabilities[] = {extra(3), extra(4)}, grads[] = {extra(5), extra(6)},
                losses[] = {extra(7), extra(8)};
  const uint8_t product = extra(9), wide = extra(10), nll = extra(11), total = extra(12),
                index = extra(13), picked = extra(14), scaled = extra(15);
  const bool narrow = e < 4;
  int turn = 0;
  bool first = true;
  for (int64_t row = 0; row < s.rows; row += size, turn = 1 - turn) {
    const int64_t rows = std::min(size, s.rows - row), n = rows * v;
    const uint8_t prob = probabilities[turn], old_prob = probabilities[1 - turn];
    // p = log_softmax((x @ w.t()).float())
    f.alloc(product, e * n);
    f.gemm(x, x.in[0], "linear", v, rows, h);
    if (narrow) {
      f.alloc(wide, 4 * n);
      f.pointwise("cast", (e + 4) * n, 4 * n);
      f.free(product);
    }
    f.alloc(prob, 4 * n);
    f.kernel("log_softmax", KernelClass::softmax, 8 * n, 5 * n);
    f.free(narrow ? wide : product);
    if (!first) f.free(old_prob);
    // loss = loss + nll_loss(p, labels)
    f.alloc(nll, 4);
    f.alloc(total, 4);
    f.kernel("nll_loss", KernelClass::reduction, 12 * rows);
    f.free(total);
    f.alloc(losses[turn], 4);
    f.kernel("add", KernelClass::pointwise, 12);
    f.free(nll);
    if (!first) f.free(losses[1 - turn]);
    // g = p.exp_(); g[arange, labels] -= 1
    f.pointwise("exp", 8 * n, 4 * n);
    if (!first) f.free(grads[1 - turn]);
    f.alloc(index, 8 * rows);
    f.kernel("arange", KernelClass::pointwise, 8 * rows);
    f.alloc(picked, 4 * rows);
    f.kernel("index", KernelClass::pointwise, 16 * rows);
    f.kernel("sub", KernelClass::pointwise, 8 * rows);
    f.kernel("index_put", KernelClass::pointwise, 16 * rows);
    f.free(picked);
    f.free(index);
    // g = (g / tokens).to(the hidden states' type)
    f.alloc(narrow ? scaled : grads[turn], 4 * n);
    f.pointwise("div", 8 * n, 4 * n);
    if (narrow) {
      f.alloc(grads[turn], e * n);
      f.pointwise("cast", (e + 4) * n, 4 * n);
      f.free(scaled);
    }
    // gx[rows] = g @ w; gw += g.t() @ x
    f.alloc(product, e * rows * h);
    f.gemm(x, x.in[0], "linear_dx", h, rows, v);
    f.copy(e * rows * h);
    f.free(product);
    f.alloc(product, e * v * h);
    f.gemm(x, x.in[0], "linear_dw", h, v, rows);
    f.pointwise("add", (8 + e) * v * h, 4 * v * h);
    f.free(product);
    first = false;
  }
  if (gw != wide_gw) {
    f.alloc(gw, p * v * h);
    f.pointwise("cast", (4 + p) * v * h, 4 * v * h);
  }
  f.alloc(0, 4);
  f.kernel("div", KernelClass::pointwise, 8);
  if (gw != wide_gw) f.free(wide_gw);
  f.free(losses[1 - turn]);
  f.free(probabilities[1 - turn]);
  f.free(grads[1 - turn]);
  c.saved = {kept(gx), kept(gw)};

  b.alloc(temp(0), e);
  b.kernel("cast", KernelClass::pointwise, 4 + e);
  b.alloc(0, e * s.rows * h);
  b.pointwise("mul", 2 * e * s.rows * h, e * s.rows * h, KernelClass::strided);
  b.free(temp(0));
  b.alloc(temp(0), p);
  b.kernel("cast", KernelClass::pointwise, 4 + p);
  b.alloc(kParamGrad, p * v * h);
  b.pointwise("mul", 2 * p * v * h, p * v * h, KernelClass::strided);
  b.free(temp(0));
}

void sum(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.rows * s.in, e = bytes_of(x.in[0]);
  const bool cast = s.to == DType::fp32 && x.in[0] != DType::fp32;
  c.out = cast ? DType::fp32 : x.in[0];
  Writer f(c.forward), b(c.backward);
  const uint8_t wide = extra(0);
  if (cast) {
    f.alloc(wide, 4 * n);
    f.pointwise("cast", (e + 4) * n, 4 * n);
  }
  f.alloc(0, bytes_of(c.out));
  full_sum(f, n, bytes_of(c.out) * n, extra(1), x.sms);
  if (cast) {
    f.free(wide);
    b.alloc(0, e * n);
    b.pointwise("cast", (e + 4) * n, e * n, KernelClass::strided);
  } else {
    c.passes_gradient = true;
    c.gradient_is_expanded = true;
  }
}

}  // namespace shardsim::op
