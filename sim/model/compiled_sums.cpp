#include "sim/model/compiled_sums.h"

#include <algorithm>
#include <utility>

#include "sim/model/op_writer.h"

namespace shardsim {

NormWeightSums::NormWeightSums(GraphWriter& graph, const CompiledShape& shape,
                               const CompiledContext& context)
    : graph_(graph),
      s_(shape),
      x_(context),
      mixed_(shape.tokens >= 4096 && shape.tokens * shape.hidden >= 5 * (int64_t{1} << 20) &&
             shape.hidden <= 16384) {}

void NormWeightSums::add(const GraphWriter::Tensors& reads, int norms) {
  const Bytes weight = bytes_of(x_.type) * s_.hidden;
  if (!mixed_) {
    const int64_t parts = ceil_div(s_.tokens, 128);
    std::vector<GraphWriter::Write> writes;
    for (int i = 0; i < norms; ++i) {
      sums_.push_back(graph_.tensor(4 * parts * s_.hidden, DType::fp32));
      writes.emplace_back(sums_.back());
    }
    graph_.kernel("rms_norm_dw", reads, writes);
    return;
  }
  // Rows that one block adds up, from T and the device's SMs.
  const int64_t most = std::min<int64_t>(s_.tokens / (8 * x_.op.sms), 128);
  int64_t c = 16;
  while (2 * c <= most) c *= 2;
  const int64_t rows = ceil_div(s_.tokens, c);
  along_rows_ = graph_.tensor(4 * s_.tokens, DType::fp32);
  // ATen sums the workspace, and casts too where the norm is written out.
  const Bytes wide = 4 * s_.hidden;
  const bool casts = s_.norm == NormForm::hf && weight < wide;
  std::vector<OpAction> steps;
  std::vector<GraphWriter::Result> made;
  Writer w(steps);
  for (int i = 0; i < norms; ++i) {
    auto slot = static_cast<uint8_t>(i);
    w.alloc(slot, wide);
    column_sum(w, "sum", rows, s_.hidden, 4, x_.op.sms, temp(0));
    if (casts) {
      const auto sum = std::exchange(slot, extra(i));
      w.alloc(slot, weight);
      w.pointwise("cast", wide + weight, wide);
      w.free(sum);
    }
    sums_.push_back(graph_.tensor(casts ? weight : wide, casts ? x_.type : DType::fp32));
    made.push_back({slot, sums_.back()});
  }
  graph_.kernel_with_workspace("rms_norm_dw", reads, {along_rows_}, weight,
                               4 * norms * rows * s_.hidden, steps, made);
}

GraphWriter::Tensor NormWeightSums::finished(int i) {
  const GraphWriter::Tensor sum = sums_[static_cast<size_t>(i)];
  const Bytes weight = bytes_of(x_.type) * s_.hidden;
  if (mixed_ && graph_.bytes(sum) == weight) return sum;
  const GraphWriter::Tensor made = graph_.tensor(weight, x_.type);
  if (mixed_)
    graph_.pointwise("cast", {sum}, {made});
  else
    graph_.kernel("rms_norm_dw_sum", {sum}, {made});
  return made;
}

}  // namespace shardsim
