// `shardsim diff`: two scenarios, what changes from one to the other, and why.
#include <memory>

#include "sim/cli/command.h"
#include "sim/config/scenario.h"
#include "sim/config/settings.h"
#include "sim/study/compare.h"

namespace shardsim {
namespace {

struct DiffOptions {
  std::string a, b;
};

int run(const DiffOptions& options, const Context& context) {
  const Scenario a = load_scenario(options.a), b = load_scenario(options.b);
  const Diff d =
      compare({options.a, &a, settings_in(options.a)}, {options.b, &b, settings_in(options.b)});
  switch (context.format) {
    case Format::table: write_output(context, diff_table(d)); break;
    case Format::json: write_output(context, diff_json(d)); break;
    case Format::csv: write_output(context, diff_csv(d)); break;
  }
  return kOk;
}

}  // namespace

void add_diff(CLI::App& app, Context& context) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App* command = app.add_subcommand(
      "diff", "What changes from one scenario to another: collectives, memory, time, and why");
  command->add_option("a", options->a, "The scenario to start from (.yaml)")->required();
  command->add_option("b", options->b, "The scenario to compare with it (.yaml)")->required();
  add_output_options(*command, context);
  command->footer(
      "Changes are B less A. Groups are paired by the names of their parameters, so strategies,\n"
      "wraps and models may differ. --format csv gives the collectives that differ. Examples:\n"
      "  shardsim diff scenarios/llama3-8b-fsdp2-h100x8.yaml my-variant.yaml\n"
      "  shardsim diff a.yaml b.yaml --format json -o diff.json");
  command->callback([options, &context] {
    context.run = [options, &context] { return run(*options, context); };
  });
}

}  // namespace shardsim
