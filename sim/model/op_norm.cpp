#include <string>

#include "sim/base/error.h"
#include "sim/model/op_kinds.h"
#include "sim/model/op_writer.h"

namespace shardsim::op {

namespace {

// F.rms_norm as a chain of operators in fp32, each with its own backward: recorded with 2.7.1, in
// bf16, fp16, fp32 and with a frozen weight; with 2.15 for an fp32 weight on a narrow input.
//   x.to(fp32); * rsqrt(pow(2).mean(-1).add_(eps)); * weight; type_as(x)
void composed_rms_norm(OpCode& c, const OpShape& s, const OpContext& x) {
  const DType in = x.in[0];
  const int64_t e = bytes_of(in), p = bytes_of(x.param), n = s.rows * s.in;
  const bool narrow = e < 4;
  const Bytes wide = 4 * n, row = 4 * s.rows;
  c.out = in;
  Writer f(c.forward), b(c.backward);
  const uint8_t x32 = extra(0), root = extra(1), normed = extra(2), square = extra(3),
                mean = extra(4), scaled = narrow ? extra(5) : uint8_t{0};
  if (narrow) {
    f.alloc(x32, wide);
    f.pointwise("cast", e * n + wide, wide);
  }
  f.alloc(square, wide);
  f.pointwise("pow", 2 * wide, wide);
  f.alloc(mean, row);
  f.kernel("mean", KernelClass::reduction, wide, n);
  f.kernel("add", KernelClass::pointwise, 2 * row);
  f.alloc(root, row);
  f.kernel("rsqrt", KernelClass::pointwise, 2 * row);
  f.free(mean);
  f.free(square);
  f.alloc(normed, wide);
  f.pointwise("mul", 2 * wide, wide, KernelClass::strided);
  f.alloc(scaled, wide);
  f.pointwise("mul", 2 * wide, wide, KernelClass::strided);
  // What no node keeps goes before the result is cast.
  const auto leave = [&](uint8_t slot, bool saved) {
    if (saved)
      f.free_unsaved(slot);
    else
      f.free(slot);
  };
  leave(normed, x.param_grad);
  leave(root, x.in_grad[0]);
  if (narrow) leave(x32, x.in_grad[0]);
  if (narrow) {
    f.alloc(0, e * n);
    f.pointwise("cast", e * n + wide, wide);
    f.free(scaled);
  }
  uint8_t saved_normed = 0, saved_x = 0, saved_root = 0;
  const auto save = [&](uint8_t what) {
    c.saved.push_back(what);
    return static_cast<uint8_t>(c.saved.size() - 1);
  };
  if (x.param_grad) saved_normed = save(kept(normed));
  if (x.in_grad[0]) {
    saved_x = save(narrow ? kept(x32) : input(0));
    saved_root = save(kept(root));
  }

  // type_as, then the product with the weight.
  const uint8_t grad = temp(0), by_weight = temp(2);
  if (narrow) {
    b.alloc(grad, wide);
    b.pointwise("cast", e * n + wide, wide);
    b.take_gradient();
  }
  if (x.param_grad) {
    b.alloc(temp(1), wide);
    b.pointwise("mul", 3 * wide, wide);
  }
  if (x.in_grad[0]) {
    b.alloc(by_weight, wide);
    b.pointwise("mul", 2 * wide, wide, KernelClass::strided);
  }
  if (x.param_grad) {
    b.release_unpacked(saved_normed);
    const uint8_t sum = p < 4 ? temp(3) : kParamGrad;
    b.alloc(sum, 4 * s.in);
    column_sum(b, "sum", s.rows, s.in, 4, x.sms, temp(4));
    b.free(temp(1));
    if (p < 4) {
      b.alloc(kParamGrad, p * s.in);
      b.kernel("cast", KernelClass::pointwise, (4 + p) * s.in);
      b.free(sum);
    }
    b.parameter_done();
  }
  if (narrow)
    b.free(grad);
  else
    b.take_gradient();
  if (x.param_grad) b.release(saved_normed);
  if (!x.in_grad[0]) return;
  // The product with the root: the root's gradient is reduced, the input's waits for the other.
  const uint8_t by_root = narrow ? temp(4) : uint8_t{0}, root_grad = temp(5);
  b.alloc(temp(1), wide);
  b.pointwise("mul", 3 * wide, wide);
  b.alloc(by_root, wide);
  b.pointwise("mul", 2 * wide, wide, KernelClass::strided);
  b.alloc(root_grad, row);
  b.kernel("sum", KernelClass::reduction, wide, n);
  b.free(temp(1));
  b.free(by_weight);
  // rsqrt: -0.5 * grad * root^3.
  b.alloc(temp(6), row);
  b.kernel("pow", KernelClass::pointwise, 2 * row);
  b.alloc(temp(7), row);
  b.kernel("mul", KernelClass::pointwise, 2 * row);
  b.alloc(temp(8), row);
  b.kernel("mul", KernelClass::pointwise, 3 * row);
  b.free(temp(7));
  b.free(temp(6));
  b.release_unpacked(saved_root);
  b.free(root_grad);
  b.release(saved_root);
  // mean, then pow: grad * (2 * x^1).
  b.alloc(temp(1), wide);
  b.pointwise("div", row + wide, wide, KernelClass::strided);
  b.free(temp(8));
  b.alloc(temp(0), wide);
  b.copy(wide);
  b.alloc(temp(2), wide);
  b.pointwise("mul", 2 * wide, wide);
  b.alloc(temp(3), wide);
  b.pointwise("mul", 3 * wide, wide);
  b.free(temp(2));
  b.free(temp(0));
  b.release_unpacked(saved_x);
  b.free(temp(1));
  b.release(saved_x);
  b.pointwise("add", 3 * wide, wide);
  b.free(temp(3));
  if (!narrow) return;
  b.alloc(0, e * n);
  b.pointwise("cast", e * n + wide, wide);
  b.free(by_root);
}

}  // namespace

void rms_norm(OpCode& c, const OpShape& s, const OpContext& x) {
  if (x.behaviour->composed_rms_norm) return composed_rms_norm(c, s, x);
  const DType in = x.in[0];
  const int64_t e = bytes_of(in), n = s.rows * s.in;
  const Weight weight = weight_of(x, 0);
  c.out = in;
  Writer f(c.forward);
  Writer b(c.backward);
  const bool mixed = in != weight.type;
  if (mixed && e == 2 && weight.type == DType::fp32) return composed_rms_norm(c, s, x);
  f.alloc(0, e * n);
  f.alloc(extra(0), 4 * s.rows);
  f.kernel("rms_norm", KernelClass::reduction, 2 * e * n, 4 * n);
  c.saved = {input(0)};
  if (weight.is_input) c.saved.push_back(input(1));
  c.saved.push_back(kept(extra(0)));
  if (x.in_grad[0]) b.alloc(0, e * n);
  if (weight.grad) b.alloc(weight.grad_slot, bytes_of(weight.type) * s.in);
  if (x.in_grad[0]) b.kernel("rms_norm_backward", KernelClass::reduction, 3 * e * n, 8 * n);
  if (weight.grad) b.kernel("rms_norm_dw", KernelClass::reduction, 2 * e * n, 2 * n);
}

void layer_norm(OpCode& c, const OpShape& s, const OpContext& x) {
  const Weight weight = weight_of(x, 0), bias = weight_of(x, 1);
  const int64_t e = bytes_of(x.in[0]), n = s.rows * s.in, p = bytes_of(weight.type) * s.in;
  c.out = x.in[0];
  Writer f(c.forward);
  f.alloc(0, e * n);
  f.alloc(extra(0), 4 * s.rows);
  f.alloc(extra(1), 4 * s.rows);
  f.kernel("layer_norm", KernelClass::reduction, 2 * e * n, 5 * n);
  if (bias.is_input) c.saved.push_back(input(2));
  c.saved.push_back(input(0));
  if (weight.is_input) c.saved.push_back(input(1));
  c.saved.push_back(kept(extra(0)));
  c.saved.push_back(kept(extra(1)));
  Writer b(c.backward);
  b.alloc(0, e * n);
  if (weight.grad) {
    b.alloc(weight.grad_slot, p);
    if (x.has_bias || bias.is_input) b.alloc(bias.grad_slot, p);
  }
  b.kernel("layer_norm_backward", KernelClass::reduction, 3 * e * n, 9 * n);
  if (weight.grad) b.kernel("layer_norm_dw_db", KernelClass::reduction, 2 * e * n, 3 * n);
}

}  // namespace shardsim::op
