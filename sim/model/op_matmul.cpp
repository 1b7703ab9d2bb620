#include <algorithm>

#include "sim/model/op_kinds.h"
#include "sim/model/op_writer.h"

// Attention written out in Python: products of matrices, their softmax, and the copies that a change of
// layout takes. Heads lie in memory as [batch, seq, heads, head_dim] where a linear has made them.
namespace shardsim::op {

// torch.matmul of `batch` pairs of matrices [rows, in] and [in, out]; an input or a gradient whose
// layout bmm cannot take (s.copies) is copied first, and autograd keeps the copy.
void matmul(OpCode& c, const OpShape& s, const OpContext& x) {
  const DType t = x.in[0];
  const int64_t e = bytes_of(t);
  const Bytes a = e * s.batch * s.rows * s.in, b_bytes = e * s.batch * s.in * s.out,
              y = e * s.batch * s.rows * s.out;
  c.out = t;
  Writer f(c.forward), b(c.backward);
  const auto copy = [&](Writer& w, uint8_t slot, Bytes bytes) {
    w.alloc(slot, bytes);
    w.pointwise("copy", 2 * bytes, bytes, KernelClass::strided);
  };
  const bool first = (s.copies & kCopiesFirst) != 0, second = (s.copies & kCopiesSecond) != 0;
  if (first) copy(f, extra(0), a);
  if (second) copy(f, extra(1), b_bytes);
  f.alloc(0, y);
  f.gemm(x, t, "matmul", s.out, s.rows, s.in, false, s.batch);
  if (x.in_grad[0]) c.saved.push_back(second ? kept(extra(1)) : input(1));
  if (x.in_grad[1]) c.saved.push_back(first ? kept(extra(0)) : input(0));
  c.gradient_is_view = true;
  const bool gradient = (s.copies & kCopiesGradient) != 0;
  if (gradient) {
    copy(b, temp(0), y);
    b.take_gradient();
  }
  if (x.in_grad[1]) {
    b.alloc(1, b_bytes);
    b.gemm(x, t, "matmul_db", s.out, s.in, s.rows, false, s.batch);
  }
  if (x.in_grad[0]) {
    b.alloc(0, a);
    b.gemm(x, t, "matmul_da", s.in, s.rows, s.out, false, s.batch);
  }
  if (gradient) b.free(temp(0));
}

// A view; its gradient has another layout than the one it came from, and is copied.
void relayout(OpCode& c, const OpShape& s, const OpContext& x) {
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.out;
  c.out = x.in[0];
  c.aliases_input = true;
  Writer b(c.backward);
  b.alloc(0, all);
  b.pointwise("copy", 2 * all, all, KernelClass::strided);
}

// .contiguous() of what is not; the gradient passes as a view.
void contiguous(OpCode& c, const OpShape& s, const OpContext& x) {
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.out;
  c.out = x.in[0];
  Writer f(c.forward);
  f.alloc(0, all);
  f.pointwise("copy", 2 * all, all, KernelClass::strided);
  c.passes_gradient = true;
}

// Times a number.
void mul_scalar(OpCode& c, const OpShape& s, const OpContext& x) {
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.out;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.pointwise("mul", 2 * all, all);
  b.alloc(0, all);
  b.pointwise("mul", 2 * all, all);
}

// torch.full((s, s), -inf).triu_(1) of input 0's type.
void causal_mask(OpCode& c, const OpShape& s, const OpContext& x) {
  const Bytes all = bytes_of(x.in[0]) * s.seq * s.seq;
  c.out = x.in[0];
  c.makes_constant = true;
  Writer f(c.forward);
  f.alloc(0, all);
  f.kernel("fill", KernelClass::pointwise, all);
  f.kernel("triu", KernelClass::pointwise, 2 * all);
}

// Scores of every sequence [rows, out] plus input 1, which is the same for each.
void add_to_scores(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]), all = e * s.rows * s.out;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.pointwise("add", 2 * all, all, KernelClass::strided);
  c.passes_gradient = true;
  if (!x.in_grad[1] || s.batch == 1) return;
  b.alloc(1, all / s.batch);
  b.kernel("sum", KernelClass::reduction, all + all / s.batch, s.rows * s.out);
}

void softmax(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]), n = s.rows * s.out, all = e * n;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.kernel("softmax", KernelClass::softmax, 2 * all, 5 * n);
  c.saved = {kept(0)};
  b.alloc(0, all);
  b.alloc(temp(0), all);
  b.pointwise("mul", 3 * all, all);
  b.kernel("softmax_backward", KernelClass::softmax, 3 * all, 4 * n);
  b.free(temp(0));
}

}  // namespace shardsim::op
