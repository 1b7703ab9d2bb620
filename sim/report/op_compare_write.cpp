#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/base/quantity.h"
#include "sim/report/op_compare.h"
#include "sim/report/step_report.h"
#include "sim/report/text.h"

namespace shardsim {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::string>;
constexpr size_t kShown = 12;

double seconds(Time t) { return static_cast<double>(t.ps) / 1e12; }

std::optional<double> error_pct(const OpComparison& c, Time predicted, Time measured) {
  if (!c.same_scale || measured.ps == 0) return std::nullopt;
  return 100 * (static_cast<double>(predicted.ps) / static_cast<double>(measured.ps) - 1);
}

std::string percent_text(const std::optional<double>& pct) {
  if (!pct) return "-";
  if (*pct >= 1e4) return fmt::format("{:.0f} x", *pct / 100 + 1);
  return fmt::format("{:+.1f} %", std::abs(*pct) < .05 ? 0. : *pct);
}

std::string bytes_text(const std::optional<Bytes>& b) { return b ? format_bytes(*b) : "-"; }

std::string time_text(Time t) { return t.ps == 0 ? "-" : duration(t); }

// "layers.3" and "layers.4" are one line for people.
std::vector<OpRow> folded(const std::vector<OpRow>& rows) {
  std::vector<OpRow> out;
  for (const OpRow& row : rows) {
    const std::string key = folded_name(row.key);
    auto it = std::find_if(out.begin(), out.end(),
                           [&](const OpRow& r) { return r.kind == row.kind && r.key == key; });
    if (it == out.end()) {
      out.push_back(row);
      out.back().key = key;
      continue;
    }
    for (size_t side = 0; side < 2; ++side) {
      it->count[side] += row.count[side];
      it->time[side] += row.time[side];
      it->bytes[side] = it->bytes[side] && row.bytes[side]
                            ? std::optional(*it->bytes[side] + *row.bytes[side])
                            : std::nullopt;
    }
  }
  return out;
}

std::string rows_text(const OpComparison& c, std::string_view title, const std::vector<OpRow>& rows,
                      bool kinds, bool keys) {
  if (rows.empty()) return "";
  Cells head{std::string(title), "ops",   "measured", "time",
             "measured",         "error", "bytes",    "measured"};
  std::vector<Cells> cells{std::move(head)};
  for (const OpRow& r : rows) {
    std::string name = kinds ? std::string(name_of(r.kind)) : "";
    if (keys) name += (kinds ? " " : "") + r.key;
    cells.push_back({name, grouped(r.count[0]), grouped(r.count[1]), time_text(r.time[0]),
                     time_text(r.time[1]), percent_text(error_pct(c, r.time[0], r.time[1])),
                     r.count[0] > 0 ? bytes_text(r.bytes[0]) : "-",
                     r.count[1] > 0 ? bytes_text(r.bytes[1]) : "-"});
  }
  return "\n" + aligned(cells, "lrrrrrrr");
}

std::string side_text(const OpLog& log) {
  std::string out =
      fmt::format("{}{}{}, rank {} of {}", log.scenario, log.scenario.empty() ? "" : ", ",
                  name_of(log.source), log.rank, log.world);
  if (log.repeats > 1) out += fmt::format(", {} of {} steps", log.statistic, log.repeats);
  if (log.scale != 1) out += fmt::format(", scale {}", log.scale);
  return out;
}

std::string op_text(const LoggedOp& op) {
  std::string out(name_of(op.kind));
  if (!op.group.empty()) out += " " + op.group;
  if (!op.name.empty() && op.name != name_of(op.kind))
    out += " " + (op.name.size() > 40 ? op.name.substr(0, 37) + "..." : op.name);
  return out;
}

Json optional_json(const auto& value) { return value ? Json(*value) : Json(nullptr); }

Json error_json(const OpComparison& c, Time predicted, Time measured) {
  const std::optional<double> pct = error_pct(c, predicted, measured);
  return pct ? Json(std::round(*pct * 1e4) / 1e4) : Json(nullptr);
}

Json rows_json(const OpComparison& c, const std::vector<OpRow>& rows, const char* key, bool kinds) {
  Json out = Json::array();
  for (const OpRow& r : rows) {
    Json j;
    if (kinds) j["kind"] = name_of(r.kind);
    if (key != nullptr) j[key] = r.key;
    j["predicted_count"] = r.count[0];
    j["measured_count"] = r.count[1];
    j["predicted_s"] = seconds(r.time[0]);
    j["measured_s"] = seconds(r.time[1]);
    j["error_pct"] = error_json(c, r.time[0], r.time[1]);
    j["predicted_bytes"] = optional_json(r.bytes[0]);
    j["measured_bytes"] = optional_json(r.bytes[1]);
    out.push_back(std::move(j));
  }
  return out;
}

Json side_json(const OpLog& log, const OpTimes& t) {
  return {{"source", name_of(log.source)},
          {"scenario", log.scenario},
          {"fingerprint", log.fingerprint.empty() ? Json(nullptr) : Json(log.fingerprint)},
          {"rank", log.rank},
          {"world_size", log.world},
          {"scale", log.scale},
          {"repeats", log.repeats},
          {"statistic", log.statistic},
          {"ops", log.ops.size()},
          {"step_time_s", seconds(log.step_time)},
          {"compute_busy_s", seconds(t.compute_busy)},
          {"comm_busy_s", seconds(t.comm_busy)},
          {"copy_busy_s", seconds(t.copy_busy)},
          {"exposed_comm_s", seconds(t.exposed_comm)},
          {"overlap_fraction", std::round(t.overlap_fraction() * 1e6) / 1e6},
          {"peak_allocated_bytes", optional_json(log.peak_allocated)},
          {"peak_active_bytes", optional_json(log.peak_active)},
          {"peak_reserved_bytes", optional_json(log.peak_reserved)},
          {"environment", log.environment},
          {"warnings", log.warnings}};
}

}  // namespace

