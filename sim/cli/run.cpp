// `shardsim run`: one scenario, simulated.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "sim/base/error.h"
#include "sim/cli/command.h"
#include "sim/config/scenario.h"
#include "sim/config/training.h"
#include "sim/report/chrome_trace.h"
#include "sim/report/html/page_run.h"
#include "sim/report/uneven_ranks.h"
#include "sim/schedule/graph/schedule_graph.h"
#include "sim/study/memory_snapshot.h"
#include "sim/study/nccl_backend_note.h"
#include "sim/study/offload_note.h"
#include "sim/study/read_op_log.h"
#include "sim/study/reserved_history.h"
#include "sim/study/run_report.h"
#include "sim/study/simulate.h"

namespace shardsim {
namespace {

struct RunOptions {
  std::string scenario, trace, html, graph, snapshot, ops, uneven;
  std::optional<std::string> tokens;
  int64_t rank = 0;
};

std::vector<std::string> names_of(const StepReport& report) {
  std::vector<std::string> names;
  for (const GroupRow& g : report.groups) names.push_back(g.name);
  return names;
}

std::string trace_text(const RunOptions& options, const Scenario& scenario, const Simulation& s,
                       const StepReport& report) {
  ChromeTraceOptions o;
  o.rank = options.rank;
  o.world = scenario.training.mesh.world();
  o.gpu = scenario.cluster.gpu;
  const CostTable costs = price(scenario, s.schedule);
  o.host = costs.host;
  o.launch = costs.launch;
  o.trace_name = std::filesystem::path(options.trace).filename().string();
  std::ostringstream out;
  write_chrome_trace(out, s.schedule, s.trace, names_of(report), o);
  return out.str();
}

std::string page_text(const Scenario& scenario, const Simulation& s, const StepReport& report) {
  const CostTable costs = price(scenario, s.schedule);
  const std::vector<Bytes> reserved = reserved_history(scenario, s);
  RunPageOptions o;
  o.launch = costs.launch;
  o.reserved = reserved;
  return run_page(report, s.schedule, s.trace, o);
}

std::string graph_text(const RunOptions& options, const Simulation& s, const StepReport& report) {
  const bool dot = std::filesystem::path(options.graph).extension() == ".dot";
  const ScheduleGraph graph = build_graph(s.schedule);
  const std::vector<std::string> names = names_of(report);
  std::ostringstream out;
  if (dot)
    write_graphviz(out, graph, s.schedule, names);
  else
    write_graph_json(out, graph, weights_from_trace(graph, s.trace), s.schedule, names);
  return out.str();
}

// "1,0.5;0.5,1": two kinds of ranks.
std::vector<std::vector<double>> kinds_of(const std::string& text) {
  std::vector<std::vector<double>> kinds(1);
  std::istringstream in(text);
  char separator = 0;
  for (double factor = 0; in >> factor && factor >= 0 && std::isfinite(factor);) {
    kinds.back().push_back(factor);
    if (!(in >> separator)) return kinds;
    if (separator == ';') kinds.emplace_back();
    if (separator != ';' && separator != ',') break;
  }
  throw Error("--uneven: expected factors of passes for each kind of rank, got '" + text + "'", {},
              "--uneven '1,0.5;0.5,1': long and short passes by turns, on two kinds of ranks");
}

UnevenStep uneven_of(const RunOptions& options, const Scenario& scenario, const Simulation& s) {
  return uneven_step(s.schedule, s.trace, scenario.training.mesh.world(), kinds_of(options.uneven));
}

std::string uneven_table(const UnevenStep& u) {
  std::string out = fmt::format(
      "\nranks that are not alike: step {:.3f} ms in place of {:.3f}; {} collectives wait for "
      "all\n",
      u.uneven.as_s() * 1e3, u.alike.as_s() * 1e3, u.points);
  for (size_t r = 0; r < u.waiting.size(); ++r)
    out += fmt::format("  kind {}: they wait {:.3f} ms for the slowest\n", r + 1,
                       u.waiting[r].as_s() * 1e3);
  return out;
}

std::string with_uneven(const std::string& report, const UnevenStep& u) {
  nlohmann::ordered_json j = nlohmann::ordered_json::parse(report);
  auto& out = j["uneven_ranks"];
  out = {{"step_time_s", u.uneven.as_s()},
         {"alike_step_time_s", u.alike.as_s()},
         {"synchronisations", u.points},
         {"waiting_s", nlohmann::ordered_json::array()}};
  for (Time t : u.waiting) out["waiting_s"].push_back(t.as_s());
  return j.dump(2) + "\n";
}

int64_t token_budget_of(const std::string& text, const Architecture& model) {
  if (!takes_tokens(model.family)) throw Error("--tokens: a stack or bag has rows, no tokens");
  const Parsed<int64_t> tokens = parse_whole(text);
  if (!tokens.ok() || tokens.value < 1 || tokens.value > kMostTokenBudget)
    throw Error(
        fmt::format(
            "--tokens: expected a whole number from 1 to {}, got {}{}", kMostTokenBudget,
            quoted_for_message(text),
            tokens.ok() || tokens.problem == "is not a number" ? "" : ", which " + tokens.problem),
        {}, kTokenBudgetHint);
  return tokens.value;
}

// What can be refused before anything is simulated.
void check(const RunOptions& options, const Scenario& scenario) {
  const int64_t world = scenario.training.mesh.world();
  if (!options.uneven.empty()) kinds_of(options.uneven);
  if (options.rank < 0 || options.rank >= world)
    throw Error(
        fmt::format("--rank: expected a rank from 0 to {}, got {}", world - 1, options.rank), {},
        "the scenario's mesh has that many ranks");
  const auto extension = std::filesystem::path(options.graph).extension();
  if (!options.graph.empty() && extension != ".dot" && extension != ".json")
    throw Error(
        "--graph: expected a file name that ends in .json or .dot, got '" + options.graph + "'", {},
        ".dot is for graphviz, .json also holds slack and the critical path");
  if (!options.snapshot.empty() && scenario.options.memory != MemoryLevel::blocks)
    throw Error("--snapshot: the scenario plays live memory, which has no blocks",
                {options.scenario}, "add options: {memory: blocks}");
}

int run(const RunOptions& options, const Context& context) {
  Scenario scenario = load_scenario(options.scenario);
  if (options.tokens)
    scenario.training.token_budget = token_budget_of(*options.tokens, scenario.model);
  check(options, scenario);
  const Simulation s = simulate(scenario);
  StepReport report = run_report(scenario, s);
  if (std::string note = nccl_backend_note(scenario, report); !note.empty())
    report.notes.push_back(std::move(note));
  if (std::string note = offload_note(scenario, report); !note.empty())
    report.notes.push_back(std::move(note));
  if (!s.steady && !s.trace.out_of_memory)
    note("note: {}: {} did not reach a steady state; options.max_steps plays more\n", scenario.name,
         s.steps == 1 ? "1 step" : fmt::format("{} steps", s.steps));
  if (!options.trace.empty())
    write_file(context, options.trace, trace_text(options, scenario, s, report));
  if (!options.html.empty()) write_file(context, options.html, page_text(scenario, s, report));
  if (!options.graph.empty()) write_file(context, options.graph, graph_text(options, s, report));
  if (!options.snapshot.empty())
    write_file(context, options.snapshot, memory_snapshot(scenario, s));
  if (!options.ops.empty() && s.trace.out_of_memory)
    throw Error("--ops: the step ends out of memory, so there are no ops to log",
                {options.scenario});
  if (!options.ops.empty()) write_file(context, options.ops, op_log_json(op_log_of(scenario, s)));
  const bool uneven = !options.uneven.empty() && !s.trace.out_of_memory;
  switch (context.format) {
    case Format::table:
      write_output(context, report_table(report) +
                                (uneven ? uneven_table(uneven_of(options, scenario, s)) : ""));
      break;
    case Format::json:
      write_output(context, uneven
                                ? with_uneven(report_json(report), uneven_of(options, scenario, s))
                                : report_json(report));
      break;
    case Format::csv: write_output(context, groups_csv(report.groups)); break;
  }
  return kOk;
}

}  // namespace

void add_run(CLI::App& app, Context& context) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(
      "run", "Simulates training steps: time, exposed communication and why, peak memory");
  command->add_option("scenario", options->scenario, "A scenario (.yaml)")->required();
  add_file_to_write(*command, "--trace", options->trace,
                    "Also writes a Chrome trace of one rank, for Perfetto (ui.perfetto.dev)");
  add_file_to_write(*command, "--html", options->html,
                    "Also writes a page of the run: timeline, memory over time, groups (.html)");
  command->add_option("--rank", options->rank,
                      "The rank that --trace names; all ranks run alike (default 0)");
  add_file_to_write(*command, "--graph", options->graph,
                    "Also writes the schedule graph: .json, with slack and critical path, or .dot");
  add_file_to_write(*command, "--snapshot", options->snapshot,
                    "Also writes a PyTorch memory snapshot (.pickle), for pytorch.org/memory_viz");
  add_file_to_write(*command, "--ops", options->ops,
                    "Also writes an op log of the step (.json), for `shardsim compare`");
  command->add_option("--tokens", options->tokens,
                      "Tokens of the whole training, as 15e12: hours, GPU-hours and, with "
                      "cluster.price_per_gpu_hour, money (in place of training.token_budget)");
  command->add_option("--uneven", options->uneven,
                      "Kinds of ranks, by ';', that take part in the same collectives: factors of "
                      "each pass's compute, by ','");
  add_output_options(*command, context);
  command->footer(
      "--format csv gives the parameter groups. Examples:\n"
      "  shardsim run scenarios/llama3-8b-fsdp2-h100x8.yaml\n"
      "  shardsim run scenarios/llama3-8b-fsdp2-h100x8.yaml --tokens 1e12\n"
      "  shardsim run scenarios/small/stack-flat.yaml --format json -o report.json\n"
      "  shardsim run scenarios/small/stack-flat.yaml --trace rank0.pt.trace.json\n"
      "  shardsim run scenarios/llama3-8b-fsdp2-h100x8.yaml --html run.html");
  command->callback([options, &context] {
    context.run = [options, &context] { return run(*options, context); };
  });
}

}  // namespace shardsim
