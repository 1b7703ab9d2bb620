#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/base/quantity.h"
#include "sim/report/text.h"
#include "sim/study/sweep_query.h"
#include "sim/study/sweep_spread.h"

namespace shardsim {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPlaces = 40;  // of an axis, in the table

std::string seconds(double s) { return duration(Time{static_cast<int64_t>(s * 1e12)}); }

std::string value_text(Objective o, double v) {
  switch (o) {
    case Objective::step_time: return seconds(v);
    case Objective::peak_memory: return format_bytes(static_cast<Bytes>(v));
    case Objective::cost: return fmt::format("{:.2f}", v);
    default: return grouped(static_cast<int64_t>(v));
  }
}

std::string number(const std::optional<double>& v) {
  if (!v) return "-";
  return *v < 100 ? fmt::format("{:.2f}", *v) : grouped(std::llround(*v));
}

std::vector<std::string> cells(const Answer& a, bool budget) {
  std::vector<std::string> out{std::to_string(a.point->point)};
  for (const std::string& label : a.point->labels) out.push_back(label);
  const SweepRow& r = *a.row;
  out.push_back(seconds(r.step_time_s));
  out.push_back(grouped(static_cast<int64_t>(r.tokens_per_s)));
  out.push_back(fmt::format("{:.1f} %", 100 * r.mfu));
  out.push_back(format_bytes(r.peak_bytes) + (r.fits ? "" : " (does not fit)"));
  out.push_back(
      fmt::format("{:.1f} %", r.step_time_s > 0 ? 100 * r.exposed_comm_s / r.step_time_s : 0));
  out.push_back(r.cost ? fmt::format("{:.2f}", *r.cost) : "-");
  if (budget) {
    out.push_back(number(r.budget_hours));
    out.push_back(number(r.budget_gpu_hours));
    out.push_back(number(r.budget_cost));
  }
  return out;
}

bool plans(const StoredSweep& sweep) {
  return std::any_of(sweep.rows.begin(), sweep.rows.end(),
                     [](const auto& r) { return r.second.budget_hours.has_value(); });
}

std::string answers_table(const StoredSweep& sweep, const std::vector<Answer>& answers,
                          size_t most) {
  std::vector<std::string> head{"point"};
  for (const std::string& a : sweep.axes) head.push_back(a);
  for (const char* h : {"step", "tokens/s", "MFU", "peak memory", "exposed", "cost/1e9"})
    head.emplace_back(h);
  const bool budget = plans(sweep);
  if (budget)
    for (const char* h : {"hours", "GPU-hours", "cost"}) head.emplace_back(h);
  std::vector<std::vector<std::string>> rows{head};
  for (size_t i = 0; i < answers.size() && i < most; ++i) rows.push_back(cells(answers[i], budget));
  return aligned(rows,
                 "r" + std::string(sweep.axes.size(), 'l') + "rrrrrr" + (budget ? "rrr" : ""));
}

Json figures(const SweepRow& r, const Requirements& require) {
  Json j;
  if (!r.error.empty()) {
    j["error"] = r.error;
    return j;
  }
  const bool ended = r.step_time_s > 0;
  const auto number = [&](double v) { return ended ? Json(v) : Json(); };
  j["error"] = nullptr;
  j["step_time_s"] = number(r.step_time_s);
  j["tokens_per_s"] = number(r.tokens_per_s);
  j["tokens_per_s_per_gpu"] = number(r.tokens_per_s_per_gpu);
  j["mfu"] = number(r.mfu);
  j["exposed_comm_s"] = number(r.exposed_comm_s);
  j["overlap_fraction"] = number(r.overlap_fraction);
  j["peak_bytes"] = r.peak_bytes;
  j["headroom_bytes"] = r.headroom_bytes;
  j["fits"] = r.fits;
  j["gpus"] = r.gpus;
  j["params"] = r.params;
  const auto optional = [](const std::optional<double>& v) { return v ? Json(*v) : Json(); };
  j["cost_per_1e9_tokens"] = optional(r.cost);
  j["budget_hours"] = optional(r.budget_hours);
  j["budget_gpu_hours"] = optional(r.budget_gpu_hours);
  j["budget_cost"] = optional(r.budget_cost);
  const std::string why = why_excluded(require, r);
  j["excluded"] = why.empty() ? Json() : Json(why);
  return j;
}

std::vector<int64_t> numbers(const std::vector<Answer>& answers) {
  std::vector<int64_t> out;
  out.reserve(answers.size());
  for (const Answer& a : answers) out.push_back(a.point->point);
  return out;
}

}  // namespace

