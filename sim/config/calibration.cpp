#include "sim/config/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "sim/base/escape.h"
#include "sim/base/spelling.h"
#include "sim/cluster/catalogue.h"
#include "sim/config/model.h"

namespace shardsim {
namespace {

enum class Level : uint8_t { sustained, kernel, links };

constexpr std::string_view kLinks[] = {"intra", "inter", "rail"};

std::string date_of(const Value& value) {
  std::string text = value.text("the day it was made, \"2026-11-30\"");
  if (!is_date(text)) value.fail_expected("a day as \"2026-11-30\"");
  return text;
}

std::string gpu_of(const Value& value) {
  std::string name = value.text("a GPU of `shardsim list gpus`");
  if (find_gpu(name)) return name;
  std::vector<std::string_view> names;
  for (const GpuEntry& entry : gpu_catalogue()) names.push_back(entry.name);
  value.fail_expected("the name of a GPU", spelling_hint(value.word(), names, "GPUs"));
}

// The shipped calibration of that name, of the same GPU.
const CalibrationFile& base_of(const Value& value, const std::string& gpu) {
  const std::string name = value.text("a calibration of level sustained");
  const CalibrationFile* base = find_calibration(name);
  if (base == nullptr || !base->sustained) {
    std::vector<std::string_view> names;
    for (const CalibrationFile& shipped : shipped_calibrations())
      if (shipped.sustained) names.push_back(shipped.name);
    value.fail_expected("the name of a shipped calibration of level sustained",
                        spelling_hint(name, names, "calibrations"));
  }
  if (base->gpu != gpu)
    value.fail(fmt::format("{} is of the GPU {}, this file of {}", name, base->gpu, gpu));
  return *base;
}

template <class Infos>
std::vector<std::string_view> names_of(const Infos& infos) {
  std::vector<std::string_view> names;
  for (const auto& info : infos) names.push_back(info.name);
  return names;
}

// A number, or {value: number, from: text}.
template <class Infos, class T>
void read_constants(const Value& value, const Infos& infos, T& out, CalibrationFile& file) {
  const Map map(value, names_of(infos));
  for (const auto& info : infos) {
    const std::optional<Value> v = map.find(info.name);
    if (!v) continue;
    if (!v->is_map()) {
      out.*info.member = v->decimal(info.least, info.most, info.meaning);
      continue;
    }
    const Map both(*v, {"value", "from"});
    out.*info.member = both.at("value", info.meaning).decimal(info.least, info.most, info.meaning);
    if (const std::optional<Value> from = both.find("from"))
      file.from[std::string(info.name)] = from->text("where the value comes from");
  }
}

void read_rates(const Value& value, Calibration& c) {
  const std::vector<Value> rates =
      value.list("TFLOPS of FlashAttention-2 at 512, 1k, 2k, 4k, 8k and 16k tokens");
  if (rates.size() != c.attention_tflops.size())
    value.fail(fmt::format("expected {} rates, got {}", c.attention_tflops.size(), rates.size()),
               "TFLOPS at 512, 1k, 2k, 4k, 8k and 16k tokens");
  for (size_t i = 0; i < rates.size(); ++i) c.attention_tflops[i] = rates[i].decimal(.01, 1e6);
}

void read_curves(const Value& value, KernelCalibration& c) {
  std::vector<std::string_view> keys = names_of(curve_constants());
  keys.insert(keys.end(), {"implementation", "pass"});
  for (const Value& item : value.list("curves")) {
    const Map map(item, keys);
    AttentionCurve curve;
    curve.implementation = map.at("implementation", "fa2, fa3, fa4, cudnn").text();
    curve.backward = map.at("pass").choice<bool>({{"forward", false}, {"backward", true}});
    for (const AttentionCurve& other : c.attention)
      if (other.implementation == curve.implementation && other.backward == curve.backward)
        item.fail(fmt::format("the {} pass of {} is there twice",
                              curve.backward ? "backward" : "forward", curve.implementation));
    for (const CurveConstantInfo& info : curve_constants())
      if (const std::optional<Value> v = map.find(info.name))
        curve.*info.member = v->decimal(info.least, info.most);
    c.attention.push_back(std::move(curve));
  }
}

void read_links(const Value& value, CalibrationFile& file) {
  const Map map(value, {"intra", "inter", "rail"});
  for (const std::string_view key : kLinks) {
    const std::optional<Value> v = map.find(key);
    if (!v) continue;
    const Map link(*v, {"alpha_us", "bus_gbps"});
    file.links.emplace(key, Link{link.at("alpha_us").decimal(0, 1e5, "of a step of a ring"),
                                 link.at("bus_gbps").decimal(.001, 1e6, "bus bandwidth")});
  }
  if (file.links.empty()) value.fail("no link is there", "known links: intra, inter, rail");
}

std::vector<DataUsed> read_data(const Value& value) {
  std::vector<DataUsed> data;
  for (const Value& item : value.list("what the constants were fitted on")) {
    const Map map(item, {"source", "rows", "residual_pct"});
    DataUsed d;
    d.source = map.at("source").text();
    d.rows = map.at("rows").whole(0, int64_t{1} << 40);
    d.residual_pct = map.at("residual_pct", "median absolute error after the fit").decimal(0, 1e6);
    data.push_back(std::move(d));
  }
  return data;
}

template <class Infos, class T>
std::string constants_yaml(const Infos& infos, const T& constants, const CalibrationFile& file) {
  std::string out = "constants:\n";
  for (const auto& info : infos) {
    const auto from = file.from.find(info.name);
    const double value = constants.*info.member;
    if (from == file.from.end())
      out += fmt::format("  {}: {}\n", info.name, value);
    else
      out +=
          fmt::format("  {}: {{value: {}, from: {}}}\n", info.name, value, yaml_text(from->second));
  }
  return out;
}

}  // namespace

bool is_date(std::string_view text) {
  const auto digits = [&](size_t from, size_t count) {
    int n = 0;
    for (size_t i = from; i < from + count; ++i) {
      if (text[i] < '0' || text[i] > '9') return -1;
      n = n * 10 + (text[i] - '0');
    }
    return n;
  };
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  const int year = digits(0, 4), month = digits(5, 2), day = digits(8, 2);
  return year >= 0 && month >= 0 && day >= 0 &&
         std::chrono::year_month_day(std::chrono::year(year),
                                     std::chrono::month(static_cast<unsigned>(month)),
                                     std::chrono::day(static_cast<unsigned>(day)))
             .ok();
}

CalibrationFile parse_calibration(std::string_view text, const std::string& file) {
  const Value root(std::make_shared<const Document>(parse_yaml(text, file)));
  constexpr std::string_view kBegin = "a calibration begins with 'calibration: 1'";
  if (!root.is_map())
    root.fail("this is no calibration: expected keys and values", std::string(kBegin));
  const Map map(root, {"calibration", "name", "gpu", "date", "level", "base", "constants",
                       "attention", "links", "data"});
  const Value version = map.at("calibration", kBegin);
  if (!version.is_word("1")) version.fail_expected("1, the only version of calibrations there is");
  CalibrationFile out;
  out.name = std::filesystem::path(file).stem().string();
  if (const std::optional<Value> v = map.find("name")) out.name = printable(v->text());
  if (const std::optional<Value> v = map.find("date")) out.date = date_of(*v);
  if (const std::optional<Value> v = map.find("data")) out.data = read_data(*v);
  const Level level = map.at("level", "sustained (in a training step), kernel (alone) or links")
                          .choice<Level>({{"sustained", Level::sustained},
                                          {"kernel", Level::kernel},
                                          {"links", Level::links}});
  if (level == Level::links) {
    for (const std::string_view key : {"gpu", "base", "constants", "attention"})
      if (map.has(key)) map.fail_key(key, "level links has no such key");
    read_links(map.at("links"), out);
    return out;
  }
  if (map.has("links")) map.fail_key("links", "only level links has this key");
  out.gpu = gpu_of(map.at("gpu", "which GPU's constants these are"));
  const std::optional<Value> constants = map.find("constants"), attention = map.find("attention");
  if (level == Level::sustained) {
    Calibration c = calibration_of(*find_gpu(out.gpu));
    if (const std::optional<Value> v = map.find("base")) {
      const CalibrationFile& base = base_of(*v, out.gpu);
      c = *base.sustained;
      for (const auto& [name, from] : base.from)
        out.from[name] = fmt::format("shipped {}: {}", base.name, from);
    }
    c.name = out.name;
    if (constants) read_constants(*constants, calibration_constants(), c, out);
    if (attention) read_rates(*attention, c);
    out.sustained = std::move(c);
  } else {
    if (map.has("base")) map.fail_key("base", "only level sustained has this key");
    KernelCalibration c;
    c.name = out.name;
    if (constants) read_constants(*constants, kernel_constants(), c, out);
    if (attention) read_curves(*attention, c);
    out.kernel = std::move(c);
  }
  return out;
}

CalibrationFile load_calibration(const std::string& path) {
  return parse_calibration(read_text_file(path), path);
}

double four_digits(double value) {
  return std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr);
}

