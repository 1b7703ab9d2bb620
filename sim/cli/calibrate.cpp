// `shardsim calibrate`: constants from tables of measurements.
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <memory>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/spelling.h"
#include "sim/cli/command.h"
#include "sim/cluster/catalogue.h"
#include "sim/config/scenario.h"
#include "sim/study/calibrate.h"
#include "sim/study/calibrate_links.h"
#include "sim/study/calibrate_ops.h"
#include "sim/study/calibrate_steps.h"
#include "sim/study/measured_row.h"
#include "sim/study/nccl_output.h"
#include "sim/study/published_gpu.h"
#include "sim/study/read_op_log.h"
#include "sim/study/validate_collectives.h"

namespace shardsim {
namespace {

struct CalibrateCommand {
  std::string table, from, split, gpu, system, name, date;
};

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  localtime_r(&now, &day);
  char text[16];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d", &day));
}

CalibrationFile calibrated(const CsvTable& table, const CalibrateCommand& command,
                           CalibrateOptions options) {
  const auto refuse = [&](const char* option, const std::string& given, const char* why) {
    if (!given.empty()) throw Error(fmt::format("{}: {}", option, why), {table.file});
  };
  if (is_kernel_table(table)) {
    refuse("--system", command.system, "a table of kernels has no systems");
    if (!command.split.empty()) options.split = load_kernel_split(command.split);
    return calibrate_kernels(table, options);
  }
  if (is_training_table(table)) {
    refuse("--system", command.system, "constants are of a GPU");
    std::optional<ValidationSplit> split;
    if (!command.split.empty()) split = ValidationSplit::load(command.split);
    return calibrate_steps(table, options, split);
  }
  if (is_collective_table(table)) {
    refuse("--gpu", command.gpu, "links are of a system");
    refuse("--split", command.split, "links are of a system");
    CalibrationFile file = fit_links(table, command.system);
    file.date = options.date;
    if (!options.name.empty()) file.name = options.name;
    return file;
  }
  throw Error(
      "no constants can be fitted on a table of this kind", {table.file, 1, 0},
      "kernels have the columns kind, gpu, dtype, M, N, K, shape, time_us; nccl-tests "
      "gpu, system, nodes, gpus, collective, bytes, time_us, or are its own output; measured "
      "steps " +
          training_columns());
}

// What was judged stands on stderr, and on top of the file.
std::string calibrated_from_ops(const CalibrateCommand& command, const CalibrateOptions& options) {
  for (const auto& [option, given] :
       {std::pair("--split", &command.split), std::pair("--system", &command.system)})
    if (!given->empty())
      throw Error(fmt::format("{}: an op log has no rows to choose from", option));
  const Scenario scenario = load_scenario(command.table);
  const OpLog log = read_op_log(command.from);
  const OpsCalibration c =
      calibrate_ops(scenario, simulate(scenario), log,
                    std::filesystem::path(command.from).filename().string(), options);
  const std::string said = ops_calibration_table(c);
  note("{}", said);
  return calibration_yaml(c.file, said);
}

int calibrate(const CalibrateCommand& command, const Context& context) {
  CalibrateOptions options;
  options.date = command.date.empty() ? today() : command.date;
  if (!is_date(options.date))
    throw Error(fmt::format("--date: expected a day as 2026-11-30, got '{}'", options.date));
  options.gpu = command.gpu;
  if (const std::optional<PublishedGpu> known = published_gpu(command.gpu))
    options.gpu = known->gpu;
  else if (!command.gpu.empty()) {
    std::vector<std::string_view> names;
    for (const GpuEntry& entry : gpu_catalogue()) names.push_back(entry.name);
    throw Error(fmt::format("--gpu: there is no GPU '{}'", command.gpu), {},
                spelling_hint(command.gpu, names, "GPUs"));
  }
  options.name = command.name;
  const std::string text = command.from.empty()
                               ? calibration_yaml(calibrated(load_measurements(command.table),
                                                             command, std::move(options)))
                               : calibrated_from_ops(command, options);
  write_output(context, text);
  return kOk;
}

}  // namespace

void add_calibrate(CLI::App& app, Context& context) {
  auto options = std::make_shared<CalibrateCommand>();
  CLI::App* command =
      app.add_subcommand("calibrate", "Fits constants of a GPU or of links to measurements");
  command
      ->add_option(
          "table", options->table,
          "A table (CSV): kernels, nccl-tests or measured steps; or what nccl-tests prints or "
          "writes with -J; with --from a scenario")
      ->required();
  command
      ->add_option(
          "--from", options->from,
          "An op log of a replay of the scenario: fits one half of its ops, judges the other")
      ->type_name("FILE");
  command->add_option("--gpu", options->gpu, "The GPU whose rows are used (default: the only one)");
  command->add_option("--system", options->system,
                      "The system whose rows of nccl-tests are used (default: the only one)");
  command
      ->add_option(
          "--split", options->split,
          "Which sources are fitted (YAML; default: all, but of published steps the shipped one)")
      ->type_name("FILE");
  command->add_option("--name", options->name, "Name of the calibration");
  command->add_option("--date", options->date, "Its day, 2026-11-30 (default: today)");
  add_file_to_write(*command, "-o,--output", context.output, "Write the calibration to this file");
  command->footer(
      "Examples:\n"
      "  shardsim calibrate kernels.csv --gpu h100-sxm5-80gb -o h100-kernel.yaml\n"
      "  shardsim calibrate all_gather.txt -o links.yaml\n"
      "  shardsim calibrate nccl_tests.csv --system 'AWS p5.48xlarge' -o links.yaml\n"
      "  shardsim calibrate measured_training.csv --gpu a100-sxm4-80gb -o a100.yaml\n"
      "  shardsim calibrate scenario.yaml --from measured-ops.json -o mine.yaml");
  command->callback([options, &context] {
    context.run = [options, &context] { return calibrate(*options, context); };
  });
}

}  // namespace shardsim
