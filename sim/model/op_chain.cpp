#include <algorithm>

#include "sim/model/op_kinds.h"
#include "sim/model/op_writer.h"

// Operators that a norm written out in Python is a chain of, in the rows of x [rows, in].
namespace shardsim::op {

// x.pow(2)
void square(OpCode& c, const OpShape& s, const OpContext& x) {
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.in;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.pointwise("pow", 2 * all, all);
  c.saved = {input(0)};
  // grad * (2 * x^1), whose power is a copy.
  b.alloc(temp(0), all);
  b.copy(all);
  b.alloc(temp(1), all);
  b.pointwise("mul", 2 * all, all);
  b.alloc(0, all);
  b.pointwise("mul", 3 * all, all);
  b.free(temp(1));
  b.free(temp(0));
}

// x.mean(-1, keepdim=True)
void row_mean(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]);
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, e * s.rows);
  f.kernel("mean", KernelClass::reduction, e * s.rows * s.in, s.rows * s.in);
  b.alloc(0, e * s.rows * s.in);
  b.pointwise("div", e * s.rows * s.in, e * s.rows * s.in, KernelClass::strided);
}

// x + 1e-6
void add_scalar(OpCode& c, const OpShape& s, const OpContext& x) {
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.in;
  c.out = x.in[0];
  Writer f(c.forward);
  f.alloc(0, all);
  f.pointwise("add", 2 * all, all);
  c.passes_gradient = true;
}

// Backward: -0.5 * grad * root^3.
void rsqrt(OpCode& c, const OpShape& s, const OpContext& x) {
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.in;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.pointwise("rsqrt", 2 * all, all);
  c.saved = {kept(0)};
  b.alloc(temp(0), all);
  b.pointwise("pow", 2 * all, all);
  b.alloc(temp(1), all);
  b.pointwise("mul", 2 * all, all);
  b.alloc(0, all);
  b.pointwise("mul", 3 * all, all);
  b.free(temp(1));
  b.free(temp(0));
}

// Input 0 times input 1, which is one number a row.
void scale_rows(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]), n = s.rows * s.in;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, e * n);
  f.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
  if (x.in_grad[0]) c.saved.push_back(input(1));
  if (x.in_grad[1]) c.saved.push_back(input(0));
  if (x.in_grad[1]) {
    b.alloc(temp(0), e * n);
    b.pointwise("mul", 3 * e * n, e * n);
  }
  if (x.in_grad[0]) {
    b.alloc(0, e * n);
    b.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
  }
  if (x.in_grad[1]) {
    b.alloc(1, e * s.rows);
    b.kernel("sum", KernelClass::reduction, e * n, n);
    b.free(temp(0));
  }
}

// weight * x, weight [in].
void mul_weight(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.rows * s.in, narrow = bytes_of(x.in[0]);
  c.out = promote(x.param, x.in[0]);
  const int64_t e = bytes_of(c.out), p = bytes_of(x.param);
  Writer f(c.forward), b(c.backward);
  f.alloc(0, e * n);
  f.pointwise("mul", (e + narrow) * n, e * n, KernelClass::strided);
  if (x.param_grad) c.saved.push_back(input(0));
  // Products in the result's type; autograd sums the weight's over the rows, then casts.
  const bool casts = narrow != e;
  const uint8_t dx = casts ? temp(0) : uint8_t{0}, dw = temp(1);
  if (x.in_grad[0]) {
    b.alloc(dx, e * n);
    b.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
  }
  if (x.param_grad) {
    const uint8_t sum = p != e ? temp(2) : kParamGrad;
    b.alloc(dw, e * n);
    b.pointwise("mul", 3 * e * n, e * n);
    b.alloc(sum, e * s.in);
    column_sum(b, "sum", s.rows, s.in, e, x.sms, temp(3));
    b.free(dw);
    if (p != e) {
      b.alloc(kParamGrad, p * s.in);
      b.kernel("cast", KernelClass::pointwise, (e + p) * s.in);
      b.free(sum);
    }
  }
  if (x.in_grad[0] && casts) {
    b.alloc(0, narrow * n);
    b.pointwise("cast", (e + narrow) * n, e * n);
    b.free(dx);
  }
}

}  // namespace shardsim::op
