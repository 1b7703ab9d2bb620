#include <algorithm>

#include "sim/model/op_kinds.h"
#include "sim/model/op_writer.h"

namespace shardsim::op {

void batch(OpCode& c, const OpShape& s, const OpContext& x) {
  c.out = s.to;
  Writer f(c.forward);
  const Bytes all = bytes_of(s.to) * s.rows * s.in;
  f.alloc(0, all);
  f.zeros(x, all);
}

// With `copies` it is two tables beside each other.
void table(OpCode& c, const OpShape& s, const OpContext&) {
  const Bytes all = bytes_of(s.to) * s.rows * s.out;
  c.out = s.to;
  Writer f(c.forward);
  f.alloc(0, all);
  if (s.copies != 0)
    f.kernel("cat", KernelClass::cat, 2 * all);
  else
    f.pointwise("table", 2 * all, all);
}

void arange(OpCode& c, const OpShape& s, const OpContext&) {
  c.out = DType::i64;
  Writer f(c.forward);
  f.alloc(0, 8 * s.seq);
  f.kernel("arange", KernelClass::pointwise, 8 * s.seq);
}

// One kernel forward and one backward; keeps its input.
void activation(OpCode& c, const OpShape& s, const OpContext& x, const char* name,
                const char* backward) {
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.out;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.pointwise(name, 2 * all, all);
  c.saved = {input(0)};
  b.alloc(0, all);
  b.pointwise(backward, 3 * all, all);
}

// Keeps its output.
void relu(OpCode& c, const OpShape& s, const OpContext& x) {
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.out;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.pointwise("relu", 2 * all, all);
  c.saved = {kept(0)};
  b.alloc(0, all);
  b.pointwise("relu_backward", 3 * all, all);
}

// native_dropout: the mask first, one byte an element.
void dropout(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.rows * s.out, all = bytes_of(x.in[0]) * n;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(extra(0), n);
  f.alloc(0, all);
  f.pointwise("dropout", 2 * all + n, all);
  c.saved = {kept(extra(0))};
  b.alloc(0, all);
  b.pointwise("dropout_backward", 2 * all + n, all);
}

void mul(OpCode& c, const OpShape& s, const OpContext& x) {
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.out;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.pointwise("mul", 3 * all, all);
  c.saved = {input(1), input(0)};
  b.alloc(1, all);
  b.pointwise("mul", 3 * all, all);
  b.alloc(0, all);
  b.pointwise("mul", 3 * all, all);
}

// Of two types the wider is the result's, and autograd casts the other's gradient.
void add(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.rows * s.out;
  c.out = promote(x.in[0], x.in[1]);
  const Bytes all = bytes_of(c.out) * n;
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.pointwise("add", all + (bytes_of(x.in[0]) + bytes_of(x.in[1])) * n, all);
  c.passes_gradient = true;
  for (int i = 0; i < 2; ++i) {
    if (!x.in_grad[i] || x.in[i] == c.out) continue;
    b.alloc(input(i), bytes_of(x.in[i]) * n);
    b.pointwise("cast", all + bytes_of(x.in[i]) * n, all);
  }
}

// Autocast's copy of a parameter.
void cast_param(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.rows * s.in, from = bytes_of(x.param), to = bytes_of(s.to);
  c.out = s.to;
  Writer f(c.forward), b(c.backward);
  f.alloc(0, to * n);
  f.pointwise("cast", (from + to) * n, std::max(from, to) * n);
  if (!x.param_grad) return;
  b.alloc(kParamGrad, from * n);
  b.pointwise("cast", (from + to) * n, std::max(from, to) * n);
}

void cast(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.rows * s.in, from = bytes_of(x.in[0]), to = bytes_of(s.to);
  c.out = s.to;
  Writer f(c.forward), b(c.backward);
  f.alloc(0, to * n);
  f.pointwise("cast", (from + to) * n, std::max(from, to) * n);
  b.alloc(0, from * n);
  b.pointwise("cast", (from + to) * n, std::max(from, to) * n);
}

}  // namespace shardsim::op
