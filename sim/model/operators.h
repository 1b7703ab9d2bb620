// What one operator does on a device, as data: the tensors it makes, the kernels it launches with
// their FLOPs and bytes, and what autograd keeps for its backward, in the order PyTorch issues them.
// Rows are those of spec/kernel-sequence.md section 2 and spec/memory-model.md section B, read off
// recordings of PyTorch 2.15 (compute capability 9.0).
// Worked example, a linear without bias [out, in] on T rows in bf16:
//   forward   +y 2*T*out, +workspace, product (out, T, in), -workspace; keeps x
//   backward  +dW 2*in*out, +ws, product (in, out, T), -ws, +dx 2*T*in, +ws, product (in, T, out), -ws
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/model/kernels.h"
#include "sim/model/version.h"

namespace shardsim {

enum class OpKind : uint8_t {
  input,       // the batch: ids or rows, with its memset
  embedding,   // p0 table
  positions,   // p0 table; arange and lookup of learned positions, added to input 0
  arange,      // ids of one sequence's positions
  add_rows,    // input 0 + input 1, which is one row a position for every sequence
  linear,      // p0 weight [out, in], p1 bias if any
  rms_norm,    // p0
  layer_norm,  // p0, p1
  rope,        // complex or rotate_half, by form
  repeat_kv,   // heads expanded
  attention,   // inputs q, k, v
  silu,
  gelu,
  mul,
  add,
  split_qkv,      // three views of one tensor
  cast,           // to `to`, or the type of input 1; the tensor itself where it has it already
  cast_param,     // p0, `in` elements, to dtype `to`: autocast's copy
  cross_entropy,  // mean over tokens, of logits
  fused_loss,     // p0 of the head; head and loss in `chunks`, gradients made in the forward
  sum,            // y.sum()
  bag,            // x + p.sum(), or x + (p * 2).sum()
  mean,           // p0.mean(), of `in` elements; no input
  scale,          // input 0 times the scalar input 1
  // A norm written out: rows of x.
  square,
  row_mean,
  add_scalar,
  rsqrt,
  scale_rows,
  mul_weight,  // p0
  // Attention written out, and changes of layout.
  matmul,
  relayout,
  contiguous,  // .contiguous() of what is not, a slice with its rows apart among it
  mul_scalar,
  causal_mask,
  table,  // rows x out numbers of type `to`, made of constants
  add_to_scores,
  softmax,
  // A mixture of experts.
  topk,         // weights of the `out` best of `in`
  zeros_like,   // of input 0's type; a constant
  sort_ids,     // a constant
  divide_ids,   // a constant
  gather_rows,  // rows of input 0 at the ids in input 1
  add_at_rows,  // input 1's rows added to input 0 at the ids in input 2, in place
  dropout,
  relu,
};

// Sizes of one operator; which are used depends on the kind.
struct OpShape {
  int64_t rows = 0;         // T
  int64_t in = 0, out = 0;  // features
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, head_dim = 0;
  NormForm norm = NormForm::fused;
  RopeForm rope = RopeForm::none;
  DType to = DType::fp32;
  bool matrix_input = false;  // the input is [rows, features], not [batch, seq, features]
  bool bias = false;          // linear: p1
  bool conv1d = false;        // weight stored [in, out] (GPT-2)
  bool scale = false;
  uint8_t copies = 0;  // matmul: kCopiesFirst and the others
  double dropout = 0;  // attention: probability
  Sdpa sdpa = Sdpa::best;
  bool autocast = false;        // cross_entropy: under autocast
  int64_t chunks = 1;           // fused_loss
  bool sliced = false;          // cross_entropy: its ids are a slice, rows apart, and are copied
  bool by_chunk = false;        // rope, rotate_half: x.chunk(2), not two slices
  bool one_expression = false;  // rms_norm, hf: only the fp32 copy of x is a variable
};

inline constexpr uint8_t kCopiesFirst = 1, kCopiesSecond = 2, kCopiesGradient = 4;

// Types and gradients that hold where the operator runs.
struct OpContext {
  std::array<DType, 3> in{};       // of the inputs
  DType param = DType::fp32;       // of the parameters as used (compute type)
  std::array<bool, 3> has_in{};    // the operator has that input
  std::array<bool, 3> in_grad{};   // the input requires a gradient
  bool has_bias = false;           // a second parameter
  bool param_grad = false;         // the parameters require one
  bool expanded_grad = false;      // the incoming gradient is an expanded scalar
  bool autocast_backward = false;  // backward runs under autocast too
  bool function_linear =
      false;      // a linear is one function of autograd's (DeepSpeed's zero/linear.py)
  int sms = 132;  // of the device
  const Behaviour* behaviour = &kNewestBehaviour;
};

enum class Act : uint8_t {
  alloc,
  free,
  release,           // backward: the saved tensor number `slot` goes early
  release_unpacked,  // the same, where a checkpoint's function has unpacked it
  take_gradient,     // backward: the incoming gradient goes early
  parameter_done,    // backward: the parameter's gradient is made, before the rest
  free_unsaved,    // forward: a slot that autograd keeps goes where it does not, under a checkpoint
  keep_workspace,  // the cuBLAS handle's own, made with its first product
  gemm,
  kernel,
  memset,
  copy_d2d,
};

// One step of an operator. Slots are small numbers local to the operator: see OpCode.
struct OpAction {
  Act act = Act::kernel;
  bool workspace = false;   // alloc and free: the cuBLAS workspace
  bool recomputed = false;  // by a compiled graph's backward
  uint16_t slot = 0;
  KernelClass kernel = KernelClass::pointwise;
  DType dtype = DType::fp32;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  int64_t flops = 0;
  Bytes bytes = 0;
  const char* name = "";
};

// Forward slots: 0..2 outputs (0 is the result; split has three, none with bytes of its own),
// 3.. extras. Backward slots: 0..2 gradients of the inputs, 3..4 of the parameters, 5.. temporaries;
// one that is not freed goes with the node's inputs.
inline constexpr uint8_t kExtra = 3;
inline constexpr uint8_t kParamGrad = 3;
inline constexpr uint8_t kBackwardTemp = 5;
inline constexpr int kMaxSlots = 24;

struct OpCode {
  std::vector<OpAction> forward, backward;
  DType out = DType::fp32;  // type of output 0
  int outputs = 1;
  bool aliases_input = false;  // outputs are views of input 0
  // What autograd keeps, in the order release_variables frees it: 0..2 an input, 16 + slot a forward
  // slot (output or extra).
  std::vector<uint8_t> saved;
  bool saves_parameter = false;  // a linear's weight, for its input's gradient
  // The gradient of every input that has no slot of its own is the incoming one (add, view).
  bool passes_gradient = false;
  bool gradient_is_view = false;      // gradients of the inputs are views (a linear on a 3-D input)
  bool split_gradient = false;        // takes one gradient per output
  bool makes_constant = false;        // the result takes no part in autograd
  bool gradient_is_expanded = false;  // the gradient it hands on is an expanded scalar
};
inline constexpr uint8_t kSavedSlot = 16;

OpCode op_code(OpKind kind, const OpShape& shape, const OpContext& context);

// The sum of n elements to one, or their norm: a block of 512 threads takes it all, until a thread would add 256
// elements or more; then several blocks meet in a staging buffer, counted by a semaphore that a
// memset clears (setReduceConfig in aten's Reduce.cuh). 1,048,576 elements stage 512 B (seen); from
// 131,072 elements on (seen; not at 128,000).
Bytes full_reduction_staging(int64_t n, int sms);  // 0: one block

}  // namespace shardsim