std::string calibration_yaml(const CalibrationFile& file, std::string_view comment) {
  std::string out;
  while (!comment.empty()) {
    const size_t end = std::min(comment.find('\n'), comment.size());
    out += fmt::format("# {}\n", comment.substr(0, end));
    comment.remove_prefix(std::min(end + 1, comment.size()));
  }
  out += fmt::format("calibration: 1\nname: {}\n", yaml_text(file.name));
  if (!file.gpu.empty()) out += fmt::format("gpu: {}\n", file.gpu);
  if (!file.date.empty()) out += fmt::format("date: \"{}\"\n", file.date);
  if (file.sustained) {
    out += "level: sustained\n";
    out += constants_yaml(calibration_constants(), *file.sustained, file);
    const auto& rates = file.sustained->attention_tflops;
    out += "attention: [";
    for (size_t i = 0; i < rates.size(); ++i) out += fmt::format("{}{}", i ? ", " : "", rates[i]);
    out += "]\n";
  } else if (file.kernel) {
    out += "level: kernel\n";
    out += constants_yaml(kernel_constants(), *file.kernel, file);
    if (!file.kernel->attention.empty()) out += "attention:\n";
    for (const AttentionCurve& curve : file.kernel->attention) {
      out += fmt::format("  - implementation: {}\n    pass: {}\n", yaml_text(curve.implementation),
                         curve.backward ? "backward" : "forward");
      for (const CurveConstantInfo& info : curve_constants())
        out += fmt::format("    {}: {}\n", info.name, curve.*info.member);
    }
  } else {
    out += "level: links\nlinks:\n";
    for (const std::string_view key : kLinks)
      if (const auto link = file.links.find(key); link != file.links.end())
        out += fmt::format("  {}: {{alpha_us: {}, bus_gbps: {}}}\n", key, link->second.alpha_us,
                           link->second.bus_gbps);
  }
  if (!file.data.empty()) out += "data:\n";
  for (const DataUsed& d : file.data)
    out += fmt::format("  - {{source: {}, rows: {}, residual_pct: {}}}\n", yaml_text(d.source),
                       d.rows, d.residual_pct);
  return out;
}

