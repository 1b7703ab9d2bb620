// Tables of kernel benchmarks: the columns kind, gpu, dtype, M, N, K, shape, time_us, tflops, gbytes_s,
// source, note. A row says what ran in one of three ways:
//   gemm                  M, N, K
//   attn_fwd, attn_bwd    shape "B=2;H=16;S=8192;D=128;causal=1", the implementation in the note
//   membound              shape "RMSNorm 4096x8192"
// and how long it took: time_us, or tflops where the shape gives the FLOPs.
// A row that cannot be said has the reason in left_out; a field that no table could hold (NaN, text for
// a number, a size of 0) is an Error at its line.
// Worked example: `gemm,H100-80GB-SXM,fp16/bf16,16,57344,8192,...,306` is a product of 16 x 57344 x
// 8192 in bf16 on the catalogue's h100-sxm5-80gb that took 306 us.
#pragma once

#include <string>
#include <vector>

#include "sim/config/csv.h"
#include "sim/cost/single_kernel.h"

namespace shardsim {

struct KernelRow {
  int line = 0;
  std::string kind, gpu_text, shape;  // as they stand; shape: MxNxK for a product
  std::string gpu;                    // of the catalogue
  std::string assumed;                // empty: all was stated
  std::string left_out;
  SingleKernel kernel;
  double time_us = 0;  // measured
  std::string source;
};

// Whether the header is that of such a table.
bool is_kernel_table(const CsvTable& table);
std::vector<KernelRow> kernel_rows(const CsvTable& table);

}  // namespace shardsim
