#include "sim/study/calibrate_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "sim/base/error.h"
#include "sim/cluster/catalogue.h"
#include "sim/study/validate.h"

namespace shardsim {
namespace {

constexpr double kAsBefore = .95;  // of the prior's spread, which is then all that is left

bool is_fitted(const ValidatedRow& row) {
  return row.left_out.empty() && row.part.role == RowRole::fit && row.fitted_s;
}

ValidationSplit split_of(const CsvTable& table, const std::optional<ValidationSplit>& given) {
  if (given) return *given;
  ValidationSplit split = ValidationSplit::shipped();
  const std::vector<MeasuredRow> rows = measured_rows(table);
  if (std::none_of(rows.begin(), rows.end(), [&](const MeasuredRow& row) {
        return split.part_of(row).role != RowRole::unlisted;
      }))
    split.fit_unlisted();
  return split;
}

// Why nothing was fitted, and what to do.
std::string hint_of(const Validation& v) {
  std::set<std::string> others;  // sources that were simulated
  for (const ValidatedRow& row : v.rows)
    if (row.left_out.empty())
      others.insert(fmt::format("{} ({})", row.group, name_of(row.part.role)));
  if (!others.empty())
    return fmt::format(
        "only sources of role fit are: it has {}; give a --split FILE that lists "
        "them, {{group: NAME, role: fit}}",
        fmt::join(others, ", "));
  for (const ValidatedRow& row : v.rows)
    if (!row.left_out.empty()) return fmt::format("line {}: {}", row.row.line, row.left_out);
  return "it has no rows";
}

// The rows say no more than was known before them.
bool hardly_fitted(const FittedConstant& f) {
  return four_digits(f.value) == four_digits(f.prior) ||
         f.error_pct >= kAsBefore * 100 * f.constant.sigma;
}

}  // namespace

CalibrationFile calibrate_steps(const CsvTable& table, const CalibrateOptions& options,
                                const std::optional<ValidationSplit>& split) {
  const ValidationSplit used = split_of(table, split);
  const Validation v = validate_training(table, used, {.leave_one_out = false});
  std::set<std::string> gpus;
  std::map<std::string, std::vector<double>> errors;  // of the GPU's rows, by group
  int64_t rows = 0;
  for (const ValidatedRow& row : v.rows) {
    if (!is_fitted(row) || (!options.gpu.empty() && row.gpu != options.gpu)) continue;
    gpus.insert(row.gpu);
    errors[row.group].push_back(row.fitted_pct());
    ++rows;
  }
  const std::string gpu = only_gpu(table, gpus, options, gpus.empty() ? hint_of(v) : "");
  if (rows < 2)
    throw Error("only one row can be fitted: constants need two and more", {table.file},
                hint_of(v));
  CalibrationFile file;
  file.gpu = gpu;
  const CalibrationFile* shipped = calibration_for(file.gpu);
  const Calibration before = calibration_of(find_gpu(file.gpu).value());
  Calibration c = shipped != nullptr ? *shipped->sustained : before;
  const Calibration prior = used.fits_unlisted() ? c : before;
  if (shipped != nullptr)
    for (const auto& [name, from] : shipped->from)
      file.from[name] = fmt::format("shipped {}: {}", shipped->name, from);
  for (const FittedConstant& f : v.constants) {
    if (!f.constant.gpu.empty() && f.constant.gpu != file.gpu) continue;
    for (const ConstantInfo& info : calibration_constants()) {
      if (info.name != f.constant.name || f.prior <= 0) continue;
      if (hardly_fitted(f)) continue;
      c.*info.member = four_digits(prior.*info.member * f.value / f.prior);
      file.from[f.constant.name] =
          fmt::format("fitted on {} measured steps, within {:.1f} %", rows, f.error_pct);
    }
  }
  for (auto& [group, of] : errors)
    file.data.push_back({fmt::format("{}: {}", table.file, group), static_cast<int64_t>(of.size()),
                         four_digits(score(of).median_abs_pct)});
  file.name = options.name.empty() ? file.gpu : options.name;
  c.name = file.name;
  file.date = options.date;
  file.sustained = std::move(c);
  return file;
}

}  // namespace shardsim
