// `shardsim validate`: predictions against published or own measurements.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "sim/base/error.h"
#include "sim/cli/command.h"
#include "sim/cli/validate_collectives.h"
#include "sim/cli/validate_kernels.h"
#include "sim/study/kernel_table.h"
#include "sim/study/validate.h"
#include "sim/study/validate_collectives.h"

namespace shardsim {
namespace {

struct ValidateCommand {
  std::string file, split, show, learn;
  std::string of_steps;  // an option that is given and only tables of steps have
  int threads = 0;
  bool verbose = false, no_fit = false;
};

std::string written(const Validation& v, const ValidateCommand& options, Format format) {
  switch (format) {
    case Format::json: return validation_json(v);
    case Format::csv: return validation_csv(v);
    case Format::table: break;
  }
  return validation_table(v, options.verbose);
}

// The scenario of one row, with its assumptions as comments.
std::string scenario_of(const CsvTable& table, const std::string& id) {
  for (const MeasuredRow& row : measured_rows(table)) {
    if (row.id != id) continue;
    const ExpressedRow e = express(row);
    if (!e.left_out.empty()) throw Error("row " + id + " is left out: " + e.left_out, {table.file});
    std::string out;
    for (const std::string& a : e.assumed) out += "# assumed: " + a + "\n";
    return out + e.yaml;
  }
  throw Error("--scenario: the table has no row '" + id + "'", {table.file});
}

int validate(const ValidateCommand& options, const Context& context) {
  const CsvTable table = load_csv(options.file);
  const bool kernels = is_kernel_table(table);
  if (kernels || is_collective_table(table)) {
    if (!options.of_steps.empty())
      throw Error(options.of_steps + ": only a table of measured steps has this option",
                  {options.file}, "leave it out");
    return kernels ? report_kernels(table, context) : report_collectives(table, context);
  }
  if (!is_training_table(table))
    throw Error("this is no table of measurements that is known", {table.file, 1, 0},
                "a table of steps has the columns " + training_columns());
  if (!options.show.empty()) {
    write_output(context, scenario_of(table, options.show));
    return kOk;
  }
  const ValidationSplit split =
      options.split.empty() ? ValidationSplit::shipped() : ValidationSplit::load(options.split);
  ValidateOptions o;
  o.threads = options.threads;
  o.fit = !options.no_fit;
  const Validation v = validate_training(table, split, o);
  if (!options.learn.empty()) write_file(context, options.learn, learn_factors(v, split).yaml());
  write_output(context, written(v, options, context.format));
  const bool played = std::any_of(v.rows.begin(), v.rows.end(),
                                  [](const ValidatedRow& r) { return r.left_out.empty(); });
  if (played || v.rows.empty()) return kOk;
  note("error: no row of {} can be simulated; the table says why\n", options.file);
  return kCheckFailed;
}

}  // namespace

void add_validate(CLI::App& app, Context& context) {
  auto options = std::make_shared<ValidateCommand>();
  CLI::App* command =
      app.add_subcommand("validate", "Predictions against a table of measured steps");
  command->add_option("file", options->file, "The table (CSV)")->required();
  command->add_option("--split", options->split,
                      "Which rows are fitted, which kept apart (default: the shipped split)");
  command->add_option("--scenario", options->show, "Prints the scenario of this row and ends");
  add_file_to_write(*command, "--learn", options->learn,
                    "Writes each source's factor of predicted time to this file");
  command->add_flag("--no-fit", options->no_fit, "Only predicts, with the shipped constants");
  command->add_flag("--verbose", options->verbose, "Every row and every pair");
  command->add_option("-j", options->threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  add_output_options(*command, context);
  command->footer(
      "The table may be of steps, of kernels or of nccl-tests; scenarios/README.md, Calibrations, "
      "has\n"
      "the columns. Exit code 2: no row of it can be simulated. Examples:\n"
      "  shardsim validate tests/validation/steps.csv\n"
      "  shardsim validate own.csv --no-fit --verbose\n"
      "  shardsim validate own.csv --scenario mine-1 > mine-1.yaml");
  command->callback([options, command, &context] {
    for (const char* option : {"--split", "--scenario", "--learn", "--no-fit", "--verbose", "-j"})
      if (command->count(option) > 0) options->of_steps = option;
    context.run = [options, &context] { return validate(*options, context); };
  });
}

}  // namespace shardsim
