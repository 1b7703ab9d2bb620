#include "sim/model/op_kinds.h"
#include "sim/model/op_writer.h"

namespace shardsim::op {

void bag(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.out, e = bytes_of(x.param), rows = s.rows * s.in;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  const uint8_t doubled = extra(0), scalar = extra(1);
  if (s.scale) {
    f.alloc(doubled, e * n);
    f.pointwise("mul", 2 * e * n, e * n);
  }
  f.alloc(scalar, e);
  full_sum(f, n, e * n, extra(2), x.sms);
  if (s.scale) f.free(doubled);
  f.alloc(0, bytes_of(c.out) * rows);
  f.pointwise("add", 2 * bytes_of(c.out) * rows, bytes_of(c.out) * rows, KernelClass::strided);
  f.free(scalar);
  c.passes_gradient = true;
  if (!x.param_grad) return;
  const uint8_t summed = s.scale ? temp(0) : kParamGrad;
  if (x.in[0] == x.param) {
    b.alloc(summed, e);
    b.kernel("sum", KernelClass::reduction, bytes_of(c.out) * rows, rows);
  } else {
    // The sum is of the input's type, and is cast to the parameter's.
    b.alloc(temp(1), bytes_of(c.out));
    b.kernel("sum", KernelClass::reduction, bytes_of(c.out) * rows, rows);
    b.alloc(summed, e);
    b.kernel("cast", KernelClass::pointwise, bytes_of(c.out) + e);
    b.free(temp(1));
  }
  if (s.scale) {
    b.alloc(kParamGrad, e * n);
    b.pointwise("mul", e * n, e * n, KernelClass::strided);
  }
}

// Of a vector parameter, to one element.
void mean(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.param);
  c.out = x.param;
  Writer f(c.forward), b(c.backward);
  f.alloc(0, e);
  full_sum(f, s.in, e * s.in, extra(0), x.sms);
  if (!x.param_grad) return;
  b.alloc(kParamGrad, e * s.in);
  b.kernel("div", KernelClass::strided, e * s.in);
}

void scale(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.rows * s.in;
  const Bytes all = bytes_of(x.in[0]) * n;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.pointwise("mul", 2 * all, all, KernelClass::strided);
  if (x.in_grad[0]) {
    c.saved.push_back(input(1));
    b.alloc(0, all);
    b.pointwise("mul", 2 * all, all, KernelClass::strided);
  }
  if (x.in_grad[1]) {
    c.saved.push_back(input(0));
    b.alloc(temp(0), all);
    b.pointwise("mul", 3 * all, all);
    b.alloc(1, bytes_of(x.in[1]));
    full_sum(b, n, all, temp(1), x.sms);
    b.free(temp(0));
  }
}

}  // namespace shardsim::op
