#include "sim/study/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "sim/base/error.h"
#include "sim/config/scenario.h"
#include "sim/cost/assumptions.h"
#include "sim/study/parallel.h"
#include "sim/study/step_model.h"

namespace shardsim {
namespace {

void predict(const MeasuredRow& row, const ValidationSplit& split, bool keep, ValidatedRow& out,
             std::unique_ptr<StepModel>& kept) {
  out.row = row;
  out.group = row.group();
  out.part = split.part_of(row);
  const ExpressedRow e = express(row);
  out.left_out = e.left_out;
  out.assumed = e.assumed;
  out.yaml = e.yaml;
  if (!out.left_out.empty()) return;
  try {
    const Scenario scenario = parse_scenario(e.yaml, row.id);
    const Training& t = scenario.training;
    out.gpu = scenario.cluster.gpu.name;
    out.unit =
        fmt::format("{}, {}{}", out.group, out.gpu, row.compile == "true" ? ", compiled" : "");
    out.tokens = step_tokens(t, e.last_micro_batch);
    out.measured_s = row.seconds(out.tokens);
    auto model = std::make_unique<StepModel>(scenario, e.last_micro_batch);
    out.predicted_s = model->seconds(own_calibration(scenario));
    out.memory_used = model->memory_used();
    const std::vector<std::string> open = assumptions(scenario);
    out.assumed.insert(out.assumed.end(), open.begin(), open.end());
    const RowRole role = out.part.role;
    if (keep && role != RowRole::apart && role != RowRole::unlisted) kept = std::move(model);
  } catch (const Error& problem) {
    out.left_out = problem.what();
  }
}

// Rows of the same unit but this one: those of role fit, where there are any; contradictory ones
// calibrate nothing.
void after_calibration(std::vector<ValidatedRow>& rows) {
  std::map<std::string, std::vector<size_t>> units;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].left_out.empty()) units[rows[i].unit].push_back(i);
  const auto log_ratio = [&](size_t i) {
    const ValidatedRow& r = rows[i];
    return std::log(r.held_s.value_or(r.best_s()) / r.measured_s);
  };
  for (const auto& [unit, members] : units)
    for (size_t i : members) {
      std::vector<size_t> others, fitted;
      for (size_t k : members) {
        if (k == i || rows[k].part.role == RowRole::contradictory) continue;
        others.push_back(k);
        if (rows[k].part.role == RowRole::fit) fitted.push_back(k);
      }
      if (!fitted.empty()) others = fitted;
      if (others.empty()) continue;
      double sum = 0, with_sign = 0, absolute = 0;
      for (size_t k : others) {
        sum += log_ratio(k);
        const double off = (std::exp(log_ratio(i) - log_ratio(k)) - 1) * 100;
        with_sign += off;
        absolute += std::abs(off);
      }
      const auto n = static_cast<double>(others.size());
      rows[i].one_step_pct = with_sign / n;
      rows[i].one_step_abs_pct = absolute / n;
      rows[i].other_rows_pct = (std::exp(log_ratio(i) - sum / n) - 1) * 100;
    }
}

// torchtitan was called torchtrain until 2024-04; a source writes its runs both ways.
std::string framework_of(const MeasuredRow& r) {
  constexpr std::string_view kOldName = " (torchtrain)";
  std::string name = r.framework;
  if (const size_t at = name.find(kOldName); at != std::string::npos)
    name.erase(at, kOldName.size());
  return name;
}

// The one column in which two rows of a source differ, or nothing.
std::string difference(const MeasuredRow& a, const MeasuredRow& b) {
  std::string what;
  int count = 0;
  const auto differs = [&](bool d, std::string_view name) {
    if (!d) return;
    ++count;
    what = name;
  };
  differs(a.gpus != b.gpus, "n_gpus");
  differs(framework_of(a) != framework_of(b), "framework");
  differs(a.compile != b.compile, "compile");
  differs(a.micro_batch != b.micro_batch, "micro_batch");
  differs(a.checkpointing != b.checkpointing, "act_ckpt");
  differs(a.strategy != b.strategy || a.reshard != b.reshard, "reshard_after_forward");
  differs(a.grad_accum != b.grad_accum, "grad_accum");
  differs(a.seq_len != b.seq_len, "seq_len");
  differs(a.model != b.model || a.gpu != b.gpu || a.interconnect != b.interconnect ||
              a.param_dtype != b.param_dtype || a.reduce_dtype != b.reduce_dtype ||
              a.compute_dtype != b.compute_dtype,
          "");
  // Other runs of the same program at another date are no comparison of configurations.
  if (a.date.substr(0, 7) != b.date.substr(0, 7)) return "";
  return count == 1 ? what : "";
}

