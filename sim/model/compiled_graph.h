// A graph as the code that Inductor generates runs it: calls in a given order, each buffer allocated
// right before the call that writes it and freed behind its last reader, with Inductor's reuse.
//
// Reuse (torch/_inductor/codegen/wrapper.py, scheduler.py of 2.15): a Triton kernel may write over an
// input of the same size that nothing reads later (Write::over); any other buffer takes over the
// latest dead one of the same type and size, if that was freed by the call before, or if keeping it
// between does not lift the peak that Inductor estimates for the whole graph. What ATen allocates
// itself is never given a dead buffer, but may become one.
// Worked example, y = f(x), z = g(y) of 8 bytes each, f a product: +y f, g over y: one allocation.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/operators.h"

namespace shardsim {

// One pass of a compiled graph. Slots are buffers: the graph's inputs first, in their order.
struct CompiledPass {
  enum class Made : uint8_t { value, recomputed, gradient, temporary };
  std::vector<OpAction> actions;  // alloc, free and launches
  std::vector<Made> made;         // by slot
  std::vector<uint16_t> slot;     // by tensor
  // Pointwise kernels, of which Inductor may time two candidates at their first call: the action, and
  // the bytes of what it writes over.
  struct Pointwise {
    size_t action = 0;
    Bytes overwritten = 0;
  };
  std::vector<Pointwise> pointwise;
};

// Writes one. Tensors are numbered from 0; inputs come first.
class GraphWriter {
 public:
  using Tensor = uint16_t;
  using Tensors = std::vector<Tensor>;
  struct Write {
    Write(Tensor t) : tensor(t) {}  // NOLINT: a tensor is written as itself
    Write(Tensor t, Tensors o) : tensor(t), over(std::move(o)) {}
    Tensor tensor;
    Tensors over;  // inputs whose memory it may take
  };

  explicit GraphWriter(const OpContext& context) : context_(context) {}

  enum class Owner : uint8_t {
    caller,    // never freed here
    autograd,  // freed behind its last reader, and no part of the estimate (what arrives, leaves)
    saved      // freed behind its last reader
  };
  Tensor input(Bytes bytes, DType type, Owner owner);
  Tensor tensor(Bytes bytes, DType type);
  Bytes bytes(Tensor t) const { return tensors_[t].bytes; }
  DType type(Tensor t) const { return tensors_[t].type; }

  // What follows repeats the forward.
  void recompute(bool on) { recomputes_ = on; }

  // One of Inductor's kernels. It moves what it reads and writes, and `besides` (weights).
  void kernel(const char* name, const Tensors& reads, std::vector<Write> writes, Bytes besides = 0);
  // A pointwise one.
  void pointwise(const char* name, const Tensors& reads, std::vector<Write> writes,
                 Bytes besides = 0) {
    kernel(name, reads, std::move(writes), besides);
    calls_.back().pointwise = true;
  }
  // One with a workspace, and the steps of ATen that read it (slots of their own, results in `made`):
  // what the kernel reads last goes behind them.
  struct Result {
    uint8_t slot;
    Tensor tensor;
  };
  void kernel_with_workspace(const char* name, const Tensors& reads, std::vector<Write> writes,
                             Bytes besides, Bytes workspace, const std::vector<OpAction>& steps,
                             const std::vector<Result>& made);
  // A cuBLAS product in column-major sizes.
  void product(const char* name, DType type, int64_t m, int64_t n, int64_t k, const Tensors& reads,
               Tensor out);
  // A call of ATen with the steps of an operator's pass; `made` says which of its slots become which
  // tensors, the others are its own. It has `nodes` scheduler nodes: itself and views of its results.
  void library(const std::vector<OpAction>& steps, const Tensors& reads,
               const std::vector<Result>& made, int nodes);
  CompiledPass finish(const Tensors& outputs, const Tensors& gradients);

 private:
  struct Info {
    Bytes bytes = 0;
    DType type = DType::fp32;
    Owner owner = Owner::saved;
    bool input = false, output = false, recomputed = false;
    int made = -1, last = -1;  // calls
  };
  struct Call {
    std::vector<OpAction> steps;  // of a library: slots are its own
    Tensors reads;
    std::vector<Write> writes;
    std::vector<Result> results;
    int nodes = 1;
    bool pointwise = false;
    Bytes workspace = 0;
  };
  Call& add(const Tensors& reads);

  const OpContext& context_;
  std::vector<Info> tensors_;
  std::vector<Call> calls_;
  bool recomputes_ = false;
};

}  // namespace shardsim
