// Fits a GPU's constants of single kernels to a table of benchmarks: products, memory-bound kernels,
// and each implementation and pass of attention, each group by itself. Least of
//   sum over rows of sqrt(1 + (ln(predicted / measured) / .02)^2) - 1
//   + sum over constants of (ln(value / prior) / spread)^2 / 2
// .02 being what repeated rows of one shape differ by; the root lets a wild row pull no harder than
// a near one. Rows above gemm_best_tflops are no part of it: they contradict what the chip can do.
// Values are rounded to four digits, as a file has them.
// Worked number: three RMSNorm rows that all run at .32 of a memory rate end within 1 % of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/cluster/cluster.h"
#include "sim/config/calibration.h"
#include "sim/study/kernel_table.h"

namespace shardsim {

// Of a product in 16 bits.
bool beyond_best(const KernelCalibration& constants, const KernelRow& row);

// `rows` are usable ones of `gpu`; prior holds what is not fitted and where the fit starts. data and
// from of the result say what was done.
CalibrationFile fit_kernels(const Gpu& gpu, const KernelCalibration& prior,
                            std::span<const KernelRow> rows);

}  // namespace shardsim
