// `shardsim ledger`: the account on paper, of a scenario beside what its simulated schedule holds and
// moves, or of numbers given on the command line for every scheme.
#include "sim/study/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/quantity.h"
#include "sim/base/spelling.h"
#include "sim/cli/command.h"
#include "sim/cli/table.h"
#include "sim/config/scenario.h"
#include "sim/report/text.h"

namespace shardsim {
namespace {

struct LedgerOptions {
  std::string scenario;
  std::string params, ranks, nodes, largest_layer, strategy;
  std::string dtype, gather_dtype, reduce_dtype, optimizer_bytes;
  bool direct() const {
    return !(params + ranks + nodes + largest_layer + strategy + dtype + gather_dtype +
             reduce_dtype + optimizer_bytes)
                .empty();
  }
};

int64_t whole(const std::string& option, const std::string& text, int64_t most, int64_t least = 1) {
  const Parsed<int64_t> n = parse_whole(text);
  if (!n.ok() || n.value < least || n.value > most)
    throw Error(fmt::format("{}: expected a whole number from {} to {:g}, got '{}'", option, least,
                            static_cast<double>(most), text),
                {}, n.ok() ? "" : fmt::format("'{}' {}", text, n.problem));
  return n.value;
}

std::optional<int64_t> bytes_of_type(const std::string& option, const std::string& text, bool fp8) {
  if (text.empty()) return std::nullopt;
  if (fp8 && text == "fp8") return bytes_of(DType::fp8);
  const std::optional<DType> t = parse_float_dtype(text);
  if (!t) {
    std::vector<std::string_view> known{"fp32", "bf16", "fp16"};
    if (fp8) known.emplace_back("fp8");
    throw Error(fmt::format("{}: there is no type '{}'", option, text), {},
                spelling_hint(text, known, "types"));
  }
  return bytes_of(*t);
}

std::vector<Scheme> schemes(const std::string& text) {
  std::vector<std::string_view> names;
  for (const Scheme s : kSchemes) {
    if (name_of(s) == text) return {s};
    names.push_back(name_of(s));
  }
  if (!text.empty())
    throw Error(fmt::format("--strategy: there is no scheme '{}'", text), {},
                spelling_hint(text, names, "schemes"));
  return {kSchemes.begin(), kSchemes.end()};
}

std::string on_paper(const LedgerOptions& o, Format format) {
  if (o.params.empty() || o.ranks.empty())
    throw Error(fmt::format("{} is required", o.params.empty() ? "--params" : "--ranks"), {},
                "an account without a scenario needs --params and --ranks");
  const int64_t params = whole("--params", o.params, 100'000'000'000'000);
  const int64_t ranks = whole("--ranks", o.ranks, 1'000'000);
  const std::string type = o.dtype.empty() ? "bf16" : o.dtype;
  StateFormula f;
  f.params = params;
  f.ranks = ranks;
  f.bytes = *bytes_of_type("--dtype", type, false);
  f.gather_bytes = bytes_of_type("--gather-dtype", o.gather_dtype, true);
  f.reduce_bytes = bytes_of_type("--reduce-dtype", o.reduce_dtype, false);
  if (!o.optimizer_bytes.empty())
    f.optimizer_bytes = whole("--optimizer-bytes", o.optimizer_bytes, 64, 0);
  DeepSpeedSetup setup{params, 0, 1, o.nodes.empty() ? 1 : whole("--nodes", o.nodes, ranks)};
  if (ranks % setup.nodes != 0)
    throw Error(fmt::format("--nodes: {} ranks do not fill {} nodes evenly", ranks, setup.nodes));
  setup.gpus_per_node = ranks / setup.nodes;
  if (!o.largest_layer.empty())
    setup.largest_layer = whole("--largest-layer", o.largest_layer, params);

  Table table({{"scheme", "scheme"},
               {"parameters_bytes", ""},
               {"gradients_bytes", ""},
               {"optimizer_bytes", ""},
               {"resident_bytes", ""},
               {"peak_bytes", ""},
               {"communication_bytes", ""}});
  std::vector<std::vector<std::string>> rows{
      {"scheme", "parameters", "gradients", "optimizer", "resident", "worst peak", "moved a step"}};
  for (const Scheme scheme : schemes(o.strategy)) {
    f.scheme = scheme;
    const std::vector<Bytes> amounts{f.parameters(), f.gradients(), f.optimizer(),
                                     f.resident(),   f.peak(),      f.communication()};
    std::vector<Cell> cells{std::string(name_of(scheme))};
    std::vector<std::string> row{std::string(name_of(scheme))};
    for (const Bytes n : amounts) {
      cells.emplace_back(n);
      row.push_back(decimal_bytes(n));
    }
    table.add(std::move(cells));
    rows.push_back(std::move(row));
  }
  if (format == Format::csv) return table.csv();
  if (format == Format::json) {
    nlohmann::ordered_json j{{"schema_version", 1},
                             {"params", params},
                             {"ranks", ranks},
                             {"bytes_per_param", f.bytes},
                             {"optimizer_bytes_per_param", f.optimizer_bytes},
                             {"whole_copy_bytes", f.everything()}};
    j["schemes"] = nlohmann::ordered_json::parse(table.json());
    j["deepspeed"] = nlohmann::ordered_json::parse(deepspeed_json(setup));
    return j.dump(2) + "\n";
  }
  Lines out;
  out.add("P {} parameters of b {} bytes ({}), N {} ranks, {} bytes of optimizer state{}",
          grouped(params), f.bytes, type, ranks, f.optimizer_bytes,
          f.optimizer_bytes == 8 ? " (AdamW's fp32 moments)" : "");
  if (f.gather_bytes || f.reduce_bytes)
    out.add("gathered in {}, reduced in {}", o.gather_dtype.empty() ? type : o.gather_dtype,
            o.reduce_dtype.empty() ? type : o.reduce_dtype);
  out.add("a whole copy of parameters, gradients and optimizer state: {}",
          decimal_bytes(f.everything()));
  out.add("");
  out.text(aligned(rows, "lrrrrrr"));
  out.add("");
  out.text(deepspeed_table(setup));
  if (setup.largest_layer == 0)
    out.add("  zero3: --largest-layer gives its estimate, which needs that layer's parameters");
  return out.take();
}

int ledger(const LedgerOptions& o, const Context& context) {
  if (o.scenario.empty()) {
    if (!o.direct())
      throw Error("nothing to account for", {},
                  "give a scenario, or --params and --ranks; shardsim ledger --help shows both");
    write_output(context, on_paper(o, context.format));
    return kOk;
  }
  if (o.direct())
    throw Error("a scenario says its own parameters, ranks and types", {o.scenario},
                "give a scenario, or --params, --ranks and so on");
  const Ledger l = scenario_ledger(load_scenario(o.scenario));
  switch (context.format) {
    case Format::table: write_output(context, ledger_table(l)); break;
    case Format::json: write_output(context, ledger_json(l)); break;
    case Format::csv: write_output(context, ledger_csv(l)); break;
  }
  return kOk;
}

}  // namespace

void add_ledger(CLI::App& app, Context& context) {
  auto o = std::make_shared<LedgerOptions>();
  CLI::App* command = app.add_subcommand(
      "ledger", "What a rank holds and moves: on paper, simulated, and why they differ");
  command->add_option("scenario", o->scenario, "A scenario (.yaml)");
  command->add_option("--params", o->params, "Without a scenario: parameters, 7e9")
      ->type_name("NUMBER");
  command->add_option("--ranks", o->ranks, "Ranks that share one copy")->type_name("NUMBER");
  command->add_option("--dtype", o->dtype, "Type of parameters and gradients (default bf16)")
      ->type_name("fp32|bf16|fp16");
  command->add_option("--gather-dtype", o->gather_dtype, "Type of what is gathered (as --dtype)")
      ->type_name("fp32|bf16|fp16|fp8");
  command->add_option("--reduce-dtype", o->reduce_dtype, "Type of what is reduced (as --dtype)")
      ->type_name("fp32|bf16|fp16");
  command
      ->add_option("--optimizer-bytes", o->optimizer_bytes,
                   "Of optimizer state a parameter (default 8, AdamW's fp32 moments)")
      ->type_name("NUMBER");
  command
      ->add_option("--strategy", o->strategy,
                   "ddp, zero1, zero2, zero3, full_shard, shard_grad_op or no_shard (default all)")
      ->type_name("NAME");
  command->add_option("--nodes", o->nodes, "Nodes, for DeepSpeed's estimators (default 1)")
      ->type_name("NUMBER");
  command
      ->add_option("--largest-layer", o->largest_layer,
                   "Parameters of the largest layer, for DeepSpeed's estimator of stage 3")
      ->type_name("NUMBER");
  add_output_options(*command, context);
  command->footer(
      "Examples:\n"
      "  shardsim ledger scenarios/llama3-8b-fsdp2-h100x8.yaml\n"
      "  shardsim ledger --params 7e9 --ranks 8 --dtype bf16\n"
      "  shardsim ledger --params 13e9 --ranks 4 --dtype fp32 --strategy shard_grad_op");
  command->callback([o, &context] { context.run = [o, &context] { return ledger(*o, context); }; });
}

}  // namespace shardsim
