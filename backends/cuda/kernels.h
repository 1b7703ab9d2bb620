// The kernels that stand for a schedule's: each moves the scheduled bytes, and where the schedule
// counts FLOPs does them.
//   stream_bytes   reads a half of the bytes and writes the other half, in vectors of 16 bytes, by a
//                  grid that fills the GPU: what a memory-bound kernel does at best
//   attention      tensor-core products (mma.sync m16n8k16 in bf16, fp32 sums, operands kept in
//                  registers) of the scheduled FLOPs, and the scheduled bytes. On sm_80 that is the
//                  instruction FlashAttention-2 is made of; on sm_90 and sm_100, whose newer
//                  instructions are up to twice as fast, it is what FlashAttention-2 takes too
//   wait           nothing, for a time on the GPU's own clock (%globaltimer)
//   fill, check    the data of backends/replay/pattern.h
// Worked number: 4 x 8192 x 8192 x 128 x 32 / 2 FLOPs of causal attention are 268,435,456 products of
// 16 x 8 x 16 (4,096 FLOPs each).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/replay/pattern.h"

namespace shardsim::kernels {

// Both areas have at least bytes / 2, and begin at a multiple of 16.
void stream_bytes(const void* in, void* out, int64_t bytes, int sms, cudaStream_t stream);
void attention(const void* in, void* out, int64_t bytes, int64_t flops, int sms,
               cudaStream_t stream);
void wait(int64_t nanoseconds, cudaStream_t stream);
void fill(void* at, const Pattern& pattern, int sms, cudaStream_t stream);
// Adds the elements that differ to *count.
void check(const void* at, const Pattern& pattern, unsigned long long* count, int sms,
           cudaStream_t stream);
// Small numbers in every type, so that products neither overflow nor run on zeros, which take less
// power than data does.
void fill_scratch(void* at, int64_t bytes, int sms, cudaStream_t stream);

}  // namespace shardsim::kernels
