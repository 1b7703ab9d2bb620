#include "sim/study/sweep_query.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "sim/base/error.h"
#include "sim/study/sweep_spread.h"

namespace shardsim {

namespace {

struct Named {
  std::string_view name;
  Objective objective;
  bool larger_is_better;
};
constexpr Named kObjectives[] = {{"step-time", Objective::step_time, false},
                                 {"tokens-per-s", Objective::tokens_per_s, true},
                                 {"tokens-per-s-per-gpu", Objective::tokens_per_s_per_gpu, true},
                                 {"peak-memory", Objective::peak_memory, false},
                                 {"cost", Objective::cost, false}};

bool larger_is_better(Objective o) {
  for (const Named& n : kObjectives)
    if (n.objective == o) return n.larger_is_better;
  return false;
}

bool better(Objective o, double a, double b) { return larger_is_better(o) ? a > b : a < b; }

bool counts(const Question& q, const SweepRow& row) {
  if (!row.error.empty() || row.step_time_s <= 0) return false;
  if (q.objective == Objective::cost && !row.cost) return false;
  return why_excluded(q.require, row).empty();
}

std::optional<double> figure_of(std::string_view name, const SweepRow& r) {
  if (name == "step_time_s") return r.step_time_s;
  if (name == "tokens_per_s") return r.tokens_per_s;
  if (name == "tokens_per_s_per_gpu") return r.tokens_per_s_per_gpu;
  if (name == "mfu") return r.mfu;
  if (name == "exposed_comm_s") return r.exposed_comm_s;
  if (name == "overlap_fraction") return r.overlap_fraction;
  if (name == "peak_bytes") return static_cast<double>(r.peak_bytes);
  if (name == "headroom_bytes") return static_cast<double>(r.headroom_bytes);
  if (name == "gpus") return static_cast<double>(r.gpus);
  if (name == "params") return static_cast<double>(r.params);
  if (name == "cost_per_1e9_tokens") return r.cost;
  if (name == "budget_hours") return r.budget_hours;
  if (name == "budget_gpu_hours") return r.budget_gpu_hours;
  SHARDSIM_ASSERT(name == "budget_cost", "every figure that a study can bound is one of a row");
  return r.budget_cost;
}

// In the order of the points, a scenario once.
std::vector<Answer> counted(const StoredSweep& sweep, const Question& q) {
  std::vector<Answer> out;
  std::unordered_set<std::string_view> seen;
  for (const StoredPoint& p : sweep.points) {
    const auto row = sweep.rows.find(p.key);
    if (row == sweep.rows.end() || !counts(q, row->second) || !seen.insert(p.key).second) continue;
    out.push_back({&p, &row->second});
  }
  return out;
}

}  // namespace

std::string why_excluded(const Requirements& require, const SweepRow& row) {
  if (require.fits && !row.fits) return "does not fit in memory";
  if (row.step_time_s <= 0) return "no step ended";
  for (const Bound& b : require.bounds) {
    const std::optional<double> v = figure_of(b.figure, row);
    if (!v) return fmt::format("{} is not known", b.figure);
    if (b.at_most ? *v > b.value : *v < b.value)
      return fmt::format("{} is not {} {}", b.figure, b.at_most ? "at most" : "at least", b.text);
  }
  return "";
}

std::optional<Objective> objective_of(std::string_view name) {
  for (const Named& n : kObjectives)
    if (n.name == name) return n.objective;
  return std::nullopt;
}

std::string_view name_of(Objective objective) {
  for (const Named& n : kObjectives)
    if (n.objective == objective) return n.name;
  return "?";
}

std::string objective_names() {
  std::string out;
  for (const Named& n : kObjectives) out += (out.empty() ? "" : ", ") + std::string(n.name);
  return out;
}

double value_of(Objective objective, const SweepRow& row) {
  switch (objective) {
    case Objective::step_time: return row.step_time_s;
    case Objective::tokens_per_s: return row.tokens_per_s;
    case Objective::tokens_per_s_per_gpu: return row.tokens_per_s_per_gpu;
    case Objective::peak_memory: return static_cast<double>(row.peak_bytes);
    case Objective::cost: return row.cost.value_or(0);
  }
  return 0;
}

std::vector<Answer> ranked(const StoredSweep& sweep, const Question& q) {
  const auto ended = [](const auto& r) { return r.second.error.empty(); };
  const auto priced = [](const auto& r) { return r.second.cost.has_value(); };
  if (q.objective == Objective::cost && std::any_of(sweep.rows.begin(), sweep.rows.end(), ended) &&
      std::none_of(sweep.rows.begin(), sweep.rows.end(), priced))
    throw Error("--objective cost: no scenario of this sweep states a price", {},
                "cluster: {price_per_gpu_hour: ...}");
  std::vector<Answer> out = counted(sweep, q);
  std::stable_sort(out.begin(), out.end(), [&](const Answer& a, const Answer& b) {
    return better(q.objective, value_of(q.objective, *a.row), value_of(q.objective, *b.row));
  });
  return out;
}

std::vector<Answer> pareto(const StoredSweep& sweep, const Question& q) {
  std::vector<Answer> all = counted(sweep, q);
  std::stable_sort(all.begin(), all.end(), [](const Answer& a, const Answer& b) {
    return a.row->step_time_s != b.row->step_time_s ? a.row->step_time_s < b.row->step_time_s
                                                    : a.row->peak_bytes < b.row->peak_bytes;
  });
  std::vector<Answer> front;
  for (const Answer& a : all)
    if (front.empty() || a.row->peak_bytes < front.back().row->peak_bytes) front.push_back(a);
  return front;
}

std::vector<AxisEffect> sensitivity(const StoredSweep& sweep, const Question& q) {
  std::vector<AxisEffect> out;
  for (size_t a = 0; a < sweep.axes.size(); ++a) {
    AxisEffect effect;
    effect.axis = sweep.axes[a];
    std::vector<std::vector<double>> values;
    std::unordered_map<std::string_view, size_t> known;
    for (const StoredPoint& p : sweep.points) {
      const auto [place, fresh] = known.try_emplace(p.labels[a], effect.places.size());
      if (fresh) {
        effect.places.push_back({p.labels[a], 0, 0, 0});
        values.emplace_back();
      }
      const auto row = sweep.rows.find(p.key);
      if (row != sweep.rows.end() && counts(q, row->second))
        values[place->second].push_back(value_of(q.objective, row->second));
    }
    double best = 0, worst = 0;
    bool any = false;
    for (size_t i = 0; i < values.size(); ++i) {
      std::vector<double>& v = values[i];
      if (v.empty()) continue;
      std::sort(v.begin(), v.end());
      PlaceEffect& place = effect.places[i];
      place.points = static_cast<int64_t>(v.size());
      place.best = larger_is_better(q.objective) ? v.back() : v.front();
      place.median = v[v.size() / 2];
      if (!any || better(q.objective, place.best, best)) best = place.best;
      if (!any || better(q.objective, worst, place.best)) worst = place.best;
      any = true;
    }
    const double low = std::min(best, worst), high = std::max(best, worst);
    effect.spread = low > 0 ? high / low - 1 : 0;
    const HeldSpread held = held_spread(sweep, q, a);
    effect.held_median = held.median;
    effect.held_most = held.most;
    out.push_back(std::move(effect));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const AxisEffect& a, const AxisEffect& b) { return a.spread > b.spread; });
  return out;
}

}  // namespace shardsim
