#include <algorithm>

#include "sim/model/op_kinds.h"
#include "sim/model/op_writer.h"

namespace shardsim::op {

void embedding(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.param), row = s.out * e;
  c.out = x.param;
  Writer f(c.forward);
  f.alloc(0, s.rows * row);
  f.kernel("embedding", KernelClass::embedding, 2 * s.rows * row + 8 * s.rows);
  if (!x.param_grad) return;
  c.saved = {input(0)};
  Writer b(c.backward);
  if (s.rows <= 3072) {
    b.alloc(kParamGrad, s.in * row);
    b.zeros(x, s.in * row);
    b.kernel("embedding_backward", KernelClass::embedding, 3 * s.rows * row);
    return;
  }
  // Sorted path: cub sorts the ids in p passes of 8 bits, one tile of 4608 ids at a time, then
  // partial sums of up to ten rows are made and added (EmbeddingBackwardKernel.cu). Sizes seen at 4096
  // and 6000 tokens, 5000 and 70000 rows; 65536 ids make 15 tiles.
  int bits = 0;
  while ((int64_t{1} << bits) < s.in) ++bits;
  const int p = x.behaviour->sorts_whole_ids ? 8 : (bits + 7) / 8;
  const Bytes tiles = 1024 * ceil_div(s.rows, 4608), ids = 8 * s.rows;
  const auto aligned = [](Bytes n) { return ceil_div(n, 256) * 256; };
  const int64_t segments = s.rows / 10 + std::min(s.rows, s.in);
  for (int i = 0; i < 3; ++i) b.alloc(temp(i), ids);
  b.kernel("arange", KernelClass::pointwise, ids);
  b.alloc(temp(3), 255 + aligned(2048 * p) + aligned(tiles) + 2 * aligned(ids) + 256);
  b.memset(4 * p);
  b.memset(2048 * p);
  b.kernel("radix_histogram", KernelClass::pointwise, ids);
  b.kernel("radix_scan", KernelClass::pointwise, 2048 * p);
  for (int i = 0; i < p; ++i) {
    b.memset(tiles);
    b.kernel("radix_sort", KernelClass::pointwise, 4 * ids);
  }
  b.free(temp(3));
  b.free(temp(2));
  b.alloc(kParamGrad, s.in * row);
  b.zeros(x, s.in * row);
  const Bytes scan = 1279;  // of cub, the same at both sizes
  b.alloc(temp(4), ids);
  b.alloc(temp(5), 8);
  b.alloc(temp(6), ids);
  b.alloc(temp(7), scan);
  b.kernel("unique_scan", KernelClass::pointwise, ids);
  b.kernel("unique_by_key", KernelClass::pointwise, 3 * ids);
  b.free(temp(7));
  b.free(temp(6));
  b.alloc(temp(8), ids);
  b.kernel("partials_per_segment", KernelClass::pointwise, 2 * ids);
  b.alloc(temp(9), ids);
  b.alloc(temp(10), scan);
  b.kernel("scan", KernelClass::pointwise, ids);
  b.kernel("scan", KernelClass::pointwise, 2 * ids);
  b.free(temp(10));
  b.alloc(temp(11), 8);
  b.kernel("num_of_partial_segments", KernelClass::pointwise, 16);
  b.alloc(temp(12), 8 * segments);
  b.kernel("partial_segment_offset", KernelClass::pointwise, 2 * ids);
  b.alloc(temp(13), 4 * segments * s.out);
  b.kernel("embedding_partial_sums", KernelClass::embedding,
           s.rows * row + 4 * std::min(segments, s.rows) * s.out);
  b.kernel("embedding_sums", KernelClass::embedding,
           4 * std::min(segments, s.rows) * s.out + std::min(s.rows, s.in) * row);
  for (int i : {13, 12, 11, 9, 8, 5, 4, 1, 0}) b.free(temp(i));
}

void positions(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.param);
  const Bytes looked_up = s.seq * s.out * e, all = s.rows * s.out * e;
  c.out = x.in[0];
  Writer f(c.forward);
  f.alloc(extra(0), 8 * s.seq);
  f.kernel("arange", KernelClass::pointwise, 8 * s.seq);
  f.alloc(extra(1), looked_up);
  f.kernel("embedding", KernelClass::embedding, 2 * looked_up);
  f.alloc(0, all);
  f.pointwise("add", 3 * all, all, KernelClass::strided);
  f.free(extra(1));
  c.saved = {kept(extra(0))};
  Writer b(c.backward);
  if (x.param_grad) {
    b.alloc(temp(0), looked_up);
    b.kernel("sum", KernelClass::reduction, all + looked_up);
    b.alloc(kParamGrad, s.in * s.out * e);
    b.zeros(x, s.in * s.out * e);
    b.kernel("embedding_backward", KernelClass::embedding, 3 * looked_up);
    b.free(temp(0));
  }
  c.passes_gradient = true;
}

void add_rows(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]);
  const Bytes row = s.seq * s.out * e, all = s.rows * s.out * e;
  c.out = x.in[0];
  Writer f(c.forward);
  f.alloc(0, all);
  f.pointwise("add", 2 * all + row, all, KernelClass::strided);
  c.passes_gradient = true;
  if (!x.in_grad[1]) return;
  Writer b(c.backward);
  b.alloc(1, row);
  b.kernel("sum", KernelClass::reduction, all + row);
}

}  // namespace shardsim::op
