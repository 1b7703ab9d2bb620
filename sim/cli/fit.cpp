// `shardsim fit`: what of a scenario fits in memory, by strategy.
#include <fmt/format.h>

#include <memory>

#include "sim/base/error.h"
#include "sim/base/quantity.h"
#include "sim/cli/command.h"
#include "sim/study/capacity.h"
#include "sim/study/parallel.h"

namespace shardsim {
namespace {

struct FitCommand {
  std::string scenario;
  CapacityOptions options;
  std::string leave = "0";
  int threads = 0;
};

int fit(FitCommand command, const Context& context) {
  command.options.threads = threads_or_all(command.threads);
  const Parsed<Bytes> leave = parse_bytes(command.leave);
  if (!leave.ok() || leave.value < 0)
    throw Error(fmt::format("--leave: '{}' {}", command.leave,
                            leave.ok() ? "is less than nothing" : leave.problem),
                {}, "a size, for example --leave \"4 GiB\"");
  command.options.leave = leave.value;
  const CapacityReport report = capacity(command.scenario, command.options);
  switch (context.format) {
    case Format::table: write_output(context, capacity_table(report)); break;
    case Format::json: write_output(context, capacity_json(report)); break;
    case Format::csv: write_output(context, capacity_csv(report)); break;
  }
  return kOk;
}

}  // namespace

void add_fit(CLI::App& app, Context& context) {
  auto options = std::make_shared<FitCommand>();
  CLI::App* command = app.add_subcommand(
      "fit",
      "By strategy: the smallest cluster, largest micro-batch and longest sequence that fit");
  CapacityOptions& o = options->options;
  command->add_option("scenario", options->scenario, "A scenario (.yaml)")->required();
  command
      ->add_option("--strategies", o.strategies,
                   "Of fsdp2, fsdp2-keep (no reshard after forward), hsdp, fsdp1, fsdp1-grad-op, "
                   "ddp, zero1, zero2, zero3, with commas (default: all)")
      ->delimiter(',');
  command->add_option("--max-nodes", o.max_nodes, "Nodes of the largest cluster (default 1024)")
      ->check(CLI::Range(1, 65536));
  command->add_option("--max-micro-batch", o.max_micro_batch, "Largest micro-batch (default 4096)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--max-seq", o.max_seq_len, "Longest sequence (default 1048576)")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--seq-step", o.seq_step, "Sequences are multiples of it (default 256)")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option(
      "--leave", options->leave,
      "Memory of each GPU that is not to be used, for example \"4 GiB\" (default 0)");
  command->add_option("-j", options->threads, "Threads (default: all)")->check(CLI::Range(0, 1024));
  add_output_options(*command, context);
  command->footer(
      "Each size is simulated at the scenario's own memory level; options: {memory: blocks} "
      "counts\n"
      "what the allocator reserves. Examples:\n"
      "  shardsim fit scenarios/llama3-8b-blocks-h100x8.yaml\n"
      "  shardsim fit scenarios/llama3-70b-fsdp2-h100x64.yaml --strategies fsdp2,hsdp --max-nodes "
      "32\n"
      "  shardsim fit scenarios/llama3-8b-fsdp2-h100x8.yaml --format csv -o fits.csv");
  command->callback([options, &context] {
    context.run = [options, &context] { return fit(*options, context); };
  });
}

}  // namespace shardsim
