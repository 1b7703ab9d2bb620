#include "sim/model/compiled_llama.h"
#include "sim/model/compiled_sums.h"

namespace shardsim {

namespace {

using Owner = GraphWriter::Owner;
using Tensor = GraphWriter::Tensor;

}  // namespace

// The final norm alone (compiled.md 1: torch.compile of the model, whose hooks break the graph).
CompiledGraph compile_norm(const CompiledShape& s, const CompiledContext& x) {
  const int64_t e = bytes_of(x.type);
  const Bytes rows = e * s.tokens * s.hidden, weight = e * s.hidden;
  GraphWriter f(x.op);
  const Tensor in = f.input(rows, x.type, Owner::caller);
  GraphWriter::Tensors outputs;
  std::vector<GraphWriter::Write> writes;
  const Tensor factors = x.training ? f.tensor(4 * s.tokens, DType::fp32) : Tensor{0};
  const Tensor out = f.tensor(rows, x.type);
  if (x.training) writes.emplace_back(factors);
  writes.emplace_back(out);
  f.kernel("rms_norm", {in}, writes, weight);
  CompiledGraph c;
  c.out = x.type;
  c.forward =
      f.finish(x.training ? GraphWriter::Tensors{out, factors} : GraphWriter::Tensors{out}, {});
  c.output = c.forward.slot[out];
  if (!x.training) return c;
  c.saved = {c.forward.slot[in], c.forward.slot[factors]};

  GraphWriter b(x.op);
  const Tensor input = b.input(rows, x.type, Owner::autograd);
  const Tensor r = b.input(4 * s.tokens, DType::fp32, Owner::saved);
  const Tensor dy = b.input(rows, x.type, Owner::autograd);
  NormWeightSums sums(b, s, x);
  const bool trains = (x.frozen & 1) == 0;
  Tensor dw = 0;
  if (trains) {
    sums.add({dy, input, r}, 1);
    dw = sums.finished(0);
  }
  GraphWriter::Tensors reads{input, r, dy};
  if (trains && sums.mixed()) reads.push_back(sums.along_rows());
  const Tensor dx = b.tensor(rows, x.type);
  b.kernel("rms_norm_backward", reads, {dx}, weight);
  c.backward = b.finish({dx}, trains ? GraphWriter::Tensors{dw} : GraphWriter::Tensors{});
  c.param_grads = {trains ? c.backward.slot[dw] : static_cast<uint16_t>(UINT16_MAX)};
  c.input_grad = c.backward.slot[dx];
  return c;
}

// Cross entropy of logits.float() (compiled.md 7): the logits stay as they are, and no fp32 copy of
// them is made.
CompiledGraph compile_loss(const CompiledShape& s, const CompiledContext& x) {
  const int64_t e = bytes_of(x.type);
  const Bytes logits = e * s.tokens * s.vocab, ids = 8 * s.tokens;
  GraphWriter f(x.op);
  const Tensor in = f.input(logits, x.type, Owner::caller);
  const Tensor most = f.tensor(4 * s.tokens, DType::fp32);
  const Tensor log_sum = f.tensor(4 * s.tokens, DType::fp32);
  const Tensor loss = f.tensor(4, DType::fp32);
  const Tensor count = f.tensor(4, DType::fp32);
  f.kernel("log_softmax", {in}, {most, log_sum});
  // Of the logits it reads one a row.
  f.kernel("nll_loss", {most, log_sum}, {loss, count}, ids + e * s.tokens);
  CompiledGraph c;
  c.out = s.float_loss ? DType::fp32 : x.type;
  GraphWriter::Tensors outputs{loss};
  if (x.training) outputs = {loss, most, log_sum, count};
  c.forward = f.finish(outputs, {});
  c.output = c.forward.slot[loss];
  if (!x.training) return c;
  c.saved = {c.forward.slot[in], c.forward.slot[most], c.forward.slot[log_sum],
             c.forward.slot[count]};
  GraphWriter b(x.op);
  const Tensor made = b.input(logits, x.type, Owner::autograd);
  const Tensor most_in = b.input(4 * s.tokens, DType::fp32, Owner::saved);
  const Tensor log_sum_in = b.input(4 * s.tokens, DType::fp32, Owner::saved);
  const Tensor count_in = b.input(4, DType::fp32, Owner::saved);
  const Tensor dy = b.input(4, DType::fp32, Owner::autograd);
  const Tensor dx = b.tensor(logits, x.type);
  b.kernel("cross_entropy_backward", {made, most_in, log_sum_in, count_in, dy}, {dx}, ids);
  c.backward = b.finish({dx}, {});
  c.input_grad = c.backward.slot[dx];
  return c;
}

CompiledGraph compile(const CompiledShape& shape, const CompiledContext& context) {
  switch (shape.what) {
    case CompiledShape::What::norm: return compile_norm(shape, context);
    case CompiledShape::What::loss: return compile_loss(shape, context);
    case CompiledShape::What::model: return compile_model(shape, context);
    case CompiledShape::What::block: break;
  }
  return compile_block(shape, context);
}

}  // namespace shardsim
