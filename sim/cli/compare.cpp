// `shardsim compare`: a prediction and a measurement, op by op.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "sim/base/error.h"
#include "sim/cli/command.h"
#include "sim/report/op_compare.h"
#include "sim/study/read_op_log.h"

namespace shardsim {
namespace {

struct CompareOptions {
  std::string predicted, measured;
  std::optional<double> max_error;
};

int run(const CompareOptions& options, const Context& context) {
  if (options.max_error && std::isnan(*options.max_error))
    throw Error("--max-error: expected a percentage from 0, got nan");
  OpLog predicted = load_or_simulate_ops(options.predicted);
  const OpComparison c = compare_ops(std::move(predicted), load_or_simulate_ops(options.measured));
  const std::optional<double> error = c.step_error_pct();
  if (options.max_error && !error)
    throw Error("--max-error: logs of different scale have no times to compare", {options.measured},
                "replay both with the same --scale");
  switch (context.format) {
    case Format::table: write_output(context, op_comparison_table(c)); break;
    case Format::json: write_output(context, op_comparison_json(c)); break;
    case Format::csv: write_output(context, op_comparison_csv(c)); break;
  }
  if (!options.max_error || std::abs(*error) <= *options.max_error) return kOk;
  note("the predicted step is {:+.1f} % off, more than {} %\n", *error, *options.max_error);
  return kCheckFailed;
}

}  // namespace

void add_compare(CLI::App& app, Context& context) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand(
      "compare", "Prediction against measurement, by kind of op, group and stream");
  command
      ->add_option("predicted", options->predicted,
                   "A scenario (.yaml), which is simulated, or an op log (.json)")
      ->required();
  command
      ->add_option("measured", options->measured,
                   "An op log of a replay, an import or a simulation, or a scenario")
      ->required();
  command
      ->add_option("--max-error", options->max_error,
                   "Exit code 2 where the step time is off by more than this percentage")
      ->check(CLI::Range(0.0, 1e6));
  add_output_options(*command, context);
  command->footer(
      "Op logs are written by `shardsim run --ops`, `shardsim replay` and `shardsim import\n"
      "kineto`. Logs of one schedule are joined launch by launch, others by kind, stream and\n"
      "group in order. --format csv gives the rows by kind, group and stream. Examples:\n"
      "  shardsim compare scenarios/llama3-8b-fsdp2-h100x8.yaml ops.json\n"
      "  shardsim compare predicted.json measured.json --max-error 10 --format json");
  command->callback([options, &context] {
    context.run = [options, &context] { return run(*options, context); };
  });
}

}  // namespace shardsim
