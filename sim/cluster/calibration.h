// The constants of one type of GPU that turn FLOPs and bytes into time: plain numbers with names, so
// that `calibrate` can fit them, a file can hold them and a report can show them. They are
// "sustained" ones, of kernels inside a training step: on a 700 W H100 those are 14-25 % slower than
// single kernels on a cool GPU, and the two are never to be mixed.
//
// calibration_of(gpu) gives what is known of a generation before any fit, by compute capability
// (spec/cost-model.md D; the source of each constant stands at its field). sim/config/calibration.h
// reads files, the shipped ones among them.
// Worked number: calibration_of(*find_gpu("h100-sxm5-80gb")).gemm_efficiency is 0.691.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sim/cluster/cluster.h"

namespace shardsim {

inline constexpr int kAttentionLengths = 6;  // 512, 1k, 2k, 4k, 8k, 16k

struct Calibration {
  std::string name;  // of the file, or of the generation

  // Products: t = max(2 m n k b (1 + (q-1) w) / (P ec k/(k+k0)), bytes / (M W)) + fixed.
  double gemm_efficiency = .691;      // ec, of the dense peak P
  double gemm_wave_weight = .75;      // w, of the tail of the last wave
  double gemm_k_half = 128;           // k0: elements of k at which half the rate is reached
  double gemm_memory_fraction = .80;  // M, of the memory rate W
  double gemm_fixed_us = 3.0;
  double gemm_unaligned = .70;  // of the rate, where rows are no multiple of 16 bytes
  // Thin ones (m or n below 512): max(2 m n k b / (P ek), bytes / (W em)) + fixed; 3,104 points of
  // microsoft/vidur a GPU.
  double thin_gemm_efficiency = .70;
  double thin_gemm_memory_fraction = .80;
  double thin_gemm_fixed_us = 4.0;

  // Of the rate, with software of 2022 (torch 1.12, 1.13) and 2023 (2.0, 2.1).
  double gemm_2022 = .90;  // 5-10 % lower: MosaicML llm-foundry's rows of those years
  double gemm_2023 = .97;

  // Attention: FLOPs / rate + fixed; TFLOPS by length, FlashAttention-2, causal, heads of 128.
  std::array<double, kAttentionLengths> attention_tflops{220, 260, 298, 318, 328, 335};
  double attention_scale = 1.03;      // fitted on step times
  double attention_backward = .78;    // of the forward's rate
  double attention_small_head = .82;  // heads of 64 and less
  double attention_fixed_us = 3.0;
  // Other implementations' rate against FlashAttention-2's.
  double attention_fa3 = 1.75;      // 646 against 370 TFLOPS at 8k, H100
  double attention_cudnn = 1.8;     // one step time of torchtitan, then two others tried
  double attention_triton = .59;    // llm-foundry's Triton flash attention of 2023
  double attention_efficient = .6;  // assumed; all of fp32 runs it
  double attention_backend = 1;     // of the implementation that runs: no constant of a file

  // Memory-bound kernels: max(floor, bytes / (W vec fraction) + fixed), fractions of vec.
  double vec = .82;  // of the memory rate
  double strided = .40;
  double reduction = .90;
  double softmax = .85;
  double foreach_copy = .92;  // multi-tensor optimizers, copy-in, copy-out, chunk_cat, cat
  double fused = .75;         // Inductor's kernels: 1/1.33, fitted on 13 rows
  double kernel_fixed_us = 1.5;
  double kernel_floor_us = 2.5;

  // Copies from and to the host: fixed + bytes / (fraction of the link's line rate); 25 of 31.5 GB/s
  // measured.
  double copy_fixed_us = 2.0;
  double host_link_fraction = .80;

  // Of collectives between what NCCL chooses and what is measured (sim/cost/nccl_measured.h).
  double collective_latency = 1;
  double collective_bandwidth = 1;

  // SMs that each thread block of a collective costs products and attention; 0, 1, 1.5 and 2 leave
  // 7.0, 6.6, 6.4 and 6.3 % on 63 step times.
  double sm_steal = 2;

  // The host, in eager PyTorch (sim/cost/host.h). A launch and an operator call, views and autograd
  // included; a gather or scatter with the hooks, records and waits of its wrapper: solved from two
  // MiniTrainBench rows (FSDP1, 8 A100).
  double host_launch_us = 6;
  double host_operator_us = 14.6;
  double host_collective_us = 466;
  // Operator calls of a product, all others one: 3.27 a launch on average over its 6-layer model.
  double host_product_operators = 8.6;
  double host_fused_operators = .5;  // of an Inductor kernel's launch (assumed)
  double host_parameter_operators =
      4;  // of each parameter of a gather; the same source's FSDP1 rows
  // What recomputation makes of an operator call (saved tensors' hooks, random number generators'
  // states): the same source's rows with and without it differ by 1.5 to 3 ms a block.
  double host_recompute = 3;
  double host_reduction_us =
      60;                      // a collective that no wrapper's hooks surround, as DDP's (assumed)
  double host_malloc_us = 45;  // assumed
  double host_call_us = 1;     // a record, wait or synchronization (assumed)

  // Its own work on tensors, of offloaded optimizers (sim/cost/host_work.h). What a thread reads and
  // writes of elements in cache or not, whatever their type: PyTorch 2.15 on one core of a Xeon of
  // 2023 (AVX-512): AdamW's loop 4.28 ns an element in fp32 and in bf16, for 21; SGD .69 for 3; a
  // product .41 for 2.
  double host_accesses_per_ns = 4.9;
  // Of the line rate of a node's memory: CPU-Adam on a DGX-2, 1e9 to 1e10 parameters in .22, .51, 1.03,
  // 2.41, 2.57 s (ZeRO-Offload, arXiv 2101.06840, from memory) is .36 to .50 of its 256 GB/s; a fused
  // AdamW step of Llama-3.1-405B in bf16 on 8 nodes of 8 H100 in 4 s (LambdaLabs' guide) .33 of 614.
  double host_memory_fraction = .40;
  // New pages, which the kernel clears: of one thread (tensors of 256 MiB in place of 16 in the loop
  // above add 4.7 ns an element, for 8 bytes; a virtual machine), and of a process at most: torch's
  // Adam in the same table of ZeRO-Offload, 1.39 s for 1e9 parameters.
  double host_page_gbps = 1.7;
  double host_page_most_gbps = 15;

  // Ranks beyond 8 on several nodes: what each doubling adds to a step, stragglers and contention
  // together; .045 / 4, set by hand on llm-foundry 8 to 64 and 128 to 512 GPUs.
  double scale_tax = .01125;
};

// A constant's name, and what may stand in a file.
struct ConstantInfo {
  std::string_view name;
  double Calibration::*member;
  double least, most;
  std::string_view meaning;
};
std::span<const ConstantInfo> calibration_constants();

Calibration calibration_of(const Gpu& gpu);

}  // namespace shardsim
