// Published measurements against predictions. Each row of a table that can be expressed is simulated,
// each other has its reason; where the table has rows that the split fits, what the model is worth is
// measured too:
//   shipped      with the shipped constants
//   calibrated   the same times the factor of the row's source, where one is known
//   fitted       with constants fitted on the rows of role fit
//   left_out     a source predicted by constants that were fitted without it, structural ones among
//                them (every constant of the split is fitted again)
//   one_step     the same after one calibrated step: the row's factor taken from each other row of its
//                unit (source, GPU, compiled or not) by itself; of those errors the mean with its sign
//                and the mean of their absolute values
//   other_rows   the same after the unit's other rows: their mean factor; of those of role fit, where the
//                unit has any
//   pair         two rows of a source that differ in one thing: the difference measured and predicted
// Errors are (predicted / measured - 1) of the step time, in percent.
// Worked example: ttG-001 and ttG-003 differ in reshard_after_forward; measured -2.7 %, predicted
// -1.6 %: 1.1 points apart.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/study/measured_row.h"
#include "sim/study/measured_scenario.h"
#include "sim/study/score.h"
#include "sim/study/source_factors.h"
#include "sim/study/validation_split.h"

namespace shardsim {

struct ValidatedRow {
  MeasuredRow row;
  std::string group, unit;
  RowPart part;
  std::string left_out;  // why it was not simulated
  std::string yaml;
  std::vector<std::string> assumed;
  std::string gpu;
  double tokens = 0;                       // of one GPU in a step
  double measured_s = 0, predicted_s = 0;  // shipped
  double memory_used = 0;                  // highest live bytes over the GPU's
  std::optional<double> fitted_s, held_s;  // held: fitted without its source
  std::optional<double> calibrated_s;
  // With another row of its unit as the calibrated step, over all of them: with signs, and absolute.
  std::optional<double> one_step_pct, one_step_abs_pct;
  std::optional<double> other_rows_pct;

  double error_pct() const { return (predicted_s / measured_s - 1) * 100; }
  double calibrated_pct() const { return (*calibrated_s / measured_s - 1) * 100; }
  double fitted_pct() const { return (*fitted_s / measured_s - 1) * 100; }
  double held_pct() const { return (*held_s / measured_s - 1) * 100; }
  // What stands for the model where several do.
  double best_s() const { return fitted_s.value_or(predicted_s); }
};

struct FittedConstant {
  FitConstant constant;
  double prior = 0, value = 0, error_pct = 0;  // one standard error
};

struct PairRow {
  size_t a = 0, b = 0;  // rows
  std::string what;     // the column that differs
  double measured_pct = 0, predicted_pct = 0;
  double points() const { return predicted_pct - measured_pct; }
};

struct Validation {
  std::vector<ValidatedRow> rows;
  std::vector<FittedConstant> constants;  // none: nothing was fitted
  std::vector<PairRow> pairs;
};

struct ValidateOptions {
  int threads = 0;  // all cores
  bool fit = true;
  bool leave_one_out = true;  // where fitted: each source by constants that never saw it
};

Validation validate_training(const CsvTable& table, const ValidationSplit& split,
                             const ValidateOptions& options);

// What the shipped constants leave of each unit's rows.
SourceFactors learn_factors(const Validation& v, const ValidationSplit& split);

std::string validation_json(const Validation& v);
std::string validation_table(const Validation& v, bool verbose);
std::string validation_csv(const Validation& v);

}  // namespace shardsim