std::string sweep_table(const StoredSweep& sweep, const Question& q, size_t most) {
  int64_t failed = 0, too_large = 0, missing = 0, excluded = 0;
  for (const StoredPoint& p : sweep.points) {
    const auto row = sweep.rows.find(p.key);
    if (row == sweep.rows.end())
      ++missing;
    else if (!row->second.error.empty())
      ++failed;
    else if (!row->second.fits)
      ++too_large;
    else if (!why_excluded(q.require, row->second).empty())
      ++excluded;
  }
  Lines out;
  const int64_t points = std::ssize(sweep.points);
  missing += std::max<int64_t>(0, sweep.total - points);
  out.add("{}: {} points, {} scenarios", sweep.name,
          points < sweep.total ? fmt::format("{} of {}", grouped(points), grouped(sweep.total))
                               : grouped(points),
          grouped(static_cast<int64_t>(sweep.rows.size())));
  if (!sweep.question.empty()) out.add("  {}", sweep.question);
  if (too_large > 0) out.add("  {} points do not fit in memory", grouped(too_large));
  if (excluded > 0) out.add("  {} points are not what the study requires", grouped(excluded));
  if (failed > 0) out.add("  {} points are no scenario that can be played", grouped(failed));
  if (missing > 0) out.add("  {} points are still to be played", grouped(missing));
  for (const StoredPoint& p : sweep.points) {
    const auto row = sweep.rows.find(p.key);
    if (row == sweep.rows.end() || row->second.error.empty()) continue;
    out.add("    the first of them, point {}: {}", p.point, row->second.error);
    break;
  }
  const std::vector<Answer> best = ranked(sweep, q);
  if (best.empty()) {
    out.add("");
    out.add("no point {}", !q.require.bounds.empty() ? "is what the study requires"
                           : q.require.fits          ? "fits: --any counts the others too"
                                                     : "has ended");
    return out.take();
  }
  out.add("");
  out.add("best by {}{}", name_of(q.objective), q.require.fits ? ", of what fits" : "");
  out.text(answers_table(sweep, best, most));
  if (const TokensPerStep t = tokens_per_step(sweep, q);
      q.objective == Objective::step_time && t.most > 1.001 * t.fewest)
    out.add("  steps are of {} to {} tokens: --objective tokens-per-s-per-gpu compares rates",
            grouped(std::llround(t.fewest)), grouped(std::llround(t.most)));
  out.add("");
  out.add("step time against peak memory: no other point is better in both");
  out.text(answers_table(sweep, pareto(sweep, q), most));
  out.add("");
  out.add("what each axis does to {}", name_of(q.objective));
  std::vector<std::vector<std::string>> rows{{"axis", "place", "points", "best", "median"}};
  for (const AxisEffect& e : sensitivity(sweep, q)) {
    for (size_t i = 0; i < e.places.size() && i < kMostPlaces; ++i) {
      const PlaceEffect& p = e.places[i];
      const bool any = p.points > 0;
      rows.push_back({i == 0 ? fmt::format("{} ({:.1f} % apart)", e.axis, 100 * e.spread)
                      : i == 1 && e.held_most > 0
                          ? fmt::format("  others held: {:.1f} %, at most {:.1f} %",
                                        100 * e.held_median, 100 * e.held_most)
                          : "",
                      p.label, grouped(p.points), any ? value_text(q.objective, p.best) : "-",
                      any ? value_text(q.objective, p.median) : "-"});
    }
    if (e.places.size() > kMostPlaces)
      rows.push_back({"",
                      fmt::format("... and {} more",
                                  grouped(static_cast<int64_t>(e.places.size() - kMostPlaces))),
                      "", "", ""});
  }
  out.text(aligned(rows, "llrrr"));
  return out.take();
}

