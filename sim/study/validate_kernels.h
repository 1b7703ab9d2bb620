// Benchmarks of single kernels against predictions. A row is predicted with the shipped calibration of
// its GPU at level kernel (scenarios/calibrations/*-kernel.yaml), or, where there is none, with one of
// the same generation, attention by the ratio of peaks. It counts as fitted if its source is among
// the data of that calibration, otherwise as kept apart. analysis/validation/kernels-split.yaml says
// which sources calibrations are fitted on.
// Worked example: vidur's 16 x 57344 x 8192 on an H100, measured 306 us, is of Llama-2-70b and so
// kept apart.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/config/calibration.h"
#include "sim/study/kernel_table.h"

namespace shardsim {

struct ValidatedKernel {
  KernelRow row;  // left_out says why there is no prediction
  std::string calibration;
  bool fitted = false;
  bool contradicts = false;  // faster than the best rate published for the GPU
  double predicted_us = 0;
  double error_pct() const { return (predicted_us / row.time_us - 1) * 100; }
};

std::vector<ValidatedKernel> validate_kernels(const CsvTable& table);

// The sources that calibrations are fitted on, and the best published rate of products by GPU.
struct KernelSplit {
  std::vector<std::string> fitted;
  std::map<std::string, double, std::less<>> best_tflops;
  bool holds(std::string_view source) const;
};
KernelSplit load_kernel_split(const std::string& path);

}  // namespace shardsim
