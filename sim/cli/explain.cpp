// `shardsim explain`: what a scenario means, without any timing: the groups, their padding and bytes,
// what each step communicates, the memory that is held throughout, and the ledger.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "sim/base/quantity.h"
#include "sim/cli/command.h"
#include "sim/cli/explain_zero.h"
#include "sim/cli/table.h"
#include "sim/config/scenario.h"
#include "sim/cost/node_boundary.h"
#include "sim/report/ledger.h"
#include "sim/report/repeats.h"
#include "sim/report/text.h"
#include "sim/study/ledger.h"
#include "sim/study/run_report.h"
#include "sim/study/simulate.h"

namespace shardsim {
namespace {

using nlohmann::ordered_json;

// Launches and collectives of the last step that was laid out.
struct StepCounts {
  int64_t products = 0, kernels = 0, copies = 0, host_calls = 0;
  int64_t instructions = 0;
  std::vector<HostWork> host_works;  // summed by name
  struct Collective {
    int64_t count = 0;
    Bytes bytes = 0;
  };
  std::map<std::array<uint32_t, 2>, Collective> collectives;  // kind, communicator
};

StepCounts count(const Schedule& schedule) {
  StepCounts c;
  schedule.for_each_of_last_step([&](const Instr& in, const Segment&) {
    ++c.instructions;
    switch (in.kind) {
      case Kind::Alloc:
      case Kind::AllocOnce:
      case Kind::Free:
      case Kind::UseOn:
      case Kind::EmptyCache:
      case Kind::EventPush:
      case Kind::EventLimit:
      case Kind::PinnedTake: return;
      case Kind::HostCalls: c.host_calls += in.a; return;
      case Kind::HostWork: {
        const HostWork& w = schedule.host_works[in.a];
        auto it = std::find_if(c.host_works.begin(), c.host_works.end(), [&](const HostWork& x) {
          return std::string_view(x.name) == w.name;
        });
        if (it == c.host_works.end()) {
          c.host_works.push_back({w.name, 0, 0, 0, 0, 0});
          it = c.host_works.end() - 1;
        }
        it->elements += w.elements;
        it->bytes += w.bytes;
        return;
      }
      default: ++c.host_calls;
    }
    if (in.kind != Kind::Launch) return;
    const Work& w = schedule.works[in.a];
    if (is_collective(w.kind)) {
      auto& x = c.collectives[{static_cast<uint32_t>(w.kind), w.comm.v}];
      ++x.count;
      x.bytes += w.bytes;
    } else if (w.kind == WorkKind::Gemm) {
      ++c.products;
    } else if (w.kind == WorkKind::Kernel) {
      ++c.kernels;
    } else {
      ++c.copies;
    }
  });
  return c;
}

struct Resident {
  Bytes parameters = 0, gradients = 0, buckets = 0, optimizer = 0;
};

// DeepSpeed's: bf16 parameters, fp32 master weights and moments of the rank's own, and the gradients
// that it owns a part of, whole (stages 1 and 2).
Resident resident_zero(const Plan& plan, const Training& t) {
  const int states = t.optimizer.name == Optimizer::Name::none ? 0 : 2;
  Resident r;
  int64_t own = 0;
  for (const Group& g : plan.groups) {
    own += g.shard;
    r.parameters += round_block(2 * (t.strategy == Strategy::zero3 ? g.shard : g.flat));
    int64_t owned = 0;
    for (const ShardedParam& p : g.params)
      if (p.local > 0) owned += p.numel;
    r.gradients += round_block(2 * (t.strategy == Strategy::zero3 ? g.shard : owned));
  }
  r.parameters += round_block(4 * own);
  r.optimizer = states * round_block(4 * own);
  return r;
}

// What a rank holds when the last step that was laid out ends, before gradients go: each tensor
// rounded up to 512 bytes.
Resident resident(const Schedule& schedule) {
  std::array<Bytes, kCategories> live{}, held{};
  LiveWalk walk;
  schedule.for_each([&](const Instr& in, const Segment& segment) {
    if (in.kind == Kind::Mark) {
      const MarkInfo& mark = schedule.marks[in.a];
      if (mark.step >= 0 && !mark.begins_step) held = live;
      return;
    }
    const int change = walk.change(in);
    if (change == 0) return;
    const Buffer& b = schedule.buffers[segment.buffer(in).v];
    live[static_cast<size_t>(b.category)] += change * round_block(b.bytes);
  });
  const auto of = [&](Category c) { return held[static_cast<size_t>(c)]; };
  return {of(Category::parameters), of(Category::gradients) + of(Category::unsharded_gradients),
          of(Category::buckets), of(Category::optimizer_state)};
}

// Rows that differ only in their names stand once.
std::vector<Repeat> runs(const std::vector<GroupRow>& rows) {
  return repeats(rows.size(), [&](size_t i, size_t j) {
    const GroupRow &a = rows[i], &b = rows[j];
    return a.numel == b.numel && a.padded_numel == b.padded_numel && a.reshard == b.reshard &&
           a.shard_bytes == b.shard_bytes;
  });
}

std::string gib(Bytes b) {
  return b >= kGiB   ? fmt::format("{:.2f} GiB", static_cast<double>(b) / static_cast<double>(kGiB))
         : b >= kMiB ? fmt::format("{:.2f} MiB", static_cast<double>(b) / static_cast<double>(kMiB))
                     : fmt::format("{} B", b);
}

std::string name_of(const std::vector<GroupRow>& rows, const Repeat& r) {
  const std::string& name = rows[r.first].name;
  const std::string first = name.empty() ? "(root)" : name;
  return r.count > 1 ? first + " .. " + rows[r.last()].name : first;
}

std::string group_table(const std::vector<GroupRow>& rows) {
  Table table({{"group", "group"},
               {"count", "of them"},
               {"numel", "elements"},
               {"padded", "padded to"},
               {"shard", "shard"},
               {"all_gather", "all-gather"},
               {"reduce_scatter", "reduce-scatter"},
               {"reshard", "reshard"}});
  for (const Repeat& r : runs(rows)) {
    const GroupRow& g = rows[r.first];
    table.add({name_of(rows, r), static_cast<int64_t>(r.count), g.numel, g.padded_numel,
               gib(g.shard_bytes), gib(g.all_gather_bytes), gib(g.reduce_scatter_bytes),
               g.reshard});
  }
  return table.text();
}

// Of parameters that stay whole.
std::string whole_table(const std::vector<GroupRow>& rows) {
  Table table({{"group", "parameters of"},
               {"count", "of them"},
               {"numel", "elements"},
               {"bytes", "bytes"}});
  for (const Repeat& r : runs(rows)) {
    const GroupRow& g = rows[r.first];
    table.add({name_of(rows, r), static_cast<int64_t>(r.count), g.numel, gib(g.shard_bytes)});
  }
  return table.text();
}

std::string name_of(const Model& model, const GradientBucket& b) {
  const std::string first = model.param_name(b.params.front());
  return b.params.size() > 1 ? first + " .. " + model.param_name(b.params.back()) : first;
}

// Buckets that are alike stand once.
std::string bucket_table(const Simulation& s) {
  Table table({{"bucket", "bucket"},
               {"bytes", "bytes"},
               {"type", "type"},
               {"parameters", "parameters"},
               {"names", "in the order of their gradients"}});
  const std::vector<GradientBucket>& all = s.buckets;
  constexpr size_t kShown = 12;  // and the last
  size_t rows = 0;
  for (size_t i = 0; i < all.size();) {
    if (++rows == kShown && all.size() - i > 2) {
      Bytes most = 0;
      for (size_t j = i; j + 1 < all.size(); ++j) most = std::max(most, all[j].bytes);
      table.add({fmt::format("{} .. {}", i + 1, all.size() - 1), "to " + gib(most), "", Cell(),
                 "to " + s.model.param_name(all[all.size() - 2].params.back())});
      i = all.size() - 1;
    }
    size_t end = i + 1;
    while (end < all.size() && all[end].bytes == all[i].bytes && all[end].dtype == all[i].dtype &&
           all[end].params.size() == all[i].params.size())
      ++end;
    std::string number = std::to_string(i + 1);
    std::string names = name_of(s.model, all[i]);
    if (end > i + 1) {
      number += " .. " + std::to_string(end);
      names += " and so on to " + s.model.param_name(all[end - 1].params.back());
    }
    table.add({number, gib(all[i].bytes), std::string(shardsim::name_of(all[i].dtype)),
               static_cast<int64_t>(all[i].params.size()), names});
    i = end;
  }
  return table.text();
}

// The reducer's buckets in the order in which they are reduced.
std::string buckets_text(const Simulation& s) {
  if (s.buckets.empty()) return {};
  std::string sizes;
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(kShown, s.first_buckets.size()); ++i)
    sizes += (i > 0 ? ", " : "") + gib(s.first_buckets[i].bytes);
  if (s.first_buckets.size() > kShown) sizes += ", ...";
  return fmt::format("gradient buckets, each one all-reduce (in the first iteration {}: {})\n",
                     s.first_buckets.size(), sizes) +
         bucket_table(s) + "\n";
}

ordered_json buckets_json(const Simulation& s, const std::vector<GradientBucket>& buckets) {
  ordered_json out = ordered_json::array();
  for (const GradientBucket& b : buckets) {
    ordered_json names = ordered_json::array();
    for (ParamId p : b.params) names.push_back(s.model.param_name(p));
    out.push_back({{"bytes", b.bytes},
                   {"dtype", shardsim::name_of(b.dtype)},
                   {"parameters", std::move(names)}});
  }
  return out;
}

// On several nodes with what leaves each node, as flat rings and at least.
std::string collectives_text(const Cluster& cluster, const Schedule& schedule,
                             const StepCounts& counts) {
  if (counts.collectives.empty()) return {};
  const bool nodes = cluster.nodes > 1;
  std::vector<Table::Column> columns = {
      {"kind", "each step"}, {"communicator", "communicator"}, {"ranks", "ranks"}};
  if (nodes) columns.push_back({"nodes", "nodes"});
  columns.push_back({"count", "count"});
  columns.push_back({"bytes", "whole bytes"});
  if (nodes) columns.push_back({"boundary", "leave a node"});
  if (nodes) columns.push_back({"least", "at least"});
  Table table(std::move(columns));
  for (const auto& [key, x] : counts.collectives) {
    const auto kind = static_cast<WorkKind>(key[0]);
    const Comm& comm = schedule.comms[key[1]];
    const NodeBoundary b = node_boundary(cluster, comm, kind, x.bytes);
    std::vector<Cell> row = {std::string(shardsim::name_of(kind)), comm.name, comm.size};
    if (nodes) row.emplace_back(b.nodes);
    row.emplace_back(x.count);
    row.emplace_back(gib(x.bytes));
    if (nodes) row.emplace_back(b.nodes > 1 ? gib(b.ring) : "");
    if (nodes) row.emplace_back(b.nodes > 1 ? gib(b.least) : "");
    table.add(std::move(row));
  }
  return table.text() + "\n";
}

// A tied tensor once.
int64_t tensors(const Model& model) {
  return std::count_if(model.params.begin(), model.params.end(),
                       [](const Param& p) { return !p.alias.valid(); });
}

int explain(const std::string& path, const Context& context) {
  // Counted is a steady step: the first ones make the optimizer's state, rebuild DDP's buckets and
  // compare stage 3's trace.
  const Scenario loaded = load_scenario(path);
  make_machine(loaded);  // refuses allocator settings, which the steps below are without
  const Scenario scenario = ledger_scenario(loaded);
  const Simulation s = simulate(scenario);
  const Training& t = scenario.training;
  const std::vector<GroupRow> rows = group_rows(s.model, s.plan, t);
  const ModelFacts model = model_facts(scenario, s.model);
  const StepCounts counts = count(s.schedule);
  const Resident held = is_zero(t.strategy) ? resident_zero(s.plan, t) : resident(s.schedule);
  int64_t padding = 0, empty = 0, uneven = 0;
  const bool whole = keeps_parameters_whole(t.strategy);
  for (const Group& g : s.plan.groups) {
    if (whole) break;
    padding += g.padded() - g.numel;
    // A flat parameter is cut where it comes, and so are DeepSpeed's.
    if (t.strategy == Strategy::fsdp1 || is_zero(t.strategy)) continue;
    for (const ShardedParam& p : g.params) {
      if (p.shard * g.ranks != p.numel) ++uneven;
      // The last rank holds nothing where the rows do not reach it.
      const Shape& shape = s.model.params[p.id.v].shape;
      if (local_numel(shape.dim[0], shape.rest(), g.ranks, g.ranks - 1) == 0) ++empty;
    }
  }

  if (context.format == Format::csv) {
    write_output(context, groups_csv(rows));
    return kOk;
  }
  if (context.format == Format::json) {
    ordered_json j;
    j["schema_version"] = 1;
    j["name"] = scenario.name;
    j["model"] = {{"name", model.name},
                  {"params", model.params},
                  {"modules", s.model.modules.size()},
                  {"parameters", s.model.params.size()},
                  {"flops_per_token", model.flops_per_token},
                  {"hfu_flops_per_token", model.hardware_flops_per_token}};
    j["mesh"] = {{"replicate", t.mesh.replicate}, {"shard", t.mesh.shard}};
    j["groups"] = ordered_json::array();
    for (const GroupRow& r : rows)
      j["groups"].push_back({{"name", r.name},
                             {"numel", r.numel},
                             {"padded_numel", r.padded_numel},
                             {"shard_bytes", r.shard_bytes},
                             {"all_gather_bytes", r.all_gather_bytes},
                             {"reduce_scatter_bytes", r.reduce_scatter_bytes},
                             {"reshard", r.reshard}});
    if (!s.buckets.empty()) {
      j["buckets"] = buckets_json(s, s.buckets);
      j["first_buckets"] = buckets_json(s, s.first_buckets);
    }
    if (is_zero(t.strategy)) j["reduce_buckets"] = reduce_buckets(s.schedule);
    j["padding_elements"] = padding;
    j["uneven_parameters"] = uneven;
    j["parameters_with_empty_shards"] = empty;
    j["collectives_per_step"] = ordered_json::array();
    for (const auto& [key, x] : counts.collectives) {
      const auto kind = static_cast<WorkKind>(key[0]);
      const Comm& comm = s.schedule.comms[key[1]];
      const NodeBoundary b = node_boundary(scenario.cluster, comm, kind, x.bytes);
      j["collectives_per_step"].push_back(
          {{"kind", name_of(kind)},
           {"communicator", comm.name},
           {"ranks", comm.size},
           {"nodes", b.nodes},
           {"crosses_nodes", b.nodes > 1},
           {"count", x.count},
           {"bytes_total", x.bytes},
           {"node_boundary_bytes", b.ring},
           {"node_boundary_bytes_least", b.least},
           {"ring_steps", {{"inside", b.steps_inside}, {"between", b.steps_between}}}});
    }
    j["launches_per_step"] = {{"products", counts.products},
                              {"kernels", counts.kernels},
                              {"copies", counts.copies},
                              {"host_calls", counts.host_calls}};
    j["host_work"] = ordered_json::array();
    for (const HostWork& w : counts.host_works)
      j["host_work"].push_back({{"name", w.name}, {"elements", w.elements}, {"bytes", w.bytes}});
    j["resident_bytes"] = {{"parameters", held.parameters},
                           {"gradients", held.gradients},
                           {"optimizer_state", held.optimizer}};
    if (!s.buckets.empty()) j["resident_bytes"]["buckets"] = held.buckets;
    j["ledger"] = ordered_json::parse(
        ledger_json(make_ledger(scenario, s.model, s.plan, s.schedule, s.trace)));
    write_output(context, j.dump(2) + "\n");
    return kOk;
  }

  std::string out = fmt::format("{}\n\n", scenario.name);
  out += fmt::format("model    {}: {} parameters in {} tensors, {} modules, {:.2f} GFLOP a token\n",
                     model.name, grouped(model.params), grouped(tensors(s.model)),
                     grouped(static_cast<int64_t>(s.model.modules.size())),
                     model.flops_per_token / 1e9);
  out += fmt::format("mesh     {} rank{}: {}\n", t.mesh.world(), t.mesh.world() == 1 ? "" : "s",
                     whole ? fmt::format("data parallel {}", t.mesh.world())
                           : fmt::format("shard {}, replicate {}", t.mesh.shard, t.mesh.replicate));
  out += fmt::format("types    stored {}, computed {}{}, reduced {}\n",
                     name_of(t.precision.storage), name_of(compute_dtype(t.precision)),
                     t.precision.autocast
                         ? fmt::format(" under autocast to {}", name_of(*t.precision.autocast))
                         : "",
                     name_of(reduce_dtype(t)));
  if (whole)
    out += "\n";
  else if (is_zero(t.strategy))
    out += zero_parts(s.plan, t) + zero_buckets(s.schedule, t) + "\n";
  else if (t.strategy == Strategy::fsdp1)
    out += fmt::format("padding  {} elements in {} flat parameters\n\n", padding, rows.size());
  else
    out += fmt::format("padding  {} elements; {} of {} tensors uneven, {} with an empty shard\n\n",
                       padding, uneven, tensors(s.model), empty);
  out += (whole ? whole_table(rows) : group_table(rows)) + "\n";
  out += buckets_text(s);
  out += collectives_text(scenario.cluster, s.schedule, counts);
  out += fmt::format("launches a step   {} products, {} kernels, {} copies; {} host calls\n",
                     counts.products, counts.kernels, counts.copies, counts.host_calls);
  for (const HostWork& w : counts.host_works)
    out += fmt::format("  on the host     {}: {} elements, {} read and written\n", w.name,
                       w.elements, format_bytes(w.bytes));
  out += fmt::format("a rank holds      parameters {}, gradients {}, {}optimizer state {}\n",
                     gib(held.parameters), gib(held.gradients),
                     s.buckets.empty() ? "" : fmt::format("buckets {}, ", gib(held.buckets)),
                     gib(held.optimizer));
  const Ledger ledger = make_ledger(scenario, s.model, s.plan, s.schedule, s.trace);
  out += "\n" + ledger_entries(ledger);
  if (is_zero(t.strategy)) out += "\n" + deepspeed_table(ledger.deepspeed);
  write_output(context, out);
  return kOk;
}

}  // namespace

void add_explain(CLI::App& app, Context& context) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "explain", "Shows groups, padding, bytes and counts of a scenario, without timing");
  command->add_option("scenario", *path, "A scenario (.yaml)")->required();
  add_output_options(*command, context);
  command->footer(
      "Examples:\n"
      "  shardsim explain scenarios/llama3-8b-fsdp2-h100x8.yaml\n"
      "  shardsim explain scenarios/small/gpt2-a100x4.yaml --format csv");
  command->callback(
      [path, &context] { context.run = [path, &context] { return explain(*path, context); }; });
}

}  // namespace shardsim
