#include "sim/study/validate.h"

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/config/scenario.h"
#include "sim/cost/assumptions.h"
#include "sim/study/parallel.h"
#include "sim/study/step_model.h"

namespace shardsim {
namespace {

// A ragged last micro-batch: so much of the way from a step without it to one with it.
double predicted_seconds(const Scenario& scenario, double last) {
  StepModel full(scenario);
  const Calibration constants =
      scenario.cost.calibration.value_or(calibration_of(scenario.cluster.gpu));
  const double whole = full.seconds(constants);
  if (last >= 1 || scenario.training.grad_accum < 2) return whole;
  Scenario fewer = scenario;
  --fewer.training.grad_accum;
  StepModel without(std::move(fewer));
  const double less = without.seconds(constants);
  return less + last * (whole - less);
}

void validate(const MeasuredRow& row, ValidatedRow& out) {
  out.row = row;
  out.group = row.group();
  const ExpressedRow e = express(row);
  out.left_out = e.left_out;
  out.assumed = e.assumed;
  if (!out.left_out.empty()) return;
  try {
    const Scenario scenario = parse_scenario(e.yaml, row.id);
    const double sequences =
        static_cast<double>(scenario.training.micro_batch) *
        (static_cast<double>(scenario.training.grad_accum - 1) + e.last_micro_batch);
    const double tokens = sequences * static_cast<double>(scenario.training.seq_len);
    out.measured_s = row.tokens_per_s ? tokens / *row.tokens_per_s : *row.step_s;
    out.predicted_s = predicted_seconds(scenario, e.last_micro_batch);
    const std::vector<std::string> open = assumptions(scenario);
    out.assumed.insert(out.assumed.end(), open.begin(), open.end());
  } catch (const Error& problem) {
    out.left_out = problem.what();
  }
}

}  // namespace

std::vector<ValidatedRow> validate_training(const CsvTable& table, const ValidateOptions& options) {
  const std::vector<MeasuredRow> rows = measured_rows(table);
  std::vector<ValidatedRow> out(rows.size());
  parallel_for(rows.size(), threads_or_all(options.threads),
               [&](size_t i) { validate(rows[i], out[i]); });
  return out;
}

}  // namespace shardsim