std::string sweep_csv(const StoredSweep& sweep, const Requirements& require) {
  std::vector<std::string> head{"point"};
  for (const std::string& a : sweep.axes) head.push_back(csv_field(a));
  std::string out = fmt::format(
      "{},step_time_s,tokens_per_s,tokens_per_s_per_gpu,mfu,exposed_comm_s,overlap_fraction,"
      "peak_bytes,headroom_bytes,fits,gpus,params,cost_per_1e9_tokens,budget_hours,"
      "budget_gpu_hours,budget_cost,excluded,error\n",
      fmt::join(head, ","));
  for (const StoredPoint& p : sweep.points) {
    const auto found = sweep.rows.find(p.key);
    if (found == sweep.rows.end()) continue;
    const SweepRow& r = found->second;
    std::vector<std::string> line{std::to_string(p.point)};
    for (const std::string& label : p.labels) line.push_back(csv_field(label));
    if (!r.error.empty()) {
      line.insert(line.end(), 16, "");
    } else {
      const bool ended = r.step_time_s > 0;
      for (double v : {r.step_time_s, r.tokens_per_s, r.tokens_per_s_per_gpu, r.mfu,
                       r.exposed_comm_s, r.overlap_fraction})
        line.push_back(ended ? fmt::format("{}", v) : "");
      for (int64_t v : {r.peak_bytes, r.headroom_bytes}) line.push_back(std::to_string(v));
      line.emplace_back(r.fits ? "true" : "false");
      for (int64_t v : {r.gpus, r.params}) line.push_back(std::to_string(v));
      for (const std::optional<double>& v :
           {r.cost, r.budget_hours, r.budget_gpu_hours, r.budget_cost})
        line.push_back(v ? fmt::format("{}", *v) : "");
      line.push_back(csv_field(why_excluded(require, r)));
    }
    line.push_back(csv_field(r.error));
    out += fmt::format("{}\n", fmt::join(line, ","));
  }
  return out;
}

std::string sweep_json(const StoredSweep& sweep, const Question& q) {
  Json j;
  j["schema_version"] = 1;
  j["name"] = sweep.name;
  j["question"] = sweep.question;
  j["axes"] = sweep.axes;
  j["total"] = std::max(sweep.total, std::ssize(sweep.points));
  j["points"] = Json::array();
  for (const StoredPoint& p : sweep.points) {
    const auto row = sweep.rows.find(p.key);
    if (row == sweep.rows.end()) continue;
    Json one;
    one["point"] = p.point;
    one["labels"] = p.labels;
    one.update(figures(row->second, q.require));
    j["points"].push_back(std::move(one));
  }
  j["objective"] = name_of(q.objective);
  j["best"] = numbers(ranked(sweep, q));
  j["pareto"] = numbers(pareto(sweep, q));
  j["sensitivity"] = Json::array();
  for (const AxisEffect& e : sensitivity(sweep, q)) {
    Json places = Json::array();
    for (const PlaceEffect& p : e.places)
      places.push_back({{"label", p.label},
                        {"points", p.points},
                        {"best", p.points > 0 ? Json(p.best) : Json()},
                        {"median", p.points > 0 ? Json(p.median) : Json()}});
    j["sensitivity"].push_back({{"axis", e.axis},
                                {"spread", e.spread},
                                {"held_median", e.held_median},
                                {"held_most", e.held_most},
                                {"places", places}});
  }
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace shardsim
