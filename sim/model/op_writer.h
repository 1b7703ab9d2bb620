// Writes one pass of an operator (OpAction after OpAction), and what operators of every kind share.
// Worked example, gelu on 8 bytes: writer.alloc(0, 8); writer.pointwise("gelu", 16, 8);
#pragma once

#include <vector>

#include "sim/model/operators.h"

namespace shardsim {

// TensorIterator halves a pointwise kernel until every operand can be indexed with 32 bits: one with
// an operand of 2^31 bytes or more runs as two, four, ... (kernel-sequence.md 2).
int pieces(Bytes operand);

// Writes the steps of one pass.
class Writer {
 public:
  explicit Writer(std::vector<OpAction>& out) : out_(out) {}

  void alloc(uint8_t slot, Bytes bytes) { push(Act::alloc, slot).bytes = bytes; }
  void free(uint8_t slot) { push(Act::free, slot); }
  void release(uint8_t saved) { push(Act::release, saved); }
  void release_unpacked(uint8_t saved) { push(Act::release_unpacked, saved); }
  void take_gradient() { push(Act::take_gradient, 0); }
  void parameter_done() { push(Act::parameter_done, 0); }
  void free_unsaved(uint8_t slot) { push(Act::free_unsaved, slot); }

  void kernel(const char* name, KernelClass cls, Bytes bytes, int64_t flops = 0) {
    OpAction& m = push(Act::kernel, 0);
    m.name = name;
    m.kernel = cls;
    m.bytes = bytes;
    m.flops = flops;
  }
  // m queries, n keys, k head dimension, batch sequences x heads.
  void attention(const char* name, DType t, const OpShape& s, Bytes bytes, int64_t flops) {
    kernel(name, KernelClass::attention, bytes, flops);
    OpAction& a = out_.back();
    a.dtype = t;
    a.m = a.n = s.seq;
    a.k = s.head_dim;
    a.batch = s.batch * s.heads;
  }
  // A pointwise kernel whose largest operand has `operand` bytes.
  void pointwise(const char* name, Bytes bytes, Bytes operand,
                 KernelClass cls = KernelClass::pointwise) {
    const int n = pieces(operand);
    for (int i = 0; i < n; ++i) kernel(name, cls, bytes / n);
  }
  void memset(Bytes bytes) { push(Act::memset, 0).bytes = bytes; }
  // at::zeros.
  void zeros(const OpContext& x, Bytes bytes) {
    if (x.behaviour->zeros_by_kernel)
      pointwise("fill", bytes, bytes);
    else
      memset(bytes);
  }
  void copy(Bytes bytes) { push(Act::copy_d2d, 0).bytes = bytes; }

  // A product of type t with its workspace around it, in cuBLAS's column-major sizes.
  void gemm(const OpContext& x, DType t, const char* name, int64_t m, int64_t n, int64_t k,
            bool adds_bias = false, int64_t batch = 1) {
    const bool kept = x.behaviour->cached_workspaces;
    const bool taken = adds_bias || !kept;
    if (taken) {
      OpAction& a = push(Act::alloc, kMaxSlots - 1);
      a.workspace = true;
      a.bytes = adds_bias ? kCublasLtWorkspace : kCublasWorkspace;
    }
    if (kept) push(Act::keep_workspace, 0);
    OpAction& g = push(Act::gemm, 0);
    g.name = name;
    g.dtype = t;
    g.m = m;
    g.n = n;
    g.k = k;
    g.batch = batch;
    g.flops = 2 * m * n * k * batch;
    g.bytes = bytes_of(t) * (m * k + k * n + m * n) * batch;
    if (taken) push(Act::free, kMaxSlots - 1).workspace = true;
  }

 private:
  OpAction& push(Act act, uint8_t slot) {
    out_.emplace_back();
    out_.back().act = act;
    out_.back().slot = slot;
    return out_.back();
  }
  std::vector<OpAction>& out_;
};

// The weight (0) or bias (1) of an operator: a parameter, or input 1 or 2 where autocast has cast it.
struct Weight {
  DType type = DType::fp32;
  bool grad = false;
  bool is_input = false;
  uint8_t grad_slot = 0;
};

// torch.promote_types of two floating-point tensors.
DType promote(DType a, DType b);

Weight weight_of(const OpContext& x, int i);

// What OpCode::saved names.
constexpr uint8_t input(int i) { return static_cast<uint8_t>(i); }
constexpr uint8_t kept(int slot) { return static_cast<uint8_t>(kSavedSlot + slot); }
// Slots.
constexpr uint8_t temp(int i) { return static_cast<uint8_t>(kBackwardTemp + i); }
constexpr uint8_t extra(int i) { return static_cast<uint8_t>(kExtra + i); }

// The sum of n elements, with its staging buffer and semaphore in `scratch` and the slot behind it.
void full_sum(Writer& w, int64_t n, Bytes bytes, uint8_t scratch, int sms);

// The sum over the rows of a [rows, columns] matrix, as setReduceConfig in aten's Reduce.cuh lays it
// out: where a thread would add 256 rows or more, several blocks share a column and meet in a
// staging buffer, counted by semaphores that a memset clears. 2048 rows of 128 columns stage
// 2,097,152 B with one semaphore (seen).
void column_sum(Writer& w, const char* name, int64_t rows, int64_t columns, int64_t element,
                int sms, uint8_t scratch);

}  // namespace shardsim
