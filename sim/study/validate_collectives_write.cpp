#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "sim/base/quantity.h"
#include "sim/report/text.h"
#include "sim/study/validate_collectives.h"

namespace shardsim {
namespace {

using Json = nlohmann::ordered_json;

double rounded(double x) { return std::round(x * 1000) / 1000; }

Score totals(const CollectiveValidation& v) {
  std::vector<double> errors;
  for (const ValidatedCollective& r : v.rows)
    if (r.left_out.empty()) errors.push_back(r.error_pct());
  return score(std::move(errors));
}

std::vector<std::string> cells(const NamedScore& named) {
  const Score& s = named.score;
  return {named.name,
          std::to_string(s.count),
          fmt::format("{:.1f}", s.median_abs_pct),
          fmt::format("{:.1f}", s.mean_abs_pct),
          fmt::format("{:.1f}", s.p90_abs_pct),
          fmt::format("{:+.1f}", s.worst_pct),
          fmt::format("{:+.1f}", s.bias_pct)};
}

const std::vector<std::string>& heads() {
  static const std::vector<std::string> h{"", "rows", "median", "mean", "p90", "worst", "bias"};
  return h;
}
constexpr std::string_view kAlign = "lrrrrrr";

}  // namespace

std::string collective_validation_json(const CollectiveValidation& v) {
  Json j;
  j["rows"] = Json::array();
  for (const ValidatedCollective& r : v.rows) {
    const bool out = !r.left_out.empty();
    j["rows"].push_back({{"id", fmt::format("line {}", r.line)},
                         {"source", r.source},
                         {"group", r.group()},
                         {"bytes", r.bytes},
                         {"predicted", out ? Json(nullptr) : Json(rounded(r.predicted_us))},
                         {"measured", r.measured_us},
                         {"error_pct", out ? Json(nullptr) : Json(rounded(r.error_pct()))},
                         {"choice", out ? Json(nullptr) : Json(r.choice)},
                         {"fitted", r.fitted},
                         {"left_out", out ? Json(r.left_out) : Json(nullptr)}});
  }
  j["totals"] = score_json(totals(v));
  j["classes"] = Json::object();
  for (const NamedScore& s : v.classes) j["classes"][s.name] = score_json(s.score);
  j["groups"] = Json::object();
  for (const NamedScore& s : v.groups) j["groups"][s.name] = score_json(s.score);
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string collective_validation_csv(const CollectiveValidation& v) {
  std::string out = "line,group,bytes,measured_us,predicted_us,error_pct,choice,fitted,left_out\n";
  for (const ValidatedCollective& r : v.rows) {
    const bool there = r.left_out.empty();
    fmt::format_to(std::back_inserter(out), "{},{},{},{},{},{},{},{},{}\n", r.line,
                   csv_field(r.group()), r.bytes, r.measured_us,
                   there ? fmt::format("{:.3f}", r.predicted_us) : "",
                   there ? fmt::format("{:.3f}", r.error_pct()) : "", r.choice,
                   r.fitted ? "true" : "false", csv_field(r.left_out));
  }
  return out;
}

std::string collective_validation_table(const CollectiveValidation& v, bool verbose) {
  Lines out;
  std::map<std::string, int> reasons;
  int left_out = 0;
  for (const ValidatedCollective& r : v.rows)
    if (!r.left_out.empty()) {
      ++reasons[r.left_out];
      ++left_out;
    }
  out.add("{} rows of collectives: {} predicted, {} left out", v.rows.size(),
          v.rows.size() - static_cast<size_t>(left_out), left_out);
  for (const auto& [reason, count] : reasons) out.add("  {:>5}  {}", count, reason);
  out.add("");
  out.add("errors in percent of the measured time, by whether the source was fitted");
  std::vector<std::vector<std::string>> rows{heads()};
  for (const NamedScore& s : v.classes) rows.push_back(cells(s));
  out.text(aligned(rows, kAlign));
  out.add("");
  out.add("by system, collective and ranks");
  rows = {heads()};
  for (const NamedScore& s : v.groups) rows.push_back(cells(s));
  out.text(aligned(rows, kAlign));
  if (!verbose) return out.take();
  out.add("");
  out.add("every row, in microseconds");
  rows = {{"line", "", "bytes", "measured", "predicted", "error", "NCCL"}};
  for (const ValidatedCollective& r : v.rows)
    if (r.left_out.empty())
      rows.push_back({std::to_string(r.line), r.group(), format_bytes(r.bytes),
                      fmt::format("{:.1f}", r.measured_us), fmt::format("{:.1f}", r.predicted_us),
                      fmt::format("{:+.1f} %", r.error_pct()), r.choice});
    else
      rows.push_back({std::to_string(r.line), r.group(), format_bytes(r.bytes),
                      fmt::format("{:.1f}", r.measured_us), "", "", r.left_out});
  out.text(aligned(rows, "rlrrrrl"));
  return out.take();
}

}  // namespace shardsim