const std::vector<CalibrationFile>& shipped_calibrations() {
  static const std::vector<CalibrationFile> files = [] {
    std::vector<CalibrationFile> out;
    for (const CalibrationPreset& preset : calibration_presets())
      out.push_back(
          parse_calibration(preset.text, fmt::format("calibrations/{}.yaml", preset.name)));
    return out;
  }();
  return files;
}

const CalibrationFile* find_calibration(std::string_view name) {
  for (const CalibrationFile& file : shipped_calibrations())
    if (file.name == name) return &file;
  return nullptr;
}

const CalibrationFile* calibration_for(std::string_view gpu) {
  for (const CalibrationFile& file : shipped_calibrations())
    if (file.sustained && file.gpu == gpu) return &file;
  return nullptr;
}

std::map<std::string, Link, std::less<>> read_link_file(const Value& value) {
  CalibrationFile file = load_calibration(find_beside(value, value.place().file));
  if (file.links.empty())
    value.fail(
        fmt::format("{} holds the constants of a GPU, no links", quoted_for_message(value.word())),
        "links come from a calibration of level links");
  return std::move(file.links);
}

Calibration read_scenario_calibration(const Value& value, std::string_view gpu) {
  const std::string name = value.text("a name of `shardsim list calibrations`, or a file");
  CalibrationFile loaded;
  const CalibrationFile* file = find_calibration(name);
  if (!file) {
    if (name.find('/') == std::string::npos && !name.ends_with(".yaml")) {
      std::vector<std::string_view> names;
      for (const CalibrationFile& shipped : shipped_calibrations())
        if (shipped.sustained) names.push_back(shipped.name);
      value.fail_expected("the name of a calibration, or a file that ends in .yaml",
                          spelling_hint(name, names, "calibrations"));
    }
    loaded = load_calibration(find_beside(value, value.place().file));
    file = &loaded;
  }
  if (!file->sustained)
    value.fail(fmt::format("{} is {}", quoted_for_message(name),
                           file->kernel ? "of single kernels on a cool GPU" : "of links"),
               "a step is priced with a calibration of level sustained");
  if (file->gpu != gpu && find_gpu(gpu))
    value.fail(fmt::format("{} is of the GPU {}, the cluster has {}", quoted_for_message(name),
                           file->gpu, gpu));
  return *file->sustained;
}

}  // namespace shardsim
