#include "sim/study/calibrate_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <set>

#include "sim/base/error.h"
#include "sim/cluster/catalogue.h"
#include "sim/study/validate.h"

namespace shardsim {
namespace {

bool is_fitted(const ValidatedRow& row) {
  return row.left_out.empty() && row.part.role == RowRole::fit && row.fitted_s;
}

}  // namespace

CalibrationFile calibrate_steps(const CsvTable& table, const CalibrateOptions& options,
                                const ValidationSplit& split) {
  const Validation v = validate_training(table, split, {.leave_one_out = false});
  std::set<std::string> gpus;
  std::map<std::string, std::vector<double>> errors;  // of the GPU's rows, by group
  std::string reason;
  int64_t rows = 0;
  for (const ValidatedRow& row : v.rows) {
    if (!row.left_out.empty()) reason = fmt::format("line {}: {}", row.row.line, row.left_out);
    if (!is_fitted(row) || (!options.gpu.empty() && row.gpu != options.gpu)) continue;
    gpus.insert(row.gpu);
    errors[row.group].push_back(row.fitted_pct());
    ++rows;
  }
  if (gpus.empty())
    throw Error(options.gpu.empty() ? "no row of the table can be fitted"
                                    : fmt::format("no row of {} can be fitted", options.gpu),
                {table.file}, reason);
  if (gpus.size() > 1)
    throw Error(
        fmt::format("the table has rows of {} GPUs: {}", gpus.size(), fmt::join(gpus, ", ")),
        {table.file}, "name one of them with --gpu");
  if (rows < 2)
    throw Error("only one row can be fitted: constants need two and more", {table.file}, reason);
  CalibrationFile file;
  file.gpu = *gpus.begin();
  const CalibrationFile* shipped = calibration_for(file.gpu);
  const Calibration prior = calibration_of(find_gpu(file.gpu).value());
  Calibration c = shipped != nullptr ? *shipped->sustained : prior;
  if (shipped != nullptr) file.from = shipped->from;
  for (const FittedConstant& f : v.constants) {
    if (!f.constant.gpu.empty() && f.constant.gpu != file.gpu) continue;
    for (const ConstantInfo& info : calibration_constants()) {
      if (info.name != f.constant.name || f.prior <= 0) continue;
      if (four_digits(f.value) == four_digits(f.prior)) continue;  // no row says anything about it
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
