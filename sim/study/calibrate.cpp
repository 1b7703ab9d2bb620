#include "sim/study/calibrate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "sim/base/error.h"
#include "sim/cluster/catalogue.h"
#include "sim/study/calibrate_kernels.h"

namespace shardsim {
namespace {

constexpr size_t kFewestRows = 2;

}  // namespace

std::string only_gpu(const CsvTable& table, const std::set<std::string>& gpus,
                     const CalibrateOptions& options, const std::string& reason) {
  if (gpus.empty())
    throw Error(options.gpu.empty() ? "no row of the table can be fitted"
                                    : fmt::format("no row of {} can be fitted", options.gpu),
                {table.file}, reason);
  if (gpus.size() > 1)
    throw Error(
        fmt::format("the table has rows of {} GPUs: {}", gpus.size(), fmt::join(gpus, ", ")),
        {table.file}, "name one of them with --gpu");
  return *gpus.begin();
}

CalibrationFile calibrate_kernels(const CsvTable& table, const CalibrateOptions& options) {
  std::vector<KernelRow> rows;
  std::set<std::string> gpus;
  std::string reason;  // of the last row left out
  for (KernelRow& row : kernel_rows(table)) {
    if (row.left_out.empty() && options.split && !options.split->holds(row.source))
      row.left_out = "its source is kept apart by the split";
    if (!options.gpu.empty() && row.gpu != options.gpu) continue;
    if (!row.left_out.empty()) {
      reason = fmt::format("{}:{}: {}", table.file, row.line, row.left_out);
      continue;
    }
    gpus.insert(row.gpu);
    rows.push_back(std::move(row));
  }
  const Gpu gpu = find_gpu(only_gpu(table, gpus, options, reason)).value();
  if (rows.size() < kFewestRows)
    throw Error("only one row can be used: constants need two and more",
                {table.file, rows[0].line, 0}, reason);
  KernelCalibration prior;
  if (options.split) {
    const auto best = options.split->best_tflops.find(gpu.name);
    if (best != options.split->best_tflops.end()) prior.gemm_best_tflops = best->second;
  }
  CalibrationFile file = fit_kernels(gpu, prior, rows);
  file.name = options.name.empty() ? gpu.name + "-kernel" : options.name;
  file.kernel->name = file.name;
  file.date = options.date;
  for (const KernelConstantInfo& info : kernel_constants())
    if (!file.from.contains(info.name)) file.from[std::string(info.name)] = "assumed";
  if (prior.gemm_best_tflops > 0) file.from["gemm_best_tflops"] = "the split file";
  return file;
}

}  // namespace shardsim
