// A GPU's constants in a training step from measured steps: those of the split's rows of role fit, by
// sim/study/fit.h as `validate` fits them (other GPUs' rows say what the constants that all share
// are). What is not fitted is the shipped calibration's, or the generation's.
// Without a split of the user's the shipped one holds; a table of which it names no row is fitted whole,
// starting from the shipped calibration.
// Worked example: of the published table and h100-sxm5-80gb it takes the rows of every GPU, and its
// data are the H100's groups with their median errors.
#pragma once

#include <optional>

#include "sim/study/calibrate.h"
#include "sim/study/validation_split.h"

namespace shardsim {

// Error where no row of the GPU is fitted, a single one, or rows of several GPUs and none was named.
CalibrationFile calibrate_steps(const CsvTable& table, const CalibrateOptions& options,
                                const std::optional<ValidationSplit>& split);

}  // namespace shardsim
