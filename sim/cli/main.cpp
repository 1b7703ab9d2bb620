// The program: reads the command line, runs one command, and turns an Error into text and exit
// code 1. Results go to stdout, everything else to stderr.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <system_error>

#include <cstdio>
#include <new>
#include <vector>

#include "sim/base/error.h"
#include "sim/base/spelling.h"
#include "sim/cli/command.h"

namespace shardsim {
namespace {

int report(const Error& error) {
  std::string text = error.text();
  if (use_color(STDERR_FILENO)) {
    const size_t at = text.find("error:");
    text.insert(at + 6, "\033[0m");
    text.insert(at, "\033[1;31m");
  }
  std::fputs((text + "\n").c_str(), stderr);
  return kUserError;
}

// CLI11's sentence, in the form of every other error.
Error command_line_error(const CLI::App& app, const CLI::ParseError& e, int argc, char** argv) {
  std::string what = e.what();
  if (const size_t end = what.find('\n'); end != std::string::npos) what.erase(end);
  std::vector<std::string> owned;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    owned.push_back(command->get_name());
  const std::vector<std::string_view> names(owned.begin(), owned.end());
  const std::string_view first = argc > 1 ? argv[1] : "";
  const bool known = std::find(names.begin(), names.end(), first) != names.end();
  if (first.empty()) return Error("no command is given", {}, "shardsim --help lists the commands");
  if (!known && first[0] != '-')
    return Error(fmt::format("there is no command '{}'", first), {},
                 spelling_hint(first, names, "commands"));
  return Error(what, {},
               known ? fmt::format("shardsim {} --help explains its options", first)
                     : "shardsim --help lists the commands");
}

int run(int argc, char** argv) {
  Interrupt interrupt;
  Context context;
  context.interrupt = &interrupt;
  CLI::App app("Simulates one training step of a sharded model from a YAML scenario.", "shardsim");
  app.set_version_flag("--version", "shardsim " SHARDSIM_VERSION);
  app.require_subcommand(1);
  add_run(app, context);
  add_explain(app, context);
  add_list(app, context);
  add_conform(app, context);
  add_memory(app, context);
  add_diff(app, context);
  add_ledger(app, context);
  add_layout(app, context);
  add_validate(app, context);
  add_calibrate(app, context);
  add_diagnose(app, context);
  add_compare(app, context);
  add_fit(app, context);
  add_init(app, context);
  add_sweep(app, context);
  add_replay(app, context);
  add_import(app, context);
  // Last: a command without a footer of its own would take this one.
  app.footer(
      "Examples:\n"
      "  shardsim run scenarios/llama3-8b-fsdp2-h100x8.yaml\n"
      "  shardsim init llama-3-8b --gpu h100-sxm5-80gb -o mine.yaml\n"
      "  shardsim fit scenarios/llama3-8b-blocks-h100x8.yaml\n"
      "  shardsim explain scenarios/llama3-8b-fsdp2-h100x8.yaml\n"
      "  shardsim diff scenarios/llama3-8b-fsdp2-h100x8.yaml "
      "scenarios/llama3-8b-grad-accum-h100x8.yaml\n"
      "  shardsim ledger --params 7e9 --ranks 8\n"
      "  shardsim layout scenarios/llama3-8b-fsdp2-h100x8.yaml --svg layout.svg\n"
      "  shardsim replay scenarios/small/fsdp2.yaml --ops measured.json\n"
      "  shardsim import kineto rank0.pt.trace.json.gz -o measured.json\n"
      "  shardsim compare scenario.yaml measured.json\n"
      "  shardsim sweep scenarios/studies/wrapping/llama3-8b.yaml\n"
      "  shardsim list models\n"
      "  shardsim conform tests/recordings\n"
      "  shardsim validate tests/validation/steps.csv\n"
      "  shardsim diagnose scenarios/llama3-8b-fsdp2-h100x8.yaml --measured '1.3 s'\n"
      "Exit codes: 0 done, 1 a mistake in the input, 2 a check failed, 3 no such device, "
      "130 interrupted.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return report(command_line_error(app, e, argc, argv));
  }
  return context.run();
}

}  // namespace
}  // namespace shardsim

int main(int argc, char** argv) {
  // A file that may grow no more is an error of the write.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return shardsim::run(argc, argv);
  } catch (const shardsim::Error& e) {
    return shardsim::report(e);
  } catch (const shardsim::BrokenInvariant& e) {
    shardsim::report(shardsim::Error(std::string("a fault of shardsim itself: ") + e.what(), {},
                                     "please report it with the input that led here"));
    return 70;
  } catch (const std::bad_alloc&) {
    return shardsim::report(shardsim::Error("there is not enough memory for this"));
  } catch (const std::filesystem::filesystem_error& e) {
    return shardsim::report(shardsim::Error(e.code().message(), {e.path1().string()}));
  } catch (const std::system_error& e) {
    return shardsim::report(shardsim::Error(e.what()));
  }
}
