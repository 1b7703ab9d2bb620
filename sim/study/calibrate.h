// What `shardsim calibrate` makes of tables: from benchmarks of kernels a calibration at level kernel,
// from nccl-tests the links of a system (calibrate_links.h), from measured steps one at level sustained
// (calibrate_steps.h).
// Worked example: vidur's Llama-2-7b rows of an A40 become "a40-kernel", its vec .8501 of 696 GB/s.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "sim/config/calibration.h"
#include "sim/config/csv.h"
#include "sim/study/validate_kernels.h"

namespace shardsim {

struct CalibrateOptions {
  std::string gpu;   // of the catalogue; empty: the one that the table's rows have
  std::string name;  // empty: of what was fitted
  std::string date;
  std::optional<KernelSplit> split;
};

// The GPU of the rows that are left. Error where there is none, for `reason`, or where there are several.
std::string only_gpu(const CsvTable& table, const std::set<std::string>& gpus,
                     const CalibrateOptions& options, const std::string& reason);

// Error where the table has no rows that can be used, a single one, or rows of several GPUs and none
// was named.
CalibrationFile calibrate_kernels(const CsvTable& table, const CalibrateOptions& options);

}  // namespace shardsim
