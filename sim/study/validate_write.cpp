#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "sim/report/text.h"
#include "sim/study/validate.h"

namespace shardsim {
namespace {

using nlohmann::ordered_json;

// One way of predicting, and what each row's error is under it.
struct Way {
  std::string_view name, sentence;
  std::function<std::optional<double>(const ValidatedRow&)> error;
};

// Places in ways().
enum : size_t { kShipped, kCalibrated, kFitted, kLeftOut, kOneStep, kOtherRows };

const std::vector<Way>& ways() {
  static const std::vector<Way> all{
      {"shipped", "shipped constants",
       [](const ValidatedRow& r) { return std::optional(r.error_pct()); }},
      {"calibrated", "shipped, its source's factor",
       [](const ValidatedRow& r) {
         return r.calibrated_s ? std::optional(r.calibrated_pct()) : std::nullopt;
       }},
      {"fitted", "fitted on the rows of role fit",
       [](const ValidatedRow& r) {
         return r.fitted_s ? std::optional(r.fitted_pct()) : std::nullopt;
       }},
      {"left_out", "its source left out of the fit",
       [](const ValidatedRow& r) { return r.held_s ? std::optional(r.held_pct()) : std::nullopt; }},
      {"one_step", "after one calibrated step",
       [](const ValidatedRow& r) { return r.one_step_pct; }},
      {"other_rows", "after its unit's other rows",
       [](const ValidatedRow& r) { return r.other_rows_pct; }},
  };
  return all;
}

using Choose = std::function<bool(const ValidatedRow&)>;

Score score_of(const Validation& v, const Way& way, const Choose& choose) {
  const bool one_step = &way == &ways()[kOneStep];
  std::vector<double> errors, absolute;
  for (const ValidatedRow& r : v.rows)
    if (r.left_out.empty() && choose(r))
      if (const std::optional<double> e = way.error(r)) {
        errors.push_back(*e);
        if (one_step) absolute.push_back(*r.one_step_abs_pct);
      }
  return one_step ? score(errors, std::move(absolute)) : score(std::move(errors));
}

// Sets of rows that are reported.
struct Part {
  std::string name;
  Choose choose;
};

std::vector<Part> parts(const Validation& v) {
  std::vector<Part> out{
      {"all rows", [](const ValidatedRow&) { return true; }},
      {"fit", [](const ValidatedRow& r) { return r.part.role == RowRole::fit; }},
      {"fit, H100 full_shard",
       [](const ValidatedRow& r) {
         return r.part.role == RowRole::fit && r.gpu.starts_with("h100") &&
                r.row.strategy == "full_shard";
       }},
      {"test", [](const ValidatedRow& r) { return r.part.role == RowRole::test; }},
      {"apart", [](const ValidatedRow& r) { return r.part.role == RowRole::apart; }},
      {"contradictory",
       [](const ValidatedRow& r) { return r.part.role == RowRole::contradictory; }},
      {"unlisted", [](const ValidatedRow& r) { return r.part.role == RowRole::unlisted; }},
  };
  std::erase_if(out, [&](const Part& p) {
    return std::none_of(v.rows.begin(), v.rows.end(),
                        [&](const ValidatedRow& r) { return r.left_out.empty() && p.choose(r); });
  });
  return out;
}

std::vector<std::string> groups(const Validation& v) {
  std::vector<std::string> out;
  for (const ValidatedRow& r : v.rows)
    if (r.left_out.empty() && std::find(out.begin(), out.end(), r.group) == out.end())
      out.push_back(r.group);
  return out;
}

ordered_json optional_json(const std::optional<double>& x) {
  return x ? ordered_json(*x) : ordered_json(nullptr);
}

std::string score_cells(const Score& s) {
  if (s.count == 0) return fmt::format("{:>32}", "");
  return fmt::format("{:6.1f} {:6.1f} {:+7.1f} {:+8.1f}  ", s.mean_abs_pct, s.median_abs_pct,
                     s.bias_pct, s.worst_pct);
}

std::string left_out_lines(const Validation& v) {
  std::map<std::string, size_t> reasons;
  for (const ValidatedRow& r : v.rows)
    if (!r.left_out.empty()) ++reasons[r.group + ": " + r.left_out];
  std::string out = reasons.empty() ? "" : "\nleft out\n";
  for (const auto& [why, n] : reasons) out += fmt::format("{:6} {}\n", n, why);
  return out;
}

// What the two lines after a calibration start from, which is not the line of shipped constants.
std::string calibrated_note(const Validation& v) {
  const bool held = std::any_of(v.rows.begin(), v.rows.end(),
                                [](const ValidatedRow& r) { return r.held_s.has_value(); });
  return fmt::format(
      "\nA unit is the rows of one source on one GPU, compiled or not. After one calibrated step: "
      "one\n"
      "other row of the unit sets the row's factor, over all choices of that row; after the other\n"
      "rows: all of them do.{}\n",
      held ? " Rows of fitted sources start from the prediction that left their\n"
             "source out, as for a source never seen; the shipped constants have seen these rows."
           : "");
}

}  // namespace

std::string validation_json(const Validation& v) {
  ordered_json j;
  j["schema_version"] = 1;
  j["rows"] = ordered_json::array();
  for (const ValidatedRow& r : v.rows) {
    ordered_json row{{"id", r.row.id}, {"source", r.row.source}, {"group", r.group}};
    row["role"] = name_of(r.part.role);
    const bool ok = r.left_out.empty();
    row["left_out"] = ok ? ordered_json(nullptr) : ordered_json(r.left_out);
    if (ok) {
      row["unit"] = r.unit;
      row["gpu"] = r.gpu;
      row["n_gpus"] = r.row.gpus.value_or(0);
      row["model"] = r.row.model;
      row["params"] = r.row.params.value_or(0);
      row["measured"] = r.measured_s;
      row["predicted"] = r.predicted_s;
      row["memory_used"] = r.memory_used;
      row["error_pct"] = r.error_pct();
      row["calibrated_error_pct"] = optional_json(ways()[kCalibrated].error(r));
      row["fitted_error_pct"] = optional_json(ways()[kFitted].error(r));
      row["left_out_error_pct"] = optional_json(ways()[kLeftOut].error(r));
      row["one_step_error_pct"] = optional_json(r.one_step_pct);
      row["one_step_abs_error_pct"] = optional_json(r.one_step_abs_pct);
      row["other_rows_error_pct"] = optional_json(r.other_rows_pct);
      row["assumed"] = r.assumed;
    }
    if (!r.part.why.empty()) row["why"] = r.part.why;
    j["rows"].push_back(std::move(row));
  }
  j["totals"] = score_json(score_of(v, ways()[kShipped], [](const ValidatedRow&) { return true; }));
  for (const Part& p : parts(v))
    for (const Way& w : ways())
      j["parts"][p.name][std::string(w.name)] = score_json(score_of(v, w, p.choose));
  for (const std::string& g : groups(v))
    for (const Way& w : ways())
      j["groups"][g][std::string(w.name)] =
          score_json(score_of(v, w, [&](const ValidatedRow& r) { return r.group == g; }));
  j["constants"] = ordered_json::array();
  for (const FittedConstant& c : v.constants)
    j["constants"].push_back({{"name", c.constant.name},
                              {"gpu", c.constant.gpu},
                              {"prior", c.prior},
                              {"prior_sigma", c.constant.sigma},
                              {"value", c.value},
                              {"standard_error_pct", c.error_pct}});
  j["pairs"] = ordered_json::array();
  for (const PairRow& p : v.pairs)
    j["pairs"].push_back({{"a", v.rows[p.a].row.id},
                          {"b", v.rows[p.b].row.id},
                          {"differs", p.what},
                          {"measured_pct", p.measured_pct},
                          {"predicted_pct", p.predicted_pct},
                          {"points", p.points()}});
  return j.dump(1) + "\n";
}

std::string validation_table(const Validation& v, bool verbose) {
  std::string out;
  const auto add = std::back_inserter(out);
  size_t played = 0, tier_a = 0;
  for (const ValidatedRow& r : v.rows)
    if (r.left_out.empty()) {
      ++played;
      tier_a += r.row.tier == "A";
    }
  fmt::format_to(add, "{} rows: {} simulated ({} of tier A), {} left out\n\n", v.rows.size(),
                 played, tier_a, v.rows.size() - played);
  if (played == 0) return out + left_out_lines(v);
  fmt::format_to(add,
                 "error of the step time, %         rows   mean |e|  median    bias    worst\n");
  for (const Part& p : parts(v))
    for (const Way& w : ways()) {
      const Score s = score_of(v, w, p.choose);
      if (s.count == 0) continue;
      fmt::format_to(add, "{:22} {:32} {:4}  {}\n", p.name, w.sentence, s.count, score_cells(s));
    }
  if (std::any_of(v.rows.begin(), v.rows.end(),
                  [](const ValidatedRow& r) { return r.one_step_pct.has_value(); }))
    out += calibrated_note(v);
  fmt::format_to(add, "\n{:8} {:4}   {:32}{:32}{}\n", "source", "rows",
                 "shipped: mean median bias worst", "source left out", "after its other rows");
  for (const std::string& g : groups(v)) {
    const Choose mine = [&](const ValidatedRow& r) { return r.group == g; };
    const Score s = score_of(v, ways()[kShipped], mine);
    fmt::format_to(add, "{:8} {:4}   {}{}{}\n", g, s.count, score_cells(s),
                   score_cells(score_of(v, ways()[kLeftOut], mine)),
                   score_cells(score_of(v, ways()[kOtherRows], mine)));
  }
  if (!v.constants.empty()) {
    fmt::format_to(add,
                   "\nconstant                 GPU                     prior     fitted    +- %\n");
    for (const FittedConstant& c : v.constants)
      fmt::format_to(add, "{:24} {:20} {:8.4g} {:10.4g} {:7.1f}\n", c.constant.name,
                     c.constant.gpu.empty() ? "all" : c.constant.gpu, c.prior, c.value,
                     c.error_pct);
  }
  if (!v.pairs.empty()) {
    fmt::format_to(add, "\npairs of rows that differ in one column; points apart\n");
    std::map<std::string, std::vector<double>> by;
    for (const PairRow& p : v.pairs) by[p.what].push_back(p.points());
    for (const auto& [what, points] : by) {
      const Score s = score(points);
      fmt::format_to(add, "{:22} {:4} pairs   mean {:.1f}  median {:.1f}  worst {:+.1f}\n", what,
                     s.count, s.mean_abs_pct, s.median_abs_pct, s.worst_pct);
    }
    if (verbose)
      for (const PairRow& p : v.pairs)
        fmt::format_to(add,
                       "  {} -> {} ({}): measured {:+.1f} %, predicted {:+.1f} %, {:+.1f} points\n",
                       v.rows[p.a].row.id, v.rows[p.b].row.id, p.what, p.measured_pct,
                       p.predicted_pct, p.points());
  }
  if (verbose) {
    fmt::format_to(add, "\n{:12} {:14} {:>10} {:>10} {:>8} {:>8}\n", "row", "role", "measured s",
                   "predicted", "error %", "fitted %");
    for (const ValidatedRow& r : v.rows)
      if (r.left_out.empty())
        fmt::format_to(add, "{:12} {:14} {:10.4f} {:10.4f} {:+8.1f} {}\n", r.row.id,
                       name_of(r.part.role), r.measured_s, r.predicted_s, r.error_pct(),
                       r.fitted_s ? fmt::format("{:+8.1f}", r.fitted_pct()) : "");
  }
  std::map<std::string, size_t> assumed;
  for (const ValidatedRow& r : v.rows)
    if (r.left_out.empty())
      for (const std::string& what : r.assumed) ++assumed[what];
  if (!assumed.empty())
    fmt::format_to(add, "\nassumed where rows do not say, by how many of them\n");
  for (const auto& [what, n] : assumed) fmt::format_to(add, "{:6} {}\n", n, what);
  return out + left_out_lines(v);
}

std::string validation_csv(const Validation& v) {
  std::string out =
      "id,group,role,gpu,measured_s,predicted_s,error_pct,calibrated_error_pct,fitted_error_pct,"
      "left_out_error_pct,other_rows_error_pct,left_out\n";
  const auto cell = [](const std::optional<double>& x) {
    return x ? fmt::format("{:.4f}", *x) : std::string();
  };
  for (const ValidatedRow& r : v.rows) {
    out += fmt::format("{},{},{}", csv_field(r.row.id), csv_field(r.group), name_of(r.part.role));
    if (!r.left_out.empty())
      out += fmt::format(",,,,,,,,,{}\n", csv_field(r.left_out));
    else
      out += fmt::format(",{},{:.6f},{:.6f},{:.4f},{},{},{},{},\n", r.gpu, r.measured_s,
                         r.predicted_s, r.error_pct(), cell(ways()[kCalibrated].error(r)),
                         cell(ways()[kFitted].error(r)), cell(ways()[kLeftOut].error(r)),
                         cell(r.other_rows_pct));
  }
  return out;
}

}  // namespace shardsim
