// `shardsim list`: the names that a scenario can use.
#include <fmt/format.h>

#include <memory>

#include "sim/base/error.h"
#include "sim/base/spelling.h"
#include "sim/cli/command.h"
#include "sim/cli/table.h"
#include "sim/cluster/catalogue.h"
#include "sim/config/calibration.h"
#include "sim/config/model.h"
#include "sim/model/model.h"

namespace shardsim {
namespace {

Table models() {
  Table table({{"name", "name"},
               {"model_type", "type"},
               {"params", "parameters"},
               {"layers", "layers"},
               {"hidden", "hidden"},
               {"ffn", "ffn"},
               {"heads", "heads"},
               {"kv_heads", "kv heads"},
               {"head_dim", "head dim"},
               {"vocab", "vocabulary"}});
  for (const ModelPreset& preset : model_presets()) {
    const Architecture a =
        read_hf_config(preset.config, std::string(preset.name), std::string(preset.name));
    table.add({a.name, a.model_type, build_model(a).numel(), a.layers, a.hidden, a.ffn, a.heads,
               a.kv_heads, a.head_dim, a.vocab});
  }
  return table;
}

Table gpus() {
  Table table({{"name", "name"},
               {"sms", "SMs"},
               {"compute_capability", "cc"},
               {"fp32_tflops", "fp32 TFLOPS", 1},
               {"tf32_tflops", "tf32", 1},
               {"bf16_tflops", "bf16", 1},
               {"fp16_tflops", "fp16", 1},
               {"memory_gbps", "memory GB/s", 0},
               {"memory_bytes", ""},
               {"memory_gib", "GiB", 2}});
  for (const GpuEntry& entry : gpu_catalogue()) {
    const Gpu gpu = find_gpu(entry.name).value();
    const auto rate = [](double tflops) { return tflops > 0 ? Cell(tflops) : Cell(); };
    table.add({gpu.name, int64_t{gpu.sms}, int64_t{gpu.compute_capability}, rate(gpu.fp32_tflops),
               rate(gpu.tf32_tflops), rate(gpu.bf16_tflops), rate(gpu.fp16_tflops), gpu.memory_gbps,
               gpu.memory_bytes,
               static_cast<double>(gpu.memory_bytes) / static_cast<double>(kGiB)});
  }
  return table;
}

Table clusters() {
  Table table({{"name", "name"},
               {"gpu", "GPU"},
               {"gpus_per_node", "GPUs/node"},
               {"intra_alpha_us", "in a node: us", 1},
               {"intra_bus_gbps", "GB/s", 0},
               {"inter_alpha_us", "between nodes: us", 1},
               {"inter_bus_gbps", "GB/s", 0},
               {"note", ""}});
  for (const SystemEntry& entry : system_catalogue()) {
    const Cluster c = find_system(entry.name).value();
    const bool network = c.inter.bus_gbps > 0;
    table.add({c.name, c.gpu.name, int64_t{c.gpus_per_node}, c.intra.alpha_us, c.intra.bus_gbps,
               network ? Cell(c.inter.alpha_us) : Cell(), network ? Cell(c.inter.bus_gbps) : Cell(),
               std::string(entry.note)});
  }
  return table;
}

Table calibrations() {
  Table table({{"name", "name"},
               {"gpu", "GPU"},
               {"level", "level"},
               {"date", "date"},
               {"rows", "rows fitted on"},
               {"sources", "of sources"}});
  for (const CalibrationFile& c : shipped_calibrations()) {
    int64_t rows = 0;
    for (const DataUsed& d : c.data) rows += d.rows;
    table.add({c.name, c.gpu, std::string(c.kernel ? "kernel" : "sustained"), c.date, rows,
               static_cast<int64_t>(c.data.size())});
  }
  return table;
}

std::string calibration_text(const std::string& name) {
  if (const CalibrationFile* file = find_calibration(name)) return calibration_yaml(*file);
  std::vector<std::string_view> names;
  for (const CalibrationFile& c : shipped_calibrations()) names.push_back(c.name);
  throw Error(fmt::format("there is no calibration '{}'", name), {},
              spelling_hint(name, names, "calibrations"));
}

Table strategies() {
  Table table({{"name", "name"}, {"pytorch", "PyTorch"}, {"description", "what it is"}});
  table.add({"fsdp2", "2.7, 2.15",
             "fully_shard: parameters, gradients and optimizer state sharded by dimension 0; HSDP "
             "with mesh.replicate"});
  table.add({"fsdp1", "2.7, 2.15",
             "FullyShardedDataParallel: each unit's parameters flattened into one and cut in equal "
             "parts; the five sharding strategies"});
  table.add({"ddp", "2.7, 2.15",
             "DistributedDataParallel: parameters whole on every GPU, gradients all-reduced in "
             "buckets beside the backward"});
  table.add({"none", "2.7, 2.15", "one GPU with the whole parameters"});
  table.add(
      {"zero1", "2.15",
       "DeepSpeed 0.19.8, stage 1: optimizer state in equal parts, gradients reduced after the "
       "last micro-batch; with zero.implementation: torch (2.7, 2.15) ZeroRedundancyOptimizer over "
       "DDP, whole parameters' state on one rank each"});
  table.add(
      {"zero2", "2.15", "DeepSpeed 0.19.8, stage 2: gradients too, reduced in each backward"});
  table.add({"zero3", "2.15",
             "DeepSpeed 0.19.8, stage 3: parameters too, gathered by each module's hooks and ahead "
             "along the trace"});
  return table;
}

}  // namespace

void add_list(CLI::App& app, Context& context) {
  auto what = std::make_shared<std::string>();
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "list", "Lists the models, GPUs, clusters, strategies or calibrations to choose from");
  command->add_option("what", *what, "models, gpus, clusters, strategies or calibrations")
      ->required();
  command->add_option("name", *name, "Of a calibration, whose file is printed");
  add_output_options(*command, context);
  command->footer(
      "Examples:\n"
      "  shardsim list models\n"
      "  shardsim list calibrations h100-sxm5-80gb\n"
      "  shardsim list gpus --format csv -o gpus.csv");
  command->callback([what, name, &context] {
    context.run = [what, name, &context] {
      if (!name->empty() && *what != "calibrations")
        throw Error(fmt::format("list {} takes no name, got '{}'", *what, *name));
      if (!name->empty())
        write_output(context, calibration_text(*name));
      else if (*what == "models")
        write_output(context, models().in(context.format));
      else if (*what == "gpus")
        write_output(context, gpus().in(context.format));
      else if (*what == "clusters")
        write_output(context, clusters().in(context.format));
      else if (*what == "calibrations")
        write_output(context, calibrations().in(context.format));
      else if (*what == "strategies")
        write_output(context, strategies().in(context.format));
      else
        throw Error(
            fmt::format("there is no list of '{}'", *what), {},
            spelling_hint(*what, {"models", "gpus", "clusters", "strategies", "calibrations"},
                          "lists"));
      return kOk;
    };
  });
}

}  // namespace shardsim
