#include "sim/cli/validate_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/cli/table.h"
#include "sim/study/score.h"
#include "sim/study/validate_kernels.h"

namespace shardsim {
namespace {

using nlohmann::ordered_json;

constexpr size_t kWorst = 10;

bool predicted(const ValidatedKernel& v) { return v.row.left_out.empty(); }

std::string_view role(const ValidatedKernel& v) {
  if (!predicted(v)) return "left out";
  if (v.contradicts) return "contradicts";
  return v.fitted ? "fitted" : "test";
}

template <class Is>
Score errors_of(const std::vector<ValidatedKernel>& rows, Is is) {
  std::vector<double> errors;
  for (const ValidatedKernel& v : rows)
    if (predicted(v) && is(v)) errors.push_back(v.error_pct());
  return score(std::move(errors));
}

// Groups in the order of their names, each fitted and kept apart.
std::vector<std::pair<std::string, std::string>> groups(const std::vector<ValidatedKernel>& rows) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const ValidatedKernel& v : rows)
    if (predicted(v)) out.emplace_back(v.row.gpu, v.row.kind);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Table by_group(const std::vector<ValidatedKernel>& rows) {
  Table table({{"gpu", "GPU"},
               {"kind", "kind"},
               {"role", "rows"},
               {"rows", "number"},
               {"median_pct", "median %", 1},
               {"mean_pct", "mean %", 1},
               {"bias_pct", "bias %", 1},
               {"worst_pct", "worst %", 1}});
  const auto add = [&](const std::string& gpu, const std::string& kind, std::string_view which) {
    const Score s = errors_of(rows, [&](const ValidatedKernel& v) {
      return (gpu == "all" || (v.row.gpu == gpu && v.row.kind == kind)) && role(v) == which;
    });
    if (s.count > 0)
      table.add({gpu, kind, std::string(which), static_cast<int64_t>(s.count), s.median_abs_pct,
                 s.mean_abs_pct, s.bias_pct, s.worst_pct});
  };
  for (const std::string_view which : {"test", "fitted", "contradicts"}) {
    for (const auto& [gpu, kind] : groups(rows)) add(gpu, kind, which);
    add("all", "", which);
  }
  return table;
}

Table worst(const std::vector<ValidatedKernel>& rows) {
  std::vector<const ValidatedKernel*> order;
  for (const ValidatedKernel& v : rows)
    if (predicted(v) && !v.fitted && !v.contradicts) order.push_back(&v);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::abs(a->error_pct()) > std::abs(b->error_pct());
  });
  order.resize(std::min(order.size(), kWorst));
  Table table({{"line", "line"},
               {"gpu", "GPU"},
               {"kind", "kind"},
               {"shape", "shape"},
               {"measured_us", "measured us", 1},
               {"predicted_us", "predicted us", 1},
               {"error_pct", "error %", 1}});
  for (const ValidatedKernel* v : order)
    table.add({int64_t{v->row.line}, v->row.gpu, v->row.kind, v->row.shape, v->row.time_us,
               v->predicted_us, v->error_pct()});
  return table;
}

Table every(const std::vector<ValidatedKernel>& rows) {
  Table table({{"line", "line"},
               {"kind", "kind"},
               {"gpu", "GPU"},
               {"shape", "shape"},
               {"role", "rows"},
               {"calibration", "calibration"},
               {"measured_us", "measured us", 1},
               {"predicted_us", "predicted us", 1},
               {"error_pct", "error %", 1},
               {"assumed", "assumed"},
               {"left_out", "left out because"},
               {"source", "source"}});
  for (const ValidatedKernel& v : rows) {
    const bool any = predicted(v);
    table.add({int64_t{v.row.line}, v.row.kind, any ? v.row.gpu : v.row.gpu_text, v.row.shape,
               std::string(role(v)), v.calibration, any ? Cell(v.row.time_us) : Cell(),
               any ? Cell(v.predicted_us) : Cell(), any ? Cell(v.error_pct()) : Cell(),
               v.row.assumed, v.row.left_out, v.row.source});
  }
  return table;
}

std::map<std::string, int64_t> reasons(const std::vector<ValidatedKernel>& rows) {
  std::map<std::string, int64_t> out;
  for (const ValidatedKernel& v : rows)
    if (!predicted(v)) ++out[v.row.left_out];
  return out;
}

int64_t count(const std::vector<ValidatedKernel>& rows, std::string_view which) {
  return std::count_if(rows.begin(), rows.end(),
                       [&](const ValidatedKernel& v) { return role(v) == which; });
}

std::string text(const CsvTable& table, const std::vector<ValidatedKernel>& rows) {
  std::string out = fmt::format(
      "{}: {} rows of single kernels, {} kept apart, {} fitted, {} contradict the chip, {} left "
      "out\n\n",
      table.file, rows.size(), count(rows, "test"), count(rows, "fitted"),
      count(rows, "contradicts"), count(rows, "left out"));
  out += by_group(rows).text();
  out +=
      "\nErrors are of predicted against measured times; median and mean of their absolute values. "
      "Rows that contradict\nthe chip are faster than the best rate published for it, any shape.\n";
  const Score apart = errors_of(rows, [](const ValidatedKernel& v) { return !v.fitted; });
  if (apart.count > 0)
    out += fmt::format("With those among them, the {} rows kept apart have a median of {:.1f} %.\n",
                       apart.count, apart.median_abs_pct);
  if (const Table far = worst(rows); apart.count > 0)
    out += fmt::format("\nfarthest of those kept apart\n{}", far.text());
  const std::map<std::string, int64_t> why = reasons(rows);
  if (!why.empty()) out += "\nleft out\n";
  for (const auto& [reason, n] : why) out += fmt::format("  {:>4}  {}\n", n, reason);
  return out;
}

std::string json(const CsvTable& table, const std::vector<ValidatedKernel>& rows) {
  ordered_json j{{"file", table.file}, {"kind", "kernels"}};
  j["groups"] = ordered_json::parse(by_group(rows).json());
  for (const auto& [reason, n] : reasons(rows)) j["left_out"][reason] = n;
  j["rows"] = ordered_json::parse(every(rows).json());
  return j.dump(2) + "\n";
}

}  // namespace

int report_kernels(const CsvTable& table, const Context& context) {
  const std::vector<ValidatedKernel> rows = validate_kernels(table);
  switch (context.format) {
    case Format::table: write_output(context, text(table, rows)); break;
    case Format::json: write_output(context, json(table, rows)); break;
    case Format::csv: write_output(context, every(rows).csv()); break;
  }
  return kOk;
}

}  // namespace shardsim
