// The gradients of RMSNorm weights in a compiled backward: sums over the rows, of one norm or of two
// at once, in one of two ways.
//   partial  R partial sums of 128 rows each, fp32; for each norm X sums them to the weight's type
//   mixed    X over the rows (it also makes sums along them), which adds to a workspace of
//            ceil(T / c) rows for each norm; ATen sums those, and a kernel casts the result
// Mixed from T >= 4096, T * h >= 5 * 2^20, h <= 16384 on (MixOrderReduction in
// torch/_inductor/scheduler.py; seen mixed at 4096 x 1280 and 8192 x 4096, not at 4096 x 1024).
// Worked number, T 8192, h 4096, 132 SMs: c is 16, 512 rows of 16,384 B for each norm.
#pragma once

#include <vector>

#include "sim/model/compiled.h"

namespace shardsim {

class NormWeightSums {
 public:
  NormWeightSums(GraphWriter& graph, const CompiledShape& shape, const CompiledContext& context);

  bool mixed() const { return mixed_; }
  // The kernel over `reads`, for this many norms.
  void add(const GraphWriter::Tensors& reads, int norms);
  // The weight's gradient of norm number i.
  GraphWriter::Tensor finished(int i);
  GraphWriter::Tensor along_rows() const { return along_rows_; }  // mixed

 private:
  GraphWriter& graph_;
  const CompiledShape& s_;
  const CompiledContext& x_;
  bool mixed_;
  std::vector<GraphWriter::Tensor> sums_;
  GraphWriter::Tensor along_rows_ = 0;
};

}  // namespace shardsim