std::vector<PairRow> pairs_of(const std::vector<ValidatedRow>& rows) {
  std::vector<PairRow> out;
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t k = i + 1; k < rows.size(); ++k) {
      const ValidatedRow &a = rows[i], &b = rows[k];
      if (!a.left_out.empty() || !b.left_out.empty() || a.group != b.group) continue;
      const auto whole = [](RowRole r) { return r == RowRole::fit || r == RowRole::test; };
      if (!whole(a.part.role) || !whole(b.part.role)) continue;
      const std::string what = difference(a.row, b.row);
      if (what.empty()) continue;
      const auto rate = [](const ValidatedRow& r, double s) { return r.tokens / s; };
      const double measured = rate(b, b.measured_s) / rate(a, a.measured_s) - 1;
      const double predicted = rate(b, b.best_s()) / rate(a, a.best_s()) - 1;
      out.push_back({i, k, what, measured * 100, predicted * 100});
    }
  return out;
}

// Fits, then every source's rows by constants that never saw it.
void experiments(const ValidationSplit& split, const ValidateOptions& with, int threads,
                 const std::vector<std::unique_ptr<StepModel>>& models, Validation& v) {
  std::vector<size_t> index;  // of v.rows
  std::vector<FitRow> rows;
  std::set<std::string> gpus, sources;
  std::vector<bool> use;
  for (size_t i = 0; i < v.rows.size(); ++i) {
    const ValidatedRow& r = v.rows[i];
    if (!models[i]) continue;
    index.push_back(i);
    rows.push_back({models[i].get(), r.measured_s, r.group, r.gpu, split.fits_unlisted()});
    const bool fitted = r.part.role == RowRole::fit;
    use.push_back(fitted);
    if (!fitted) continue;
    gpus.insert(r.gpu);
    sources.insert(r.group);
  }
  if (std::none_of(use.begin(), use.end(), [](bool u) { return u; })) return;
  const std::vector<FitConstant> constants = split.constants({gpus.begin(), gpus.end()});
  FitOptions options = split.noise();
  options.threads = threads;
  const Fitted fitted = fit(rows, constants, use, options);
  for (size_t k = 0; k < constants.size(); ++k) {
    FittedConstant c{constants[k], 0, 0, fitted.standard_error[k] * 100};
    for (const FitRow& r : rows)
      if (constants[k].gpu.empty() || constants[k].gpu == r.gpu) {
        const Calibration prior = prior_of(r);
        for (const ConstantInfo& info : calibration_constants())
          if (info.name == constants[k].name) {
            c.prior = prior.*info.member;
            c.value = at_point(prior, r.gpu, constants, fitted.point).*info.member;
          }
        break;
      }
    v.constants.push_back(std::move(c));
  }
  parallel_for(rows.size(), threads, [&](size_t r) {
    v.rows[index[r]].fitted_s = predicted_s(rows[r], constants, fitted.point);
  });
  if (!with.leave_one_out) return;
  // Without one source the constants move: from the common fit, and then once more from where that led.
  const Linearized near(rows, constants, fitted.point, threads);
  for (const std::string& source : sources) {
    std::vector<bool> others = use;
    for (size_t r = 0; r < rows.size(); ++r)
      if (rows[r].source == source) others[r] = false;
    const Linearized there(rows, constants, near.solve(rows, constants, others, options), threads,
                           &others);
    const FitPoint point = there.solve(rows, constants, others, options);
    parallel_for(rows.size(), threads, [&](size_t r) {
      if (rows[r].source == source)
        v.rows[index[r]].held_s = predicted_s(rows[r], constants, point);
    });
  }
}

}  // namespace

Validation validate_training(const CsvTable& table, const ValidationSplit& split,
                             const ValidateOptions& options) {
  const int threads = threads_or_all(options.threads);
  const SourceFactors factors = SourceFactors::shipped();
  const std::vector<MeasuredRow> rows = measured_rows(table);
  Validation v;
  v.rows.resize(rows.size());
  std::vector<std::unique_ptr<StepModel>> models(rows.size());
  parallel_for(rows.size(), threads,
               [&](size_t i) { predict(rows[i], split, options.fit, v.rows[i], models[i]); });
  for (ValidatedRow& r : v.rows)
    if (r.left_out.empty())
      if (const SourceFactor* f = factors.find(r.unit)) r.calibrated_s = r.predicted_s / f->factor;
  if (options.fit) experiments(split, options, threads, models, v);
  after_calibration(v.rows);
  v.pairs = pairs_of(v.rows);
  return v;
}

SourceFactors learn_factors(const Validation& v, const ValidationSplit& split) {
  std::map<std::string, std::vector<double>> units;
  for (const ValidatedRow& r : v.rows)
    if (r.left_out.empty() && r.part.role != RowRole::contradictory &&
        r.part.role != RowRole::unlisted)
      units[r.unit].push_back(std::log(r.predicted_s / r.measured_s));
  SourceFactors out;
  for (auto& [unit, ratios] : units) out.learn(unit, std::move(ratios), split.noise());
  return out;
}

}  // namespace shardsim
