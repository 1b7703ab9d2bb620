#include "sim/config/scenario.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "sim/base/escape.h"
#include "sim/config/attention_backend.h"
#include "sim/config/calibration.h"
#include "sim/config/cluster.h"
#include "sim/config/limits.h"
#include "sim/config/model.h"
#include "sim/config/nccl_tests.h"
#include "sim/config/reader.h"
#include "sim/config/training.h"

namespace shardsim {
namespace {

constexpr int64_t kMostSteps = 64;

// One file of sweeps, or several: -J writes one for each program.
NcclTable read_sweeps(const Value& value, const std::string& file) {
  if (!value.is_list()) return load_nccl_tests(find_beside(value, file));
  NcclTable all;
  for (const Value& item : value.list("files of nccl-tests' output", 1)) {
    NcclTable one = load_nccl_tests(find_beside(item, file));
    all.file += (all.file.empty() ? "" : ", ") + one.file;
    for (NcclSweep& s : one.sweeps) all.sweeps.push_back(std::move(s));
  }
  return all;
}

void read_collectives(const Map& map, CollectiveModel& model, const std::string& file) {
  using Backend = CollectiveModel::Backend;
  if (const std::optional<Value> v = map.find("collectives"))
    model.backend = v->choice<Backend>({{"auto", Backend::automatic},
                                        {"ring", Backend::ring},
                                        {"tuner", Backend::tuner},
                                        {"two_level", Backend::two_level},
                                        {"table", Backend::table}});
  if (const std::optional<Value> v = map.find("nccl"))
    model.nccl =
        v->choice<NcclVersion>({{"2.28", NcclVersion::v2_28}, {"2.30", NcclVersion::v2_30}});
  if (const std::optional<Value> v = map.find("pad_to_16")) model.pad_to_16 = v->boolean();
  if (const std::optional<Value> v = map.find("nccl_table")) {
    if (model.backend != Backend::automatic && model.backend != Backend::table)
      v->fail("only collectives auto and table look a time up");
    model.table = std::make_shared<const NcclTable>(read_sweeps(*v, file));
  } else if (model.backend == Backend::table) {
    map.fail_key("collectives", "the key 'nccl_table' is missing",
                 "the output of nccl-tests, as text or as JSON of -J");
  }
}

Jitter read_jitter(const Value& value) {
  Jitter jitter;
  const Map map(value, {"rank_sigma", "kernel_sigma", "seed"});
  if (const std::optional<Value> v = map.find("rank_sigma"))
    jitter.rank_sigma = v->decimal(0, 1, "standard deviation of the log of a rank's speed");
  if (const std::optional<Value> v = map.find("kernel_sigma"))
    jitter.kernel_sigma = v->decimal(0, 1, "standard deviation of the log of a kernel's time");
  if (const std::optional<Value> v = map.find("seed"))
    jitter.seed = static_cast<uint64_t>(v->whole(0, 1'000'000'000, "of the kernels' factors"));
  return jitter;
}

CostChoice read_cost(const Value& value, const std::string& file, std::string_view gpu) {
  CostChoice cost;
  const Map map(value,
                {"model", "calibration", "sharing", "scale_tax", "jitter", "collectives", "nccl",
                 "nccl_table", "pad_to_16", "kernel_us", "gemm_tflops", "bus_gbps", "host_us"});
  cost.model = map.at("model").choice<CostChoice::Model>(
      {{"roofline", CostChoice::Model::roofline}, {"flat", CostChoice::Model::flat}});
  if (cost.model == CostChoice::Model::roofline) {
    for (std::string_view key : {"kernel_us", "gemm_tflops", "bus_gbps", "host_us"})
      if (map.has(key)) map.fail_key(key, "only model flat has this key");
    if (const std::optional<Value> v = map.find("sharing"))
      cost.sharing = v->choice<bool>({{"on", true}, {"off", false}});
    if (const std::optional<Value> v = map.find("scale_tax")) {
      if (v->is_word("off"))
        cost.scale_tax = 0;
      else if (!v->is_word("on"))
        cost.scale_tax = v->decimal(0, 1, "on, off, or what each doubling of ranks beyond 8 adds");
    }
    if (const std::optional<Value> v = map.find("jitter")) cost.jitter = read_jitter(*v);
    read_collectives(map, cost.collectives, file);
    if (const std::optional<Value> v = map.find("calibration"))
      cost.calibration = read_scenario_calibration(*v, gpu);
    return cost;
  }
  for (std::string_view key : {"calibration", "sharing", "scale_tax", "jitter", "collectives",
                               "nccl", "nccl_table", "pad_to_16"})
    if (map.has(key)) map.fail_key(key, "only model roofline has this key");
  if (const std::optional<Value> v = map.find("kernel_us"))
    cost.flat.kernel_us = v->quantity(Dimension::time, 0, 1e6, "time of one kernel");
  if (const std::optional<Value> v = map.find("gemm_tflops"))
    cost.flat.gemm_tflops =
        v->quantity(Dimension::flops, 0.01, 1e6, "rate of every matrix product");
  if (const std::optional<Value> v = map.find("bus_gbps"))
    cost.flat.bus_gbps = v->quantity(Dimension::rate, 0.001, 1e6, "rate of every collective");
  if (const std::optional<Value> v = map.find("host_us"))
    cost.flat.host_us = v->quantity(Dimension::time, 0, 1e6, "time of one host call");
  return cost;
}

Options read_options(const Value& value) {
  Options options;
  const Map map(value, {"max_steps", "memory"});
  if (const std::optional<Value> v = map.find("max_steps"))
    options.max_steps = v->whole(1, kMostSteps, "steps to play until a step repeats");
  if (const std::optional<Value> v = map.find("memory"))
    options.memory =
        v->choice<MemoryLevel>({{"live", MemoryLevel::live}, {"blocks", MemoryLevel::blocks}});
  return options;
}

// The place of the value at a path like "training.wrap.modules[1]", or of the nearest above it.
Place place_of(Value value, std::string_view path) {
  size_t at = 0;
  while (at < path.size()) {
    const size_t end = std::min(path.find_first_of(".[", at), path.size());
    if (path[at] == '[') break;
    std::optional<Value> next;
    if (value.is_map()) next = Map(value, Map::any_key).find(path.substr(at, end - at));
    if (!next) break;
    value = *next;
    at = end;
    while (at < path.size() && path[at] == '[') {
      const std::vector<Value> items = value.is_list() ? value.list("") : std::vector<Value>();
      size_t i = 0;
      const char* digits = path.data() + at + 1;
      const auto [stop, problem] = std::from_chars(digits, path.data() + path.size(), i);
      if (problem != std::errc() || i >= items.size()) return value.place();
      value = items[i];
      at = static_cast<size_t>(stop - path.data()) + 1;
    }
    if (at < path.size() && path[at] == '.') ++at;
  }
  return value.place();
}

}  // namespace

Scenario parse_scenario(std::string_view text, const std::string& file) {
  return read_scenario(std::make_shared<const Document>(parse_yaml(text, file)), file);
}

Scenario read_scenario(std::shared_ptr<const Document> document, const std::string& file) {
  const Value root(std::move(document));
  if (!root.is_map())
    root.fail("this is no scenario: expected keys and values",
              "a scenario begins with 'shardsim: 1'");
  const Map map(root, {"shardsim", "name", "model", "cluster", "training", "cost", "options"});
  const Value version = map.at("shardsim", "a scenario begins with 'shardsim: 1'");
  if (!version.is_word("1")) version.fail_expected("1, the only version of scenarios there is");
  Scenario scenario;
  scenario.name = std::filesystem::path(file).stem().string();
  if (const std::optional<Value> v = map.find("name")) scenario.name = printable(v->text());
  scenario.model = read_model(map.at("model", "what is trained"), file);
  scenario.cluster = read_cluster(map.at("cluster", "what it runs on"));
  scenario.training = read_training(map.at("training", "how it is trained"), scenario.model,
                                    scenario.cluster.world());
  check_attention_backend(map.at("training"), scenario);
  if (const std::optional<Value> v = map.find("cost"))
    scenario.cost = read_cost(*v, file, scenario.cluster.gpu.name);
  if (!scenario.cost.calibration)
    if (const CalibrationFile* shipped = calibration_for(scenario.cluster.gpu.name))
      scenario.cost.calibration = shipped->sustained;
  if (const std::optional<Value> v = map.find("options")) scenario.options = read_options(*v);
  if (const std::string why = too_large(scenario); !why.empty())
    root.fail("this scenario is too large: " + why);
  scenario.place_of = [root](std::string_view key) { return place_of(root, key); };
  return scenario;
}

Scenario load_scenario(const std::string& path) {
  return parse_scenario(read_text_file(path), path);
}

}  // namespace shardsim
