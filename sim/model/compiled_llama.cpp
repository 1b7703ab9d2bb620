#include "sim/model/compiled_llama.h"

#include "sim/base/error.h"
#include "sim/model/op_writer.h"

namespace shardsim {

namespace {

// Complex numbers of 8 bytes: their memory is not handed to a tensor of another type.
constexpr DType kComplex = DType::i64;

OpCode attention_of(const CompiledShape& s, const CompiledContext& x) {
  OpShape shape;
  shape.rows = s.tokens;
  shape.batch = s.batch;
  shape.seq = s.seq;
  shape.heads = s.heads;
  shape.kv_heads = s.kv_heads;
  shape.head_dim = s.head_dim;
  shape.sdpa = s.sdpa;
  OpContext context = x.op;
  context.in = {x.type, x.type, x.type};
  context.has_in = context.in_grad = {true, true, true};
  return op_code(OpKind::attention, shape, context);
}

}  // namespace

LlamaGraph::LlamaGraph(GraphWriter& writer, const CompiledShape& shape,
                       const CompiledContext& context)
    : graph(writer), s_(shape), x_(context), attention_(attention_of(shape, context)) {}

LlamaGraph::Tensor LlamaGraph::linear(Tensor from, int64_t in, int64_t out) {
  const Tensor to = rows(out);
  graph.product("linear", x_.type, out, s_.tokens, in, {from}, to);
  return to;
}

LlamaGraph::Tensor LlamaGraph::linear_dx(Tensor from, int64_t in, int64_t out) {
  const Tensor to = rows(in);
  graph.product("linear_dx", x_.type, in, s_.tokens, out, {from}, to);
  return to;
}

LlamaGraph::Tensor LlamaGraph::linear_dw(Tensor from, Tensor input, int64_t in, int64_t out) {
  const Tensor to = graph.tensor(e() * in * out, x_.type);
  graph.product("linear_dw", x_.type, in, out, s_.tokens, {from, input}, to);
  return to;
}

void LlamaGraph::norm1(bool keeps_factors) {
  if (keeps_factors) r1 = floats(s_.tokens);
  y1 = rows(s_.hidden);
  std::vector<GraphWriter::Write> writes{y1};
  if (keeps_factors) writes = {r1, y1};
  graph.kernel("rms_norm", {x}, writes, weight_bytes());
}

void LlamaGraph::add_and_norm2(bool keeps_factors) {
  if (keeps_factors) r2 = floats(s_.tokens);
  y2 = rows(s_.hidden);
  std::vector<GraphWriter::Write> writes{y2};
  if (keeps_factors) writes = {r2, y2};
  graph.kernel("add_rms_norm", {x, o}, writes, weight_bytes());
}

void LlamaGraph::attend() {
  std::vector<GraphWriter::Result> made;
  const auto add = [&](uint8_t slot, DType type) {
    for (const OpAction& a : attention_.forward)
      if (a.act == Act::alloc && a.slot == slot) {
        made.push_back({slot, graph.tensor(a.bytes, type)});
        return made.back().tensor;
      }
    return kNone;
  };
  attention = add(0, x_.type);
  std::array<Tensor*, 3> kept{&lse, &seed, &offset};
  size_t i = 0;
  for (uint8_t what : attention_.saved)
    if (what > kSavedSlot) *kept[i++] = add(static_cast<uint8_t>(what - kSavedSlot), DType::fp32);
  graph.library(attention_.forward, {q, k, v}, made, 1 + static_cast<int>(made.size()));
}

void LlamaGraph::attention_backward(Tensor gradient, Tensor queries, Tensor keys, Tensor& dq,
                                    Tensor& dk, Tensor& dv) {
  std::vector<GraphWriter::Result> made;
  const auto add = [&](uint8_t slot) {
    for (const OpAction& a : attention_.backward)
      if (a.act == Act::alloc && a.slot == slot)
        made.push_back({slot, graph.tensor(a.bytes, x_.type)});
    return made.back().tensor;
  };
  dq = add(0);
  dk = add(1);
  dv = add(2);
  Tensors reads{gradient, queries, keys, v, attention};
  for (Tensor t : {lse, seed, offset})
    if (t != kNone) reads.push_back(t);
  graph.library(attention_.backward, reads, made, 1 + static_cast<int>(made.size()));
}

LlamaGraph::Tensor LlamaGraph::to_pairs(Tensor from) {
  const Tensor pairs = floats(graph.bytes(from) / e());
  graph.pointwise("rope_pairs", {from}, {pairs});
  return pairs;
}

LlamaGraph::Tensor LlamaGraph::times(Tensor pairs, Tensor frequencies) {
  const Bytes bytes = graph.bytes(pairs);
  const Tensor product = graph.tensor(bytes, kComplex);
  std::vector<OpAction> steps;
  Writer w(steps);
  w.alloc(0, bytes);
  w.pointwise("complex_mul", 2 * bytes, bytes, KernelClass::strided);
  Tensors reads{pairs};
  if (frequencies != kNone) reads.push_back(frequencies);
  graph.library(steps, reads, {{0, product}}, 3);
  return product;
}

LlamaGraph::Tensor LlamaGraph::conjugate() {
  const Bytes bytes = 4 * s_.seq * s_.head_dim;
  const Tensor made = graph.tensor(bytes, kComplex);
  std::vector<OpAction> steps;
  Writer w(steps);
  w.alloc(0, bytes);
  w.kernel("conj", KernelClass::pointwise, 2 * bytes);
  graph.library(steps, {}, {{0, made}}, 1);
  return made;
}

void LlamaGraph::from_pairs(Tensor pairs, const std::vector<GraphWriter::Write>& to) {
  graph.pointwise("rope_rows", {pairs}, to);
}

LlamaGraph::Tensor LlamaGraph::rotate_half(Tensor from) {
  const Tensor to = rows(graph.bytes(from) / e() / s_.tokens);
  graph.pointwise("rope", {from, cos, sin}, {to});
  return to;
}

void LlamaGraph::rotate_halves(Tensor from_q, Tensor from_k, Tensor& to_q, Tensor& to_k) {
  to_q = rows(s_.q_dim());
  to_k = rows(s_.kv_dim());
  graph.pointwise("rope", {from_q, from_k, cos, sin}, {to_q, to_k});
}

}  // namespace shardsim
