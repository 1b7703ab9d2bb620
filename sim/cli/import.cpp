// `shardsim import`: files that users already have, as shardsim's own.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "sim/cli/command.h"
#include "sim/study/import_kineto.h"

namespace shardsim {
namespace {

struct KinetoCommand {
  std::string trace;
  std::optional<int64_t> rank, step;
};

int import(const KinetoCommand& command, const Context& context) {
  std::error_code error;
  if (std::filesystem::is_directory(command.trace, error))
    for (const auto& trace : std::filesystem::directory_iterator(command.trace, error))
      refuse_overwrite(context, trace.path().string());
  const OpLog log = import_kineto(command.trace, {command.rank, command.step});
  for (const std::string& w : log.warnings) note("note: {}\n", w);
  write_output(context, op_log_json(log));
  return kOk;
}

}  // namespace

void add_import(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("import", "Makes shardsim's files of others");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  shardsim import kineto rank0.pt.trace.json.gz -o measured.json");
  auto options = std::make_shared<KinetoCommand>();
  CLI::App* kineto = command->add_subcommand(
      "kineto", "A trace of PyTorch's profiler: an op log of one step, for `shardsim compare`");
  kineto
      ->add_option("trace", options->trace,
                   "A trace (.json, .json.gz), or a folder of one for each rank")
      ->required();
  kineto->add_option("--rank", options->rank,
                     "Of a folder: whose trace (default: the lowest rank)");
  kineto->add_option("--step", options->step,
                     "The number of a ProfilerStep# (default: the step of median length)");
  add_file_to_write(*kineto, "-o,--output", context.output, "Write the op log to this file");
  kineto->footer(
      "Examples:\n"
      "  shardsim import kineto rank0.pt.trace.json.gz -o measured.json\n"
      "  shardsim import kineto traces/ --rank 3 --step 12 -o measured.json\n"
      "  shardsim compare scenarios/llama3-8b-fsdp2-h100x8.yaml measured.json");
  kineto->callback([options, &context] {
    context.run = [options, &context] { return import(*options, context); };
  });
}

}  // namespace shardsim
