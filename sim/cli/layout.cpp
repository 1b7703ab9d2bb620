// `shardsim layout`: where every element of a scenario's model lives, packed as FSDP1 and as FSDP2.
#include "sim/report/layout.h"

#include <memory>

#include "sim/base/error.h"
#include "sim/base/quantity.h"
#include "sim/cli/command.h"
#include "sim/config/scenario.h"
#include "sim/report/layout_svg.h"
#include "sim/study/simulate.h"

namespace shardsim {
namespace {

struct LayoutOptions {
  std::string scenario, svg, rank;
  LayoutQuery query;
};

int layout(LayoutOptions o, const Context& context) {
  if (!o.rank.empty()) {
    const Parsed<int64_t> rank = parse_whole(o.rank);
    if (!rank.ok())
      throw Error("--rank: expected a rank, got '" + o.rank + "'", {},
                  "'" + o.rank + "' " + rank.problem);
    o.query.rank = rank.value;
  }
  const Scenario scenario = load_scenario(o.scenario);
  Simulation s;
  lay_out(scenario, s);
  const Layout l = make_layout(scenario, s.model, s.plan, o.query);
  if (!o.svg.empty()) write_file(context, o.svg, layout_svg(l));
  switch (context.format) {
    case Format::table: write_output(context, layout_table(l)); break;
    case Format::json: write_output(context, layout_json(l)); break;
    case Format::csv: write_output(context, layout_csv(l)); break;
  }
  return kOk;
}

}  // namespace

void add_layout(CLI::App& app, Context& context) {
  auto o = std::make_shared<LayoutOptions>();
  CLI::App* command = app.add_subcommand(
      "layout", "Shows where every element lives: FSDP1's flat chunks beside FSDP2's shards");
  command->add_option("scenario", o->scenario, "A scenario (.yaml)")->required();
  command->add_option("--group", o->query.group, "Only groups of this name (with *)")
      ->type_name("NAME");
  command->add_option("--param", o->query.param, "Only parameters of this name (with *)")
      ->type_name("NAME");
  command->add_option("--rank", o->rank, "Only this rank of the shard mesh")->type_name("RANK");
  add_file_to_write(*command, "--svg", o->svg, "Also draws it to this file (.svg)");
  add_output_options(*command, context);
  command->footer(
      "Examples:\n"
      "  shardsim layout scenarios/studies/fsdp1-vs-fsdp2/tiny-fsdp2.yaml --svg layout.svg\n"
      "  shardsim layout scenarios/llama3-8b-fsdp2-h100x8.yaml --group model.layers.0 --rank 3");
  command->callback([o, &context] { context.run = [o, &context] { return layout(*o, context); }; });
}

}  // namespace shardsim
