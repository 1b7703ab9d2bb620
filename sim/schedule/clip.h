// torch.nn.utils.clip_grad_norm_ on sharded gradients (foreach): the norm of every local gradient, one
// all-reduce of 4 bytes a tensor on the process group's internal stream, and the scaling. Rows of
// spec/kernel-sequence.md 6; allocations read off a recording.
// 2.7 takes the norm of all local gradients first and reduces that alone, on a buffer that it records
// on the internal stream (recorded with 2.7.1).
// Worked number: 39 tensors: a table of 320 B, nine kernels, an all-reduce of 156 B.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/schedule/host.h"

namespace shardsim {

// `numels`: local elements of each gradient.
void clip_grad_norm(Host& host, CommId shard, DType dtype, const std::vector<int64_t>& numels);
// The same on gradients that nothing shards: no communication.
void clip_whole_grads(Host& host, DType dtype, const std::vector<int64_t>& numels);

}  // namespace shardsim
