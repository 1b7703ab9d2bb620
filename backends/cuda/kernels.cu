#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backends/cuda/kernels.h"

namespace shardsim::kernels {

namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 8;
constexpr int64_t kMmaFlops = 2 * 16 * 8 * 16;
constexpr int kIndependent = 8;  // products in flight per warp, which hide their latency

int blocks_for(int64_t items, int sms) {
  const int64_t needed = (items + kThreads - 1) / kThreads, most = int64_t{kBlocksPerSm} * sms;
  return static_cast<int>(needed < 1 ? 1 : needed < most ? needed : most);
}

__device__ int64_t thread_id() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ int64_t thread_count() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

__device__ void stream(const uint4* in, uint4* out, int64_t vectors) {
  for (int64_t i = thread_id(); i < vectors; i += thread_count()) out[i] = in[i];
}

__global__ void stream_kernel(const uint4* in, uint4* out, int64_t vectors) {
  stream(in, out, vectors);
}

__global__ void attention_kernel(const uint4* in, uint4* out, int64_t vectors, int64_t rounds) {
  stream(in, out, vectors);
  float sum[kIndependent][4] = {};
  const uint32_t a = 0x3c003c00u + threadIdx.x, b = 0x3b803b80u;  // numbers near 2^-7
  for (int64_t r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < kIndependent; ++i)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};\n"
          : "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])
          : "r"(a), "r"(b));
  }
  float total = 0;
  for (int i = 0; i < kIndependent; ++i)
    for (int j = 0; j < 4; ++j) total += sum[i][j];
  // Never so: the compiler must not see that nobody reads the sums.
  if (total == -1.0f) out[0].x = 1;
}

__global__ void wait_kernel(int64_t nanoseconds) {
  uint64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    __nanosleep(200);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (static_cast<int64_t>(now - begin) < nanoseconds);
}

__device__ void put(void* at, DType type, int64_t i, double value) {
  switch (type) {
    case DType::fp32: static_cast<float*>(at)[i] = static_cast<float>(value); return;
    case DType::bf16:
      static_cast<__nv_bfloat16*>(at)[i] = __float2bfloat16(static_cast<float>(value));
      return;
    case DType::fp16: static_cast<__half*>(at)[i] = __float2half(static_cast<float>(value)); return;
    case DType::i64: static_cast<int64_t*>(at)[i] = static_cast<int64_t>(value); return;
    case DType::fp8:
    case DType::u8: static_cast<uint8_t*>(at)[i] = static_cast<uint8_t>(value); return;
  }
}

__device__ double get(const void* at, DType type, int64_t i) {
  switch (type) {
    case DType::fp32: return static_cast<const float*>(at)[i];
    case DType::bf16: return __bfloat162float(static_cast<const __nv_bfloat16*>(at)[i]);
    case DType::fp16: return __half2float(static_cast<const __half*>(at)[i]);
    case DType::i64: return static_cast<double>(static_cast<const int64_t*>(at)[i]);
    case DType::fp8:
    case DType::u8: return static_cast<const uint8_t*>(at)[i];
  }
  return 0;
}

__global__ void fill_kernel(void* at, Pattern p) {
  for (int64_t i = thread_id(); i < p.elements * p.parts; i += thread_count())
    put(at, p.dtype, i, pattern_at(p, i));
}

__global__ void check_kernel(const void* at, Pattern p, unsigned long long* count) {
  const double tolerance = p.of == Pattern::Of::average ? kAverageTolerance : 0;
  unsigned long long different = 0;
  for (int64_t i = thread_id(); i < p.elements * p.parts; i += thread_count()) {
    const double want = pattern_at(p, i), off = get(at, p.dtype, i) - want;
    if (!((off < 0 ? -off : off) <= tolerance * want)) ++different;  // a NaN differs
  }
  if (different != 0) atomicAdd(count, different);
}

// As bf16 and as fp16 a number between 2^-8 and 1, as fp32 too.
__global__ void scratch_kernel(uint32_t* at, int64_t words) {
  for (int64_t i = thread_id(); i < words; i += thread_count()) {
    const uint32_t x = static_cast<uint32_t>(i) * 2654435761u;
    const uint32_t low = 0x3800u + ((x >> 7) & 0x3ffu), high = 0x3800u + ((x >> 18) & 0x3ffu);
    at[i] = low | high << 16 | (x & 0x80000000u);
  }
}

}  // namespace

void stream_bytes(const void* in, void* out, int64_t bytes, int sms, cudaStream_t s) {
  const int64_t vectors = bytes / 32;
  stream_kernel<<<blocks_for(vectors, sms), kThreads, 0, s>>>(static_cast<const uint4*>(in),
                                                              static_cast<uint4*>(out), vectors);
}

void attention(const void* in, void* out, int64_t bytes, int64_t flops, int sms, cudaStream_t s) {
  const int blocks = 2 * sms, warps = blocks * kThreads / 32;
  const int64_t each = kMmaFlops * kIndependent * warps;
  attention_kernel<<<blocks, kThreads, 0, s>>>(static_cast<const uint4*>(in),
                                               static_cast<uint4*>(out), bytes / 32,
                                               (flops + each / 2) / each);
}

void wait(int64_t nanoseconds, cudaStream_t s) { wait_kernel<<<1, 1, 0, s>>>(nanoseconds); }

void fill(void* at, const Pattern& p, int sms, cudaStream_t s) {
  fill_kernel<<<blocks_for(p.elements * p.parts, sms), kThreads, 0, s>>>(at, p);
}

void check(const void* at, const Pattern& p, unsigned long long* count, int sms, cudaStream_t s) {
  check_kernel<<<blocks_for(p.elements * p.parts, sms), kThreads, 0, s>>>(at, p, count);
}

void fill_scratch(void* at, int64_t bytes, int sms, cudaStream_t s) {
  scratch_kernel<<<blocks_for(bytes / 4, sms), kThreads, 0, s>>>(static_cast<uint32_t*>(at),
                                                                 bytes / 4);
}

}  // namespace shardsim::kernels