std::string op_comparison_table(const OpComparison& c) {
  Lines out;
  out.add("predicted: {}", side_text(c.log[0]));
  out.add("measured:  {}", side_text(c.log[1]));
  out.add("{} of {} and {} ops joined, by {}", grouped(static_cast<int64_t>(c.pairs.size())),
          grouped(static_cast<int64_t>(c.log[0].ops.size())),
          grouped(static_cast<int64_t>(c.log[1].ops.size())),
          c.by_launch ? "launch" : "kind, stream and group in order");
  std::vector<Cells> cells{{"", "predicted", "measured", "error"}};
  const auto time_row = [&](const char* name, Time a, Time b) {
    cells.push_back({name, time_text(a), time_text(b), percent_text(error_pct(c, a, b))});
  };
  time_row("step time", c.log[0].step_time, c.log[1].step_time);
  time_row("compute busy", c.times[0].compute_busy, c.times[1].compute_busy);
  time_row("communication", c.times[0].comm_busy, c.times[1].comm_busy);
  time_row("  exposed", c.times[0].exposed_comm, c.times[1].exposed_comm);
  time_row("copies", c.times[0].copy_busy, c.times[1].copy_busy);
  cells.push_back({"overlap", fmt::format("{:.1f} %", 100 * c.times[0].overlap_fraction()),
                   fmt::format("{:.1f} %", 100 * c.times[1].overlap_fraction()), ""});
  const auto bytes_row = [&](const char* name, const std::optional<Bytes>& a,
                             const std::optional<Bytes>& b) {
    if (!a && !b) return;
    std::optional<double> pct;
    if (a && b && *b > 0) pct = 100 * (static_cast<double>(*a) / static_cast<double>(*b) - 1);
    cells.push_back({name, bytes_text(a), bytes_text(b), percent_text(pct)});
  };
  bytes_row("peak allocated", c.log[0].peak_allocated, c.log[1].peak_allocated);
  bytes_row("peak active", c.log[0].peak_active, c.log[1].peak_active);
  bytes_row("peak reserved", c.log[0].peak_reserved, c.log[1].peak_reserved);
  out.add("");
  out.text(aligned(cells, "lrrr"));
  out.text(rows_text(c, "by kind", c.by_kind, true, false));
  out.text(rows_text(c, "by group", folded(c.by_group), true, true));
  out.text(rows_text(c, "by stream", c.by_stream, false, true));
  if (!c.worst.empty()) {
    std::vector<Cells> worst{{"furthest off", "predicted", "measured", "error"}};
    for (const OpPair& p : c.worst) {
      const LoggedOp &a = c.log[0].ops[p.predicted], &b = c.log[1].ops[p.measured];
      worst.push_back({op_text(a), time_text(a.duration), time_text(b.duration),
                       percent_text(error_pct(c, a.duration, b.duration))});
    }
    out.text("\n" + aligned(worst, "lrrr"));
  }
  if (!c.unmatched.empty()) out.add("\nops without a partner:");
  for (size_t i = 0; i < c.unmatched.size() && i < kShown; ++i) {
    const Unmatched& u = c.unmatched[i];
    out.add("  {} only: {} {}{}{} on {}", u.measured ? "measured" : "predicted", grouped(u.count),
            name_of(u.kind), u.group.empty() ? "" : " " + u.group,
            u.name.empty() || u.name == name_of(u.kind)
                ? ""
                : fmt::format(" ({}{})", u.name.substr(0, 40), u.count > 1 ? ", ..." : ""),
            u.role);
  }
  if (c.unmatched.size() > kShown) out.add("  and {} more", c.unmatched.size() - kShown);
  for (const std::string& flag : c.flags) out.add("note: {}", flag);
  for (size_t side = 0; side < 2; ++side)
    for (const std::string& w : c.log[side].warnings)
      out.add("note: {}: {}", side == 0 ? "predicted" : "measured", w);
  return out.take();
}

