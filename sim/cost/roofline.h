// Roofline costs: each kernel by the larger of its arithmetic and its bytes, each collective as a
// ring. One call prices a schedule's few hundred works; nothing is allocated but the table.
//
// Constants are "sustained" ones, fitted on whole training steps, not on single kernels of a cool
// GPU: for a 700 W H100 the two differ by 14-25 %.
//
// Products with m and n of 512 and more (microseconds; P dense peak of the type, W memory rate):
//   t = max(2 m n k b (1 + (q-1) w) / (P ec k/(k+k0)), bytes / (0.8 W)) + 3
//   q = waves rounded up / waves x padded tile area / area, the least of tiles 128x256, 256x128 and
//   1.08 x that of 128x128
//            w     k0    ec     from
//   A100     0     256   .796   step times of torchtitan, IBM fms-fsdp, MosaicML llm-foundry
//   H100     .75   128   .691   the same; kernel tables alone give .79
//   H100 2.4 TB/s, 500 W
//            .75   0     .636   torchtitan
//   others   .75   128   .691   assumed, as H100 (.60 of peak was reached on MI300X at best)
//   Thinner ones, where cuBLAS splits k: max(2 m n k b / (P ek), bytes / (W em)) + 4, from 3104
//   points of microsoft/vidur: A100 ek .74, em .75; H100 and others .70, .80.
//   Rows that are not a multiple of 16 bytes lose 30 %.
// Attention: FLOPs / rate + 3; rate by sequence length (512, 1k, 2k, 4k, 8k, 16k; between them
//   linear in log2 of the length), FlashAttention-2 causal, heads of 128, TFLOPS:
//   A100 120 150 172 184 190 192, backward x .86; H100 220 260 298 318 328 335, backward x .78;
//   all x 1.03 (fitted), heads of 64 and less x .82, 500 W part x .90. Without a mask the same rate
//   holds. Other GPUs: H100's rate scaled by bf16 peak (assumed). A Work of KernelClass::attention
//   says its sizes as m queries, n keys, k head dimension, batch heads x sequences; backward is
//   known by its 5 (or 10) FLOPs for each m n k batch, forward has 2 (or 4). Without sizes: heads
//   of 128, forward, the length that its FLOPs and bytes imply.
// Memory-bound kernels: max(2.5, bytes / (W x fraction) + 1.5), the fraction by KernelClass: vec =
//   A100 .8408, H100 .8183, 500 W part .9168 (others .82, assumed), times
//   pointwise 1, strided .40, reduction .90, softmax .85, foreach, copy-out, chunk_cat, cat .92.
//   Those were fitted to the residue of eager steps after products and attention.
// Collectives of B whole bytes over n ranks: ring, see sim/cluster/cluster.h; broadcast and reduce
//   (n-1) alpha + B/bus. Which link:
//   all ranks in one node         intra
//   g ranks of a node, 1 < g      inter if g is gpus_per_node; otherwise its alpha and the least of
//                                 inter's bus and g rails
//   one rank a node               rail
//   The ring is right for gathers and scatters (3-8 % for 32 MiB and more); all-reduce over nodes
//   takes a tree in NCCL, and on an NVSwitch node NVLS where the operation is a plain sum: there it
//   is up to 25 % too slow.
// Copies: host link at 0.8 of its line rate (25 of 31.5 GB/s measured), plus 2 us; on the device a
//   copy reads and writes, at vec.
// Host: one host call is 45 us. Eager PyTorch with FSDP costs the host 6 us a launch, 14.6 us an
//   operator call and 466 us a collective (solved from two MiniTrainBench rows on A100, which
//   predicts three others within 5, -32 and -29 %); with 3.27 operator calls a launch that is 54 us
//   a launch, and a collective with its copies, records and waits is 10 host calls. The rows of
//   models above 1e9 parameters and 4k tokens a GPU are not sensitive to it.
//
// Worked number: 5120 x 4096 x 5120 in bf16 on an H100 is 332.6 us; 8,192 tokens of FlashAttention,
// 32 heads of 128, causal, 1,630 us; 128 MiB of pointwise 50.5 us; a gather of 436,224,000 bytes
// over 8 H100 1,113.2 us.
#pragma once

#include "sim/cluster/cluster.h"
#include "sim/cost/cost_table.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

// What the formulas above need of one GPU.
struct GpuRates {
  double fp32_flops_per_us = 0, bf16_flops_per_us = 0, fp16_flops_per_us = 0;  // dense peaks
  double sustained = 1, thin = 1;                                              // ec, ek
  double wave_weight = 0, k_half = 0;                                          // w, k0
  double sms = 1;
  double product_bytes_per_us = 0, thin_bytes_per_us = 0;
  double vec_bytes_per_us = 0;
  double host_link_bytes_per_us = 0;
  double attention_flops_per_us[6] = {};  // causal, heads of 128, forward, lengths 512 to 16k
  double attention_backward = 1;
};

GpuRates rates_of(const Gpu& gpu);

inline constexpr int64_t kThinProduct = 512;
double thin_product_us(const GpuRates& gpu, int64_t m, int64_t n, int64_t k, int64_t batch,
                       DType dtype, Bytes bytes);
double product_us(const GpuRates& gpu, int64_t m, int64_t n, int64_t k, int64_t batch, DType dtype,
                  Bytes bytes);
// length: keys a query sees at most; head_dim of one head.
double attention_us(const GpuRates& gpu, double flops, int64_t length, int64_t head_dim,
                    bool backward);
double memory_bound_us(const GpuRates& gpu, KernelClass kernel, Bytes bytes);
double ring_us(WorkKind kind, const Link& link, int64_t ranks, Bytes bytes);

// The link that a ring over `ranks` GPUs, `stride` apart, is bound by.
Link link_of(const Cluster& cluster, int64_t ranks, int64_t stride);

CostTable roofline_costs(const Cluster& cluster, const Schedule& schedule);

}  // namespace shardsim
