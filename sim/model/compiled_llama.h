// The block of a Llama as Inductor runs it (compiled.md 2 to 5): tensors and calls that forward,
// recomputation and backward share.
// Worked number, Llama-3-8B at T 8192 in bf16 keeps 1,141.97 MB a layer without checkpointing.
#pragma once

#include "sim/model/compiled.h"

namespace shardsim {

// Parameters of a block, in the module tree's order.
enum BlockParam : uint8_t { kInNorm, kQ, kK, kV, kO, kPostNorm, kGate, kUp, kDown, kBlockParams };

class LlamaGraph {
 public:
  LlamaGraph(GraphWriter& writer, const CompiledShape& shape, const CompiledContext& context);

  using Tensor = GraphWriter::Tensor;
  using Tensors = GraphWriter::Tensors;
  using Owner = GraphWriter::Owner;

  GraphWriter& graph;

  // The tensors of a forward, where it has made them or the backward gets them.
  static constexpr Tensor kNone = UINT16_MAX;
  Tensor x = kNone;                 // the block's input
  Tensor cos = kNone, sin = kNone;  // hf: tables; complex: frequencies in cos
  Tensor y1 = kNone, r1 = kNone;    // first norm and its row factors
  Tensor raw_q = kNone, raw_k = kNone, v = kNone;
  Tensor q = kNone, k = kNone;  // rotated
  Tensor attention = kNone, lse = kNone, seed = kNone, offset = kNone;
  Tensor o = kNone;               // of o_proj
  Tensor y2 = kNone, r2 = kNone;  // second norm
  Tensor gate = kNone, up = kNone, prod = kNone;
  Tensor result = kNone;

  // Steps of the forward; the backward repeats some of them.
  void norm1(bool keeps_factors);
  void project_q() { raw_q = linear(y1, s_.hidden, s_.q_dim()); }
  void project_k() { raw_k = linear(y1, s_.hidden, s_.kv_dim()); }
  void project_v() { v = linear(y1, s_.hidden, s_.kv_dim()); }
  void attend();
  void project_o() { o = linear(attention, s_.q_dim(), s_.hidden); }
  void add_and_norm2(bool keeps_factors);
  void silu_mul() {
    prod = rows(s_.ffn);
    graph.pointwise("silu_mul", {gate, up}, {{prod, {gate, up}}});
  }
  void project_gate() { gate = linear(y2, s_.hidden, s_.ffn); }
  void project_up() { up = linear(y2, s_.hidden, s_.ffn); }

  // Complex RoPE: to pairs of fp32, times the frequencies, and back.
  Tensor to_pairs(Tensor from);
  Tensor times(Tensor pairs, Tensor frequencies);
  Tensor conjugate();  // a copy of the frequencies
  void from_pairs(Tensor pairs, const std::vector<GraphWriter::Write>& to);
  Tensor rotate_half(Tensor from);
  // Both in one kernel.
  void rotate_halves(Tensor from_q, Tensor from_k, Tensor& to_q, Tensor& to_k);
  bool halves_in_one() const { return s_.kv_heads == s_.heads; }

  Tensor rows(int64_t features) { return graph.tensor(e() * s_.tokens * features, x_.type); }
  Tensor floats(int64_t n) { return graph.tensor(4 * n, DType::fp32); }
  Tensor linear(Tensor from, int64_t in, int64_t out);
  Tensor linear_dx(Tensor from, int64_t in, int64_t out);
  Tensor linear_dw(Tensor from, Tensor input, int64_t in, int64_t out);
  // Of rotated queries and keys, which may be other copies than the forward's.
  void attention_backward(Tensor gradient, Tensor queries, Tensor keys, Tensor& dq, Tensor& dk,
                          Tensor& dv);
  int64_t e() const { return bytes_of(x_.type); }
  int64_t weight_bytes() const { return e() * s_.hidden; }  // of a norm

  const CompiledShape& shape() const { return s_; }
  const CompiledContext& context() const { return x_; }

 private:
  const CompiledShape& s_;
  const CompiledContext& x_;
  OpCode attention_;
};

// A graph's forward, and its backward from what `saved` of the forward's tensors the graph keeps.
CompiledGraph compile_block(const CompiledShape& shape, const CompiledContext& context);
CompiledGraph compile_norm(const CompiledShape& shape, const CompiledContext& context);
CompiledGraph compile_model(const CompiledShape& shape, const CompiledContext& context);
CompiledGraph compile_loss(const CompiledShape& shape, const CompiledContext& context);
// What autograd keeps of a block's forward, in the order of the backward's inputs.
std::vector<GraphWriter::Tensor LlamaGraph::*> saved_of_block(const CompiledShape& shape,
                                                              const CompiledContext& context);
void write_block_forward(LlamaGraph& g);
// Returns the parameters' gradients and the input's.
struct BlockGradients {
  std::array<LlamaGraph::Tensor, kBlockParams> params{};
  LlamaGraph::Tensor input = LlamaGraph::kNone;
};
BlockGradients write_block_backward(LlamaGraph& g, LlamaGraph::Tensor dy);

}  // namespace shardsim