std::string op_comparison_json(const OpComparison& c) {
  Json j;
  j["schema_version"] = 1;
  j["joined_by"] = c.by_launch ? "launch" : "order";
  j["joined"] = c.pairs.size();
  j["same_scale"] = c.same_scale;
  j["predicted"] = side_json(c.log[0], c.times[0]);
  j["measured"] = side_json(c.log[1], c.times[1]);
  j["step_time_error_pct"] = error_json(c, c.log[0].step_time, c.log[1].step_time);
  j["by_kind"] = rows_json(c, c.by_kind, nullptr, true);
  j["by_group"] = rows_json(c, c.by_group, "group", true);
  j["by_stream"] = rows_json(c, c.by_stream, "stream", false);
  j["worst"] = Json::array();
  for (const OpPair& p : c.worst) {
    const LoggedOp &a = c.log[0].ops[p.predicted], &b = c.log[1].ops[p.measured];
    j["worst"].push_back({{"kind", name_of(a.kind)},
                          {"group", a.group.empty() ? Json(nullptr) : Json(a.group)},
                          {"predicted_name", a.name},
                          {"measured_name", b.name},
                          {"predicted_launch", optional_json(a.launch)},
                          {"measured_launch", optional_json(b.launch)},
                          {"predicted_s", seconds(a.duration)},
                          {"measured_s", seconds(b.duration)},
                          {"error_pct", error_json(c, a.duration, b.duration)}});
  }
  j["unmatched"] = Json::array();
  for (const Unmatched& u : c.unmatched)
    j["unmatched"].push_back({{"log", u.measured ? "measured" : "predicted"},
                              {"kind", name_of(u.kind)},
                              {"stream", u.role},
                              {"group", u.group.empty() ? Json(nullptr) : Json(u.group)},
                              {"first", u.name},
                              {"count", u.count}});
  j["flags"] = c.flags;
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string op_comparison_csv(const OpComparison& c) {
  std::string out =
      "by,kind,key,predicted_count,measured_count,predicted_s,measured_s,error_pct,"
      "predicted_bytes,measured_bytes\n";
  const auto rows = [&](const char* by, const std::vector<OpRow>& of, bool kinds) {
    for (const OpRow& r : of) {
      const std::optional<double> pct = error_pct(c, r.time[0], r.time[1]);
      const auto bytes = [&](size_t side) {
        return r.bytes[side] ? std::to_string(*r.bytes[side]) : std::string();
      };
      out += fmt::format("{},{},{},{},{},{},{},{},{},{}\n", by, kinds ? name_of(r.kind) : "",
                         csv_field(r.key), r.count[0], r.count[1], seconds(r.time[0]),
                         seconds(r.time[1]), pct ? fmt::format("{:.4f}", *pct) : "", bytes(0),
                         bytes(1));
    }
  };
  rows("kind", c.by_kind, true);
  rows("group", c.by_group, true);
  rows("stream", c.by_stream, false);
  return out;
}

}  // namespace shardsim
