// Published measurements against predictions: each row of a table that can be expressed is simulated,
// each other has its reason.
// Worked example: ttG-001, measured 1.4615 s, predicted 1.53 s: error +4.7 %.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/study/measured_row.h"
#include "sim/study/measured_scenario.h"

namespace shardsim {

struct ValidatedRow {
  MeasuredRow row;
  std::string group;
  std::string left_out;
  std::vector<std::string> assumed;
  double measured_s = 0, predicted_s = 0;  // a step
  double error_pct() const { return (predicted_s / measured_s - 1) * 100; }
};

struct ValidateOptions {
  int threads = 1;
  std::function<bool()> stop;  // asked between rows
};

std::vector<ValidatedRow> validate_training(const CsvTable& table, const ValidateOptions& options);

}  // namespace shardsim
