// `shardsim validate`: predictions against published or own measurements.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/cli/command.h"
#include "sim/cli/validate_kernels.h"
#include "sim/study/kernel_table.h"
#include "sim/study/validate.h"

namespace shardsim {
namespace {

using nlohmann::ordered_json;

struct ValidateCommand {
  std::string file;
  int threads = 0;
};

int validate(const ValidateCommand& options, const Context& context) {
  refuse_overwrite(context, options.file);
  const CsvTable table = load_csv(options.file);
  if (is_kernel_table(table)) return report_kernels(table, context);
  ValidateOptions o;
  o.threads = options.threads;
  const std::vector<ValidatedRow> rows = validate_training(table, o);
  ordered_json j;
  for (const ValidatedRow& r : rows) {
    ordered_json row{{"id", r.row.id}, {"group", r.group}, {"left_out", r.left_out}};
    row["predicted"] = r.predicted_s;
    row["measured"] = r.measured_s;
    row["error_pct"] = r.left_out.empty() ? ordered_json(r.error_pct()) : ordered_json(nullptr);
    j["rows"].push_back(row);
  }
  write_output(context, j.dump(1) + "\n");
  return kOk;
}

}  // namespace

void add_validate(CLI::App& app, Context& context) {
  auto options = std::make_shared<ValidateCommand>();
  CLI::App* command = app.add_subcommand("validate", "Predictions against measurements");
  command->add_option("file", options->file, "A table (CSV)")->required();
  command->add_option("-j", options->threads, "Threads (default: all cores)");
  add_output_options(*command, context);
  command->callback([options, &context] {
    context.run = [options, &context] { return validate(*options, context); };
  });
}

}  // namespace shardsim
