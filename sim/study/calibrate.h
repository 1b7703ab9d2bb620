// What `shardsim calibrate` makes of tables: from benchmarks of kernels a calibration at level kernel,
// from nccl-tests the links of a system. (Constants in a training step are fitted on step times: that is
// sim/study/fit.h, by way of `calibrate` on a table of measured steps.)
// Worked example: two rows of an 8-rank all-gather that follow 7 x 5 us + 7/8 S / 354 GB/s give back
// alpha 5 and bus 354.
#pragma once

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

// Error where the table has no rows that can be used, a single one, or rows of several GPUs and none
// was named.
CalibrationFile calibrate_kernels(const CsvTable& table, const CalibrateOptions& options);

}  // namespace shardsim
