#include <algorithm>

#include "sim/model/op_kinds.h"
#include "sim/model/op_writer.h"

// A mixture of experts as a loop: the router's weights, the tokens sorted by expert, and each expert's rows
// gathered, weighted and added back (recorded in bf16, 1024 tokens, 2 of 8 experts).
namespace shardsim::op {

namespace {

// index_put_ with accumulation of `rows` indices: they are sorted, and their values added in that order.
void put_rows(Writer& b, int64_t rows, uint8_t scratch) {
  const Bytes ids = 8 * rows;
  const auto slot = [&](int i) { return static_cast<uint8_t>(scratch + i); };
  b.alloc(slot(0), ids);
  b.kernel("mul", KernelClass::pointwise, 2 * ids);
  b.alloc(slot(1), ids);
  b.kernel("add", KernelClass::pointwise, 2 * ids);
  b.free(slot(0));
  b.alloc(slot(2), ids);
  b.kernel("div", KernelClass::pointwise, 2 * ids);
  b.alloc(slot(3), ids);
  b.kernel("arange", KernelClass::pointwise, ids);
  b.alloc(slot(4), ids);
  b.alloc(slot(5), 1);
  b.kernel("sort", KernelClass::pointwise, 4 * ids);
  for (int i = 5; i > 0; --i) b.free(slot(i));
}

}  // namespace

// softmax in fp32 of the router's logits [rows, in], the `out` largest, divided by their sum.
void topk(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]), all = s.rows * s.in, chosen = s.rows * s.out;
  const bool narrow = e < 4;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  const uint8_t wide = extra(0), soft = extra(1), values = extra(2), indices = extra(3),
                sums = extra(4), ratio = narrow ? extra(5) : uint8_t{0};
  if (narrow) {
    f.alloc(wide, 4 * all);
    f.kernel("cast", KernelClass::pointwise, (4 + e) * all);
  }
  f.alloc(soft, 4 * all);
  f.kernel("softmax", KernelClass::softmax, 8 * all, 5 * all);
  if (narrow) f.free(wide);
  f.alloc(values, 4 * chosen);
  f.alloc(indices, 8 * chosen);
  f.kernel("topk", KernelClass::reduction, 4 * all);
  f.kernel("sort", KernelClass::pointwise, 12 * chosen);
  f.alloc(sums, 4 * s.rows);
  f.kernel("sum", KernelClass::reduction, 4 * chosen);
  f.alloc(ratio, 4 * chosen);
  f.kernel("div", KernelClass::strided, 8 * chosen);
  if (narrow) {
    f.alloc(0, e * chosen);
    f.kernel("cast", KernelClass::pointwise, (4 + e) * chosen);
    f.free(ratio);
  }
  c.saved = {kept(sums), kept(values), kept(indices), kept(soft)};
  const Bytes k4 = 4 * chosen;
  if (narrow) {
    b.alloc(temp(0), k4);
    b.kernel("cast", KernelClass::pointwise, (4 + e) * chosen);
    b.take_gradient();
  }
  b.alloc(temp(1), k4);
  b.kernel("div", KernelClass::strided, 2 * k4);
  b.alloc(temp(2), k4);
  b.kernel("div", KernelClass::strided, 2 * k4);
  b.alloc(temp(3), k4);
  b.kernel("neg", KernelClass::pointwise, 2 * k4);
  b.alloc(temp(4), k4);
  b.kernel("mul", KernelClass::pointwise, 3 * k4);
  b.free(temp(3));
  b.free(temp(2));
  b.free(temp(1));
  b.alloc(temp(5), k4);
  b.kernel("div", KernelClass::strided, 2 * k4);
  b.alloc(temp(6), 4 * s.rows);
  b.kernel("sum", KernelClass::reduction, k4);
  b.free(temp(4));
  if (narrow)
    b.free(temp(0));
  else
    b.take_gradient();
  b.release(0);
  b.release(1);
  b.kernel("add", KernelClass::strided, 2 * k4);
  b.free(temp(6));
  b.alloc(temp(7), 4 * all);
  b.zeros(x, 4 * all);
  b.kernel("scatter", KernelClass::strided, 3 * k4);
  b.free(temp(5));
  b.release(2);
  const uint8_t grad = narrow ? temp(8) : uint8_t{0};
  b.alloc(grad, 4 * all);
  b.alloc(temp(9), 4 * all);
  b.kernel("mul", KernelClass::pointwise, 12 * all);
  b.kernel("softmax_backward", KernelClass::softmax, 12 * all, 4 * all);
  b.free(temp(9));
  b.free(temp(7));
  b.release(3);
  if (!narrow) return;
  b.alloc(0, e * all);
  b.kernel("cast", KernelClass::pointwise, (4 + e) * all);
  b.free(grad);
}

// Of `rows` x `out` zeros of input 0's type.
void zeros_like(OpCode& c, const OpShape& s, const OpContext& x) {
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.out;
  c.out = x.in[0];
  c.makes_constant = true;
  Writer f(c.forward);
  f.alloc(0, all);
  f.zeros(x, all);
}

// The order that sorts `rows` ids.
void sort_ids(OpCode& c, const OpShape& s, const OpContext&) {
  const Bytes ids = 8 * s.rows;
  c.out = DType::i64;
  c.makes_constant = true;
  Writer f(c.forward);
  f.alloc(extra(0), ids);
  f.copy(ids);
  f.alloc(0, ids);
  f.alloc(extra(1), ids);
  f.kernel("arange", KernelClass::pointwise, ids);
  f.copy(ids);
  f.copy(ids);
  f.kernel("sort", KernelClass::pointwise, 4 * ids);
  f.free(extra(1));
  f.free(extra(0));
}

// Input 0's ids divided by a number.
void divide_ids(OpCode& c, const OpShape& s, const OpContext&) {
  c.out = DType::i64;
  c.makes_constant = true;
  Writer f(c.forward);
  f.alloc(0, 8 * s.rows);
  f.kernel("floor_divide", KernelClass::pointwise, 16 * s.rows);
}

// `rows` of input 0's `in` rows of `out` numbers, at the ids in input 1.
void gather_rows(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]), taken = e * s.rows * s.out, all = e * s.in * s.out;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, taken);
  f.kernel("index", KernelClass::strided, 2 * taken);
  c.saved = {input(1)};
  b.alloc(0, all);
  b.zeros(x, all);
  put_rows(b, s.rows, temp(0));
  b.kernel("index_put", KernelClass::strided, 3 * taken);
}

// out.index_add_(0, ids, rows): input 0 is out, 1 the rows, 2 the ids; in place.
void add_at_rows(OpCode& c, const OpShape& s, const OpContext& x) {
  const Bytes taken = bytes_of(x.in[1]) * s.rows * s.out;
  c.out = x.in[0];
  c.aliases_input = true;
  c.passes_gradient = true;
  Writer f(c.forward), b(c.backward);
  f.kernel("index_add", KernelClass::strided, 3 * taken);
  c.saved = {input(2), input(1)};
  b.alloc(1, taken);
  b.kernel("index_select", KernelClass::strided, 2 * taken);
}

}  // namespace shardsim::op
