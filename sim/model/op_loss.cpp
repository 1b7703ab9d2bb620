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
  const uint8_t wide = extra(0), lsm = extra(1), total = extra(2);
  if (cast) {
    f.alloc(wide, 4 * n);
    f.pointwise("cast", (e + 4) * n, 4 * n);
  }
  f.alloc(lsm, w * n);
  f.kernel("log_softmax", KernelClass::softmax, 2 * w * n, 5 * n);
  f.alloc(0, w);
  f.alloc(total, w);
  f.kernel("nll_loss", KernelClass::reduction, 12 * s.rows);
  if (cast) f.free(wide);
  c.saved = {kept(lsm), kept(total)};
  const uint8_t nll = temp(0), grad = cast ? temp(1) : uint8_t{0};
  b.alloc(nll, w * n);
  b.zeros(x, w * n);
  b.kernel("nll_loss_backward", KernelClass::pointwise, 12 * s.rows);
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
