#include "sim/study/validate_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>

#include "sim/base/quantity.h"
#include "sim/cluster/catalogue.h"
#include "sim/config/reader.h"
#include "sim/cost/collectives.h"
#include "sim/model/model.h"

namespace shardsim {
namespace {

constexpr Bytes kLarge = 32 * kMiB;
// Sizes of gathers are rounded down to a multiple of the ranks: 33,553,920 bytes are 32 MiB too.
constexpr double kAlmost = 0.999;

struct Columns {
  explicit Columns(const CsvTable& t)
      : system(t.need("system")),
        nodes(t.need("nodes")),
        gpus(t.need("gpus")),
        collective(t.need("collective")),
        bytes(t.need("bytes")),
        time(t.need("time_us")),
        gpu(t.column("gpu")),
        link(t.column("link")),
        nccl(t.column("nccl")),
        source(t.column("source")),
        note(t.column("note")) {}
  size_t system, nodes, gpus, collective, bytes, time;
  std::optional<size_t> gpu, link, nccl, source, note;
};

std::string text(const CsvRow& row, const std::optional<size_t>& column) {
  return column ? row.fields[*column] : std::string();
}

std::optional<WorkKind> kind_of(std::string_view name) {
  if (name == "all_gather") return WorkKind::AllGather;
  if (name == "reduce_scatter") return WorkKind::ReduceScatter;
  if (name == "all_reduce") return WorkKind::AllReduce;
  if (name == "broadcast") return WorkKind::Broadcast;
  if (name == "reduce") return WorkKind::Reduce;
  return std::nullopt;
}

double positive(const CsvTable& table, const CsvRow& row, size_t column) {
  const std::optional<double> v = number_of(table, row, column);
  if (!v || *v <= 0)
    throw Error(fmt::format("{}: expected a number above 0, got '{}'", table.header[column],
                            row.fields[column]),
                table.place(row));
  return *v;
}

// 2.30 and later; what came before 2.28 chose by other constants, which are not known here.
NcclVersion version_of(const std::string& release) {
  int major = 0, minor = 0;
  const char* end = release.data() + release.size();
  const auto [dot, error] = std::from_chars(release.data(), end, major);
  if (error == std::errc{} && dot != end) std::from_chars(dot + 1, end, minor);
  return major > 2 || (major == 2 && minor >= 30) ? NcclVersion::v2_30 : NcclVersion::v2_28;
}

std::string why_left_out(const CollectiveSources& sources, const CsvRow& row, const Columns& c) {
  for (const CollectiveSources::LeftOut& rule : sources.left_out) {
    const std::string value = rule.column == "link"     ? text(row, c.link)
                              : rule.column == "note"   ? text(row, c.note)
                              : rule.column == "gpu"    ? text(row, c.gpu)
                              : rule.column == "system" ? row.fields[c.system]
                                                        : text(row, c.source);
    if (matches(rule.pattern, value)) return rule.reason;
  }
  return "";
}

struct Where {
  Cluster cluster;
  Comm comm;
};

// Nothing, with the reason, where no system of the catalogue stands for the row's.
std::optional<Where> where_of(const CollectiveSources& sources, ValidatedCollective& v) {
  std::string preset = v.system;
  bool contiguous = false;
  for (const CollectiveSources::System& s : sources.systems)
    if (matches(s.name, v.system)) {
      preset = s.preset;
      contiguous = s.contiguous;
      break;
    }
  std::optional<Cluster> cluster = find_system(preset);
  if (!cluster) {
    v.left_out = fmt::format(
        "no system of the catalogue stands for {}: write a name of `shardsim list clusters`",
        v.system);
    return std::nullopt;
  }
  const int64_t node = cluster->gpus_per_node;
  Where w{*cluster, {v.ranks, 1, "row"}};
  if (contiguous) {
    v.nodes = ceil_div(v.ranks, node);
  } else if (v.ranks % v.nodes != 0 || v.ranks / v.nodes > node ||
             (v.nodes > 1 && node % (v.ranks / v.nodes) != 0)) {
    v.left_out =
        fmt::format("{} GPUs on {} nodes of {} are not laid out evenly", v.ranks, v.nodes, node);
    return std::nullopt;
  } else if (v.nodes > 1) {
    w.comm.stride = node / (v.ranks / v.nodes);
  }
  w.cluster.nodes = static_cast<int>(v.nodes);
  if (v.nodes > 1 && w.cluster.inter.bus_gbps <= 0) {
    v.left_out = preset + " is one node";
    return std::nullopt;
  }
  return w;
}

void predict(const CollectiveSources& sources, const CsvRow& row, const Columns& c,
             CollectiveModel::Backend backend, ValidatedCollective& v) {
  v.left_out = why_left_out(sources, row, c);
  if (!v.left_out.empty()) return;
  const std::optional<WorkKind> kind = kind_of(v.collective);
  if (!kind) {
    v.left_out = v.collective + " is not priced";
    return;
  }
  if (v.ranks < 2) {
    v.left_out = "one GPU";
    return;
  }
  const std::optional<Where> where = where_of(sources, v);
  if (!where) return;
  Work w;
  w.kind = *kind;
  w.dtype = DType::fp32;
  w.bytes = v.bytes;
  w.op =
      *kind == WorkKind::AllGather || *kind == WorkKind::Broadcast ? ReduceOp::none : ReduceOp::sum;
  CollectiveModel model;
  model.backend = backend;
  model.nccl = version_of(text(row, c.nccl));
  const CollectiveCost cost =
      collective_cost(where->cluster, calibration_of(where->cluster.gpu), where->comm, w, model);
  v.predicted_us = cost.us;
  v.choice = std::string(name_of(cost.algorithm)) + "/" + name_of(cost.protocol);
}

struct Class {
  std::string name;
  bool fitted, nodes, all_reduce, large_only;
  bool is_kind(std::string_view collective) const {
    if (all_reduce) return collective == "all_reduce";
    return collective == "all_gather" || collective == "reduce_scatter";
  }
  bool has(const ValidatedCollective& v) const {
    const bool large = static_cast<double>(v.bytes) >= kAlmost * static_cast<double>(kLarge);
    return v.fitted == fitted && (v.nodes > 1) == nodes && is_kind(v.collective) &&
           (large || !large_only);
  }
};

std::vector<Class> classes() {
  std::vector<Class> out;
  for (bool fitted : {false, true})
    for (bool all_reduce : {false, true})
      for (bool nodes : {false, true})
        for (bool large : {true, false})
          out.push_back({fmt::format("{}: {} {}, {}", fitted ? "fitted" : "kept out",
                                     all_reduce ? "all_reduce" : "gather and scatter",
                                     nodes ? "between nodes" : "in a node",
                                     large ? "32 MiB and more" : "all sizes"),
                         fitted, nodes, all_reduce, large});
  return out;
}

}  // namespace

std::string ValidatedCollective::group() const {
  return fmt::format("{}, {}, {} GPUs on {} node{}", system, collective, ranks, nodes,
                     nodes == 1 ? "" : "s");
}

bool is_collective_table(const CsvTable& table) {
  return table.column("collective") && table.column("bytes") && table.column("time_us");
}

CollectiveSources parse_collective_sources(std::string_view yaml, const std::string& file) {
  const Value root(std::make_shared<const Document>(parse_yaml(yaml, file)));
  const Map map(root, {"systems", "left_out", "fitted"});
  CollectiveSources out;
  if (const std::optional<Value> list = map.find("systems"))
    for (const Value& v : list->list("systems")) {
      const Map m(v, {"name", "preset", "contiguous"});
      CollectiveSources::System s{m.at("name").text(), m.at("preset").text(), false};
      if (const std::optional<Value> b = m.find("contiguous")) s.contiguous = b->boolean();
      if (!find_system(s.preset))
        m.at("preset").fail_expected("the name of a system", "see shardsim list clusters");
      out.systems.push_back(std::move(s));
    }
  if (const std::optional<Value> list = map.find("left_out"))
    for (const Value& v : list->list("rules")) {
      const Map m(v, {"link", "note", "gpu", "system", "source", "reason"});
      const std::string reason = m.at("reason").text();
      const size_t before = out.left_out.size();
      for (const char* column : {"link", "note", "gpu", "system", "source"})
        if (const std::optional<Value> p = m.find(column))
          out.left_out.push_back({column, p->text(), reason});
      if (out.left_out.size() != before + 1)
        v.fail("expected one of link, note, gpu, system, source");
    }
  if (const std::optional<Value> list = map.find("fitted"))
    for (const Value& v : list->list("sources")) {
      const Map m(v, {"system", "source"});
      out.fitted.push_back({m.at("system").text(), m.at("source").text()});
    }
  return out;
}

CollectiveValidation validate_collectives(const CsvTable& table, const CollectiveSources& sources,
                                          CollectiveModel::Backend backend) {
  const Columns c(table);
  CollectiveValidation out;
  for (const CsvRow& row : table.rows) {
    ValidatedCollective& v = out.rows.emplace_back();
    v.line = row.line;
    v.system = row.fields[c.system];
    v.source = text(row, c.source);
    v.collective = row.fields[c.collective];
    v.nodes = std::llround(positive(table, row, c.nodes));
    v.ranks = std::llround(positive(table, row, c.gpus));
    v.bytes = std::llround(positive(table, row, c.bytes));
    v.measured_us = positive(table, row, c.time);
    v.fitted = std::any_of(sources.fitted.begin(), sources.fitted.end(), [&](const auto& f) {
      return matches(f.system, v.system) && matches(f.source, v.source);
    });
    predict(sources, row, c, backend, v);
  }
  std::vector<std::string> names;
  for (const ValidatedCollective& v : out.rows)
    if (v.left_out.empty() && std::find(names.begin(), names.end(), v.group()) == names.end())
      names.push_back(v.group());
  const auto errors = [&](const auto& wanted) {
    std::vector<double> e;
    for (const ValidatedCollective& v : out.rows)
      if (v.left_out.empty() && wanted(v)) e.push_back(v.error_pct());
    return e;
  };
  for (const std::string& name : names)
    out.groups.push_back({name, score(errors([&](const auto& v) { return v.group() == name; }))});
  for (const Class& k : classes()) {
    std::vector<double> e = errors([&](const auto& v) { return k.has(v); });
    if (!e.empty()) out.classes.push_back({k.name, score(std::move(e))});
  }
  return out;
}

}  // namespace shardsim
