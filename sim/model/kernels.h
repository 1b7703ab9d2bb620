// What a kernel does, for its cost and for comparing with recordings.
#pragma once

#include <cstdint>

#include "sim/model/architecture.h"

namespace shardsim {

enum class KernelClass : uint8_t {
  pointwise,  // contiguous elementwise, casts, fills
  strided,    // index arithmetic: broadcast over rows, expanded operands, complex multiply
  reduction,  // mean, sum, norms
  softmax,
  attention,
  embedding,
  foreach_op,  // multi-tensor and fused optimizers, copy-in
  copy_out,    // FSDP2's split_with_sizes_copy
  chunk_cat,   // FSDP2's reduce-scatter copy-in
  cat,
  fused,  // made by Inductor
};

// cuBLAS takes this from the caching allocator around each product on compute capability 9 (2.15),
// and cublasLt, used where a bias is added, this (memory-model.md B).
inline constexpr int64_t kCublasWorkspace = 33'554'432;
inline constexpr int64_t kCublasLtWorkspace = 1'048'576;

}  // namespace shardsim
