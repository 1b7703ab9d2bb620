// What is trained, as plain values: the fields of a Hugging Face config.json, an inline architecture,
// or one of the recorder's programs (stack, bag, llama). sim/model/build.h turns it into a Model.
// Worked number: Llama-3-8B is vocab 128256, hidden 4096, layers 32, ffn 14336, heads 32, kv_heads 8,
// head_dim 128, untied: 8,030,261,248 parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/dtype.h"

namespace shardsim {

enum class Family : uint8_t {
  llama,    // Llama 2/3, Mistral, Qwen2, Qwen3 and the recorder's llama: one decoder block form
  gpt2,     // LayerNorm, one QKV linear, GELU, learned positions
  stack,    // blocks of plain linears (the recorder's program)
  bag,      // blocks of bare parameters (the recorder's program)
  vectors,  // blocks of bare vectors: x * p.mean() (the recorder's program)
  // torch.testing's test Transformer: LayerNorm, separate Q, K, V, GELU, learned positions
  transformer,
  t5,  // encoder and decoder, relative attention bias, ReLU
};

// The input is tokens, in sequences; otherwise it is rows of features.
constexpr bool takes_tokens(Family f) {
  return f == Family::llama || f == Family::gpt2 || f == Family::transformer || f == Family::t5;
}
// The loss is a cross-entropy of the tokens; otherwise it is the sum of the output.
constexpr bool has_cross_entropy(Family f) {
  return f == Family::llama || f == Family::gpt2 || f == Family::t5;
}

// Hugging Face names (model.layers.0...), or those of the recorder's programs (layers.0...), which
// have no RoPE: its FSDP2 program, and the one of FSDP1, where a stack's root has `pre` and `head` and
// GPT-2 is written without submodules of a block; its program of training memory; and the one that is
// compiled.
enum class Naming : uint8_t {
  hugging_face,
  recorder,
  recorder_fsdp1,
  recorder_memory,
  recorder_compiled
};

// fused: F.rms_norm, one kernel. hf: written out in fp32, as transformers does.
enum class NormForm : uint8_t { fused, hf };
// complex: view_as_complex on an fp32 copy (torchtitan). hf: rotate_half (transformers).
enum class RopeForm : uint8_t { none, complex, hf };

// Which kernel scaled_dot_product_attention takes: left alone, flash for 16-bit types and efficient for
// fp32.
enum class Sdpa : uint8_t { best, flash, efficient, math };
// sdpa: scaled_dot_product_attention. eager: written out, as transformers does.
enum class AttentionForm : uint8_t { sdpa, eager };

struct LinearShape {
  int64_t out = 0, in = 0;
};

struct Architecture {
  std::string name;  // for people: "llama-3-8b"
  // config.json's model_type: llama mistral qwen2 qwen3 gpt2; stack, bag, transformer
  std::string model_type;
  Family family = Family::llama;
  Naming naming = Naming::hugging_face;

  // decoders
  int64_t vocab = 0, hidden = 0, layers = 0, ffn = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_positions = 0;  // gpt2 and transformer: rows of the position table
  bool tied = false;          // lm_head shares the embedding's weight
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;  // Qwen3: RMSNorm of head_dim on q and k
  NormForm norm = NormForm::fused;
  RopeForm rope = RopeForm::none;
  // Positions of the table that the model holds as a buffer: complex numbers for `complex`, the inverse
  // frequencies for `hf`. 0: not counted.
  int64_t rope_positions = 0;
  AttentionForm attention = AttentionForm::sdpa;
  Sdpa sdpa = Sdpa::best;
  int64_t experts = 0, topk = 0;  // llama: the MLP is a loop over experts, each of T topk / experts
  bool gelu = false;              // llama: GeGLU (Gemma) in place of SwiGLU
  int64_t relative_buckets = 32;  // t5
  double dropout = 0;             // gpt2, t5
  bool no_bias = false;           // gpt2: linears and norms have none
  bool repeat_kv = false;         // K and V expanded before attention; otherwise enable_gqa

  // stack and bag
  std::vector<std::vector<LinearShape>> linear_blocks;        // stack: [out, in] of each block
  std::vector<std::vector<std::vector<int64_t>>> bag_blocks;  // bag: parameter shapes of each block
  bool bias = false;                                          // stack: linears have a bias
  bool scale = false;                                         // bag: parameters are doubled first
  bool input_grad = false;                                    // the input requires a gradient
  std::vector<int64_t> calls;   // blocks in the order that forward runs them; empty: each once
  std::vector<int64_t> detach;  // blocks whose output is detached
  LinearShape root_first, root_last;  // stack: out 0 = absent
  bool root_first_bias = false, root_last_bias = false;
  std::vector<LinearShape> unused;    // stack: linears of the root that forward does not call
  std::vector<int64_t> buffers;       // stack: of the root, by elements
  std::vector<int64_t> root_vectors;  // vectors: the root's own, after the blocks
};

}  // namespace shardsim
