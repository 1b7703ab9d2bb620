// What Inductor makes of parts of a model: one graph for a forward and one for its backward
// (torch.compile; spec/compiled.md, read off PyTorch 2.15 on compute capability 9.0).
// Worked example, a block without RoPE on T rows of width h <= 1024, nothing recomputed, T < h:
//   forward   norm, 3 products, attention, product, add + norm, 2 products, silu * mul, product, add
//   backward  11 kernels besides the products, where eager runs 17 (compiled.md 4)
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/model/compiled_graph.h"

namespace shardsim {

// Sizes of what is compiled.
struct CompiledShape {
  enum class What : uint8_t { block, norm, loss, model } what = What::block;
  int64_t tokens = 0, batch = 0, seq = 0;
  int64_t hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  int64_t layers = 0;  // model
  RopeForm rope = RopeForm::none;
  NormForm norm = NormForm::fused;
  Sdpa sdpa = Sdpa::best;
  bool float_loss = true;
  int64_t q_dim() const { return heads * head_dim; }
  int64_t kv_dim() const { return kv_heads * head_dim; }
};

enum class GraphCheckpoint : uint8_t { none, full, selective_op };

// Where it runs.
struct CompiledContext {
  DType type = DType::bf16;    // of activations and weights
  DType tables = DType::bf16;  // of RoPE's cosines and sines
  GraphCheckpoint checkpoint = GraphCheckpoint::none;
  bool training = true;
  uint64_t frozen = 0;  // bit p: parameter p requires no gradient
  OpContext op;         // device and release
};

// Slots of the forward: 0 the input, then the externals. Slots of the backward: what the forward
// saved, then the gradient that arrives.
struct CompiledGraph {
  CompiledPass forward, backward;
  uint16_t output = 0;
  DType out = DType::fp32;
  std::vector<uint16_t> saved;        // forward's slots
  std::vector<uint16_t> param_grads;  // by parameter: backward's slots, UINT16_MAX for none
  uint16_t input_grad = UINT16_MAX;
};

CompiledGraph compile(const CompiledShape& shape, const CompiledContext& context);

}  // namespace shardsim
