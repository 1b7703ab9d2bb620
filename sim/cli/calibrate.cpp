// `shardsim calibrate`: constants from tables of measurements.
#include <fmt/format.h>

#include <ctime>
#include <memory>

#include "sim/base/error.h"
#include "sim/base/spelling.h"
#include "sim/cli/command.h"
#include "sim/cluster/catalogue.h"
#include "sim/study/calibrate.h"
#include "sim/study/calibrate_links.h"

namespace shardsim {
namespace {

struct CalibrateCommand {
  std::string table, split, gpu, system, name, date, output;
};

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  localtime_r(&now, &day);
  char text[16];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d", &day));
}

CalibrationFile calibrated(const CsvTable& table, const CalibrateOptions& options,
                           const std::string& system) {
  if (is_kernel_table(table)) {
    if (!system.empty()) throw Error("--system: a table of kernels has no systems", {table.file});
    return calibrate_kernels(table, options);
  }
  if (is_nccl_table(table)) {
    for (const auto& [option, given] : {std::pair{"--gpu", !options.gpu.empty()},
                                        std::pair{"--split", options.split.has_value()}})
      if (given) throw Error(fmt::format("{}: links are of a system", option), {table.file});
    CalibrationFile file = fit_links(table, system);
    file.date = options.date;
    if (!options.name.empty()) file.name = options.name;
    return file;
  }
  throw Error("no constants can be fitted on a table of this kind", {table.file, 1, 0},
              "kernels have the columns kind, gpu, dtype, M, N, K, shape, time_us; nccl-tests "
              "gpu, system, nodes, gpus, collective, bytes, time_us");
}

int calibrate(const CalibrateCommand& command, const Context& context) {
  refuse_overwrite("-o", command.output, command.table);
  CalibrateOptions options;
  options.date = command.date.empty() ? today() : command.date;
  if (!is_date(options.date))
    throw Error(fmt::format("--date: expected a day as 2026-11-30, got '{}'", options.date));
  options.gpu = command.gpu;
  if (!command.gpu.empty() && !find_gpu(command.gpu)) {
    std::vector<std::string_view> names;
    for (const GpuEntry& entry : gpu_catalogue()) names.push_back(entry.name);
    throw Error(fmt::format("--gpu: there is no GPU '{}'", command.gpu), {},
                spelling_hint(command.gpu, names, "GPUs"));
  }
  options.name = command.name;
  if (!command.split.empty()) options.split = load_kernel_split(command.split);
  const CsvTable table = load_csv(command.table);
  const CalibrationFile file = calibrated(table, options, command.system);
  const std::string text = calibration_yaml(file);
  if (command.output.empty())
    write_output(context, text);
  else
    write_file(context, command.output, text);
  return kOk;
}

}  // namespace

void add_calibrate(CLI::App& app, Context& context) {
  auto options = std::make_shared<CalibrateCommand>();
  CLI::App* command = app.add_subcommand(
      "calibrate", "Fits constants of a GPU or of links to a table of measurements");
  command->add_option("table", options->table, "A table (CSV): kernels or nccl-tests")->required();
  command->add_option("--gpu", options->gpu, "The GPU whose rows are used (default: the only one)");
  command->add_option("--system", options->system,
                      "The system whose rows of nccl-tests are used (default: the only one)");
  command->add_option("--split", options->split, "Which sources are fitted (YAML; default: all)")
      ->type_name("FILE");
  command->add_option("--name", options->name, "Name of the calibration");
  command->add_option("--date", options->date, "Its day, 2026-11-30 (default: today)");
  command->add_option("-o,--output", options->output, "Write the calibration to this file")
      ->type_name("FILE");
  command->footer(
      "Examples:\n"
      "  shardsim calibrate kernels.csv --gpu h100-sxm5-80gb -o h100-kernel.yaml\n"
      "  shardsim calibrate nccl_tests.csv --system 'AWS p5.48xlarge' -o links.yaml");
  command->callback([options, &context] {
    context.run = [options, &context] { return calibrate(*options, context); };
  });
}

}  // namespace shardsim
