// `shardsim diagnose`: what would explain a measured step time.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "sim/base/error.h"
#include "sim/base/quantity.h"
#include "sim/cli/command.h"
#include "sim/config/scenario.h"
#include "sim/study/diagnose.h"
#include "sim/study/measured_scenario.h"
#include "sim/study/parallel.h"
#include "sim/study/step_model.h"

namespace shardsim {
namespace {

constexpr double kModelError = .04;  // spread of one source's rows in `validate`

struct DiagnoseCommand {
  std::string input, measured;
  std::vector<std::string> rows;
  double uncertainty = kModelError * 100;
  int threads = 0;
};

bool is_table(const std::string& path) { return path.ends_with(".csv"); }

double seconds_of(const std::string& text) {
  const Parsed<double> us = parse_quantity(text, Dimension::time, 1e6);
  if (us.ok() && us.value > 0 && std::isfinite(us.value)) return us.value / 1e6;
  throw Error("--measured: expected a time above 0, got '" + text + "'", {},
              "in seconds, or with its unit: 1.46, '820 ms'");
}

// Rows whose id, or the part before its dash, is named.
std::vector<MeasuredStep> steps_of_table(const DiagnoseCommand& options) {
  const CsvTable table = load_csv(options.input);
  std::vector<MeasuredStep> out;
  for (const MeasuredRow& row : measured_rows(table)) {
    const auto named = [&](const std::string& r) { return r == row.id || r == row.group(); };
    if (std::none_of(options.rows.begin(), options.rows.end(), named)) continue;
    const ExpressedRow e = express(row);
    if (!e.left_out.empty()) continue;
    MeasuredStep step;
    step.name = row.id;
    step.scenario = parse_scenario(e.yaml, row.id);
    step.last_micro_batch = e.last_micro_batch;
    try {
      step.seconds = row.seconds(step_tokens(step.scenario.training, e.last_micro_batch));
    } catch (const Error& problem) {
      throw Error(fmt::format("{}: {}", row.id, problem.what()), {options.input, row.line});
    }
    out.push_back(std::move(step));
  }
  if (out.empty())
    throw Error(fmt::format("--rows: no row that can be simulated is named {}",
                            fmt::join(options.rows, ", ")),
                {options.input}, "ids, or what stands before their dash: ya, ttJ-004");
  return out;
}

int diagnose(const DiagnoseCommand& options, const Context& context) {
  if (context.format == Format::csv) throw Error("--format: diagnose writes table or json");
  std::vector<MeasuredStep> steps;
  if (is_table(options.input)) {
    if (options.rows.empty())
      throw Error("--rows: say which rows of the table share the machine", {options.input});
    if (!options.measured.empty())
      throw Error("--measured: a table has its own times", {options.input});
    steps = steps_of_table(options);
  } else {
    if (options.measured.empty())
      throw Error("--measured: say how long the step took", {options.input}, "--measured '1.46 s'");
    if (!options.rows.empty()) throw Error("--rows: only a table has rows", {options.input});
    Scenario scenario = load_scenario(options.input);
    if (scenario.cost.model == CostChoice::Model::flat)
      throw Error("flat costs have no resources to explain", {options.input},
                  "use cost: {model: roofline}");
    const std::string name = scenario.name;
    steps.push_back({name, std::move(scenario), seconds_of(options.measured), 1});
  }
  const Diagnosis d =
      diagnose(std::move(steps), options.uncertainty / 100, threads_or_all(options.threads));
  write_output(context, context.format == Format::json ? diagnosis_json(d) : diagnosis_table(d));
  return kOk;
}

}  // namespace

void add_diagnose(CLI::App& app, Context& context) {
  auto options = std::make_shared<DiagnoseCommand>();
  CLI::App* command =
      app.add_subcommand("diagnose", "What would explain a measured step time, and what binds");
  command->add_option("input", options->input, "A scenario, or a table of measured steps (.csv)")
      ->required();
  command->add_option("--measured", options->measured, "The step's time: '1.46 s'");
  command->add_option("--rows", options->rows,
                      "Rows of the table that ran on one machine, by id or group");
  command
      ->add_option("--uncertainty", options->uncertainty,
                   "Percent by which time and model may differ (default 4)")
      ->check(CLI::Range(0.01, 100.0));
  command->add_option("-j", options->threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  add_output_options(*command, context);
  command->footer(
      "Examples:\n"
      "  shardsim diagnose scenarios/llama3-8b-fsdp2-h100x8.yaml --measured '1.3 s'\n"
      "  shardsim diagnose own.csv --rows mine --uncertainty 5");
  command->callback([options, &context] {
    context.run = [options, &context] { return diagnose(*options, context); };
  });
}

}  // namespace shardsim
