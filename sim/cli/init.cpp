// `shardsim init`: a scenario to start from.
#include <filesystem>
#include <memory>

#include "sim/base/error.h"
#include "sim/cli/command.h"
#include "sim/study/starter.h"

namespace shardsim {
namespace {

struct InitCommand {
  StarterRequest request;
  bool force = false;
};

int init(InitCommand command, const Context& context) {
  std::error_code error;
  if (!command.force && !context.output.empty() &&
      std::filesystem::is_regular_file(context.output, error))
    throw Error("is there already", {context.output}, "--force writes over it");
  command.request.file = context.output;
  write_output(context, starter_scenario(command.request));
  return kOk;
}

}  // namespace

void add_init(CLI::App& app, Context& context) {
  auto options = std::make_shared<InitCommand>();
  CLI::App* command = app.add_subcommand(
      "init", "Writes a commented scenario of a model, a GPU and a number of nodes");
  StarterRequest& r = options->request;
  command
      ->add_option("model", r.model,
                   "A name of `shardsim list models`, or the path of a Hugging Face config.json")
      ->required();
  command->add_option("--gpu", r.gpu, "A name of `shardsim list gpus`")->required();
  command->add_option("--nodes", r.nodes, "Nodes (default 1)")->check(CLI::Range(1, 65536));
  command
      ->add_option("--gpus-per-node", r.gpus_per_node,
                   "GPUs of a node (default: as systems with this GPU have)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--style", r.style,
                      "Whose defaults: torchtitan (default), accelerate, accelerate-fsdp1");
  command->add_flag("--force", options->force, "Writes over a file that is there");
  add_file_to_write(*command, "-o,--output", context.output,
                    "Write the scenario to this file (default: stdout)");
  command->footer(
      "Each key has a comment that says where its value is from. Examples:\n"
      "  shardsim init llama-3-8b --gpu h100-sxm5-80gb --nodes 2 -o llama.yaml\n"
      "  shardsim init qwen3-8b --gpu a100-sxm4-80gb --style accelerate\n"
      "  shardsim init ./my-model/config.json --gpu l40s -o mine.yaml && shardsim run mine.yaml");
  command->callback([options, &context] {
    context.run = [options, &context] { return init(*options, context); };
  });
}

}  // namespace shardsim
