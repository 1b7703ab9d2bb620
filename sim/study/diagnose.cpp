#include "sim/study/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "sim/base/error.h"
#include "sim/cost/assumptions.h"
#include "sim/study/parallel.h"
#include "sim/study/step_model.h"

namespace shardsim {
namespace {

using nlohmann::ordered_json;

constexpr double kFar = 100;                  // the most that a resource is moved, either way
constexpr double kHardly = .02;               // a sensitivity that is none
constexpr double kNudge = .02;                // of its logarithm, for sensitivities
constexpr double kCoarse = .2, kFine = 1e-3;  // steps in logarithms

struct Candidate {
  Explains what;
  std::string_view name, unit;
};
constexpr Candidate kCandidates[] = {
    {Explains::network, "bus bandwidth between nodes", "GB/s"},
    {Explains::node, "bus bandwidth inside a node", "GB/s"},
    {Explains::compute, "speed of all kernels", ""},
    {Explains::memory, "speed of memory-bound kernels", ""},
    {Explains::host, "speed of the host", ""},
};

void speed_up(Explains what, double factor, Calibration& c, Cluster& cluster) {
  switch (what) {
    case Explains::network:
      // Stated links are rings of that bandwidth, whatever NCCL was measured at elsewhere.
      cluster.inter.given = cluster.rail.given = true;
      cluster.inter.bus_gbps *= factor;
      cluster.rail.bus_gbps *= factor;
      break;
    case Explains::node:
      cluster.intra.given = true;
      cluster.intra.bus_gbps *= factor;
      break;
    case Explains::compute:
      c.gemm_efficiency *= factor;
      c.thin_gemm_efficiency *= factor;
      c.attention_scale *= factor;
      c.vec *= factor;
      break;
    case Explains::memory: c.vec *= factor; break;
    case Explains::host: c.host_call_us /= factor; break;
  }
}

double now_of(Explains what, const Cluster& c) {
  if (what == Explains::network) return c.inter.bus_gbps;
  if (what == Explains::node) return c.intra.bus_gbps;
  return 1;
}

class Solver {
 public:
  Solver(std::vector<MeasuredStep>& steps, double uncertainty, int threads)
      : steps_(steps), uncertainty_(uncertainty), threads_(threads), models_(steps.size()) {
    parallel_for(steps.size(), threads_, [&](size_t i) {
      models_[i] = std::make_unique<StepModel>(steps_[i].scenario, steps_[i].last_micro_batch);
    });
  }

  std::vector<double> predict(Explains what, double factor) { return predict({{what, factor}}); }
  std::vector<double> predict(const std::vector<std::pair<Explains, double>>& changes) {
    std::vector<double> out(models_.size());
    parallel_for(models_.size(), threads_, [&](size_t i) {
      const Scenario& s = models_[i]->scenario();
      Calibration c = own_calibration(s);
      Cluster cluster = s.cluster;
      for (const auto& [what, factor] : changes) speed_up(what, factor, c, cluster);
      out[i] = models_[i]->seconds(c, cluster);
    });
    return out;
  }

  Explanation explain(const Candidate& r) {
    Explanation e;
    e.what = r.what;
    e.name = r.name;
    e.unit = r.unit;
    e.now = now_of(r.what, steps_.front().scenario.cluster);
    e.sensitivity = sensitivity(r.what, {r.what, 1});
    const double best = least(r.what), edge = std::log(kFar);
    const std::vector<double> at = predict(r.what, std::exp(best));
    const auto n = static_cast<double>(at.size());
    double squares = 0, bias = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      const double off = std::log(at[i] / steps_[i].seconds);
      squares += off * off;
      bias += off / n;
      e.mean_abs_error_pct += std::abs(std::exp(off) - 1) * 100 / n;
    }
    const double variance = std::max(uncertainty_ * uncertainty_, n > 1 ? squares / (n - 1) : 0);
    const bool at_edge = std::abs(best) > edge - 2 * kCoarse;
    if (at_edge || std::abs(bias) > std::sqrt(variance)) {
      e.why_not = why_not(e, best, bias, at_edge);
      return e;
    }
    const std::optional<double> slow = rises(r.what, best, -edge, squares + variance);
    const std::optional<double> fast = rises(r.what, best, edge, squares + variance);
    if (!slow && !fast) {
      e.why_not = fmt::format("any value leaves about {:.1f} %: the steps hardly depend on it",
                              e.mean_abs_error_pct);
      return e;
    }
    e.found = true;
    e.value = e.now * std::exp(best);
    e.low = slow ? e.now * std::exp(*slow) : 0;
    e.high = fast ? e.now * std::exp(*fast) : INFINITY;
    return e;
  }

  // Percent of the step per percent of a resource's speed, on average, with this change in the scenarios.
  double sensitivity(Explains what, std::pair<Explains, double> with) {
    const std::vector<double> at = predict({with, {what, 1}}),
                              nudged = predict({with, {what, std::exp(kNudge)}});
    double sum = 0;
    for (size_t i = 0; i < at.size(); ++i) sum += std::log(at[i] / nudged[i]);
    return sum / kNudge / static_cast<double>(at.size());
  }

 private:
  std::string why_not(const Explanation& e, double best, double bias, bool at_edge) const {
    const std::string off = fmt::format("{:+.1f} %", (std::exp(bias) - 1) * 100);
    if (!at_edge && std::abs(e.sensitivity) < kHardly)
      return fmt::format("the step hardly depends on it: at best it leaves {}", off);
    if (at_edge)
      return fmt::format("even {:.0f} times {} it leaves {}", kFar, best > 0 ? "faster" : "slower",
                         off);
    return fmt::format(
        "at best, {:.3g}{}, it leaves {} on average, more than the {:.3g} % of "
        "--uncertainty",
        e.now * std::exp(best), e.unit.empty() ? "x" : " " + e.unit, off, uncertainty_ * 100);
  }

  // Sum of squared logarithms of predicted over measured.
  double squares(Explains what, double log_factor) {
    const std::vector<double> p = predict(what, std::exp(log_factor));
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const double off = std::log(p[i] / steps_[i].seconds);
      sum += off * off;
    }
    return sum;
  }

  // The logarithm of the factor with the least squares: a coarse walk, then golden sections.
  double least(Explains what) {
    const double edge = std::log(kFar);
    double best = 0, lowest = squares(what, 0);
    for (double x = -edge; x <= edge; x += kCoarse)
      if (const double here = squares(what, x); here < lowest) {
        lowest = here;
        best = x;
      }
    constexpr double kGolden = .6180339887498949;
    double a = best - kCoarse, b = best + kCoarse;
    double left = b - kGolden * (b - a), right = a + kGolden * (b - a);
    double at_left = squares(what, left), at_right = squares(what, right);
    while (b - a > kFine) {
      if (at_left < at_right) {
        b = right;
        right = left;
        at_right = at_left;
        left = b - kGolden * (b - a);
        at_left = squares(what, left);
      } else {
        a = left;
        left = right;
        at_left = at_right;
        right = a + kGolden * (b - a);
        at_right = squares(what, right);
      }
    }
    return (a + b) / 2;
  }

  // Where the squares have risen to `level` on the way from the best to the edge.
  std::optional<double> rises(Explains what, double best, double edge, double level) {
    if (squares(what, edge) < level) return std::nullopt;
    double inside = best, outside = edge;
    while (std::abs(outside - inside) > kFine) {
      const double middle = (inside + outside) / 2;
      (squares(what, middle) < level ? inside : outside) = middle;
    }
    return (inside + outside) / 2;
  }

  std::vector<MeasuredStep>& steps_;
  double uncertainty_;
  int threads_;
  std::vector<std::unique_ptr<StepModel>> models_;
};

}  // namespace

Diagnosis diagnose(std::vector<MeasuredStep> steps, double uncertainty, int threads) {
  if (steps.empty()) throw Error("there is no step to explain");
  for (const MeasuredStep& s : steps)
    if (!(s.seconds > 0)) throw Error(s.name + ": the measured time must be above 0");
  Diagnosis d;
  Solver solver(steps, uncertainty, threads);
  d.predicted_s = solver.predict(Explains::compute, 1);
  const bool network = std::any_of(steps.begin(), steps.end(), [](const MeasuredStep& s) {
    return s.scenario.cluster.nodes > 1;
  });
  std::vector<Candidate> candidates;
  for (const Candidate& r : kCandidates) {
    const bool link = r.what == Explains::network || r.what == Explains::node;
    if (r.what == Explains::network && !network) continue;
    if (link && now_of(r.what, steps.front().scenario.cluster) <= 0) continue;
    candidates.push_back(r);
  }
  // What binds with this change in the scenarios.
  const auto binding = [&](Explains what, double factor, std::string& name, double& most) {
    for (const Candidate& r : candidates) {
      const double here = solver.sensitivity(r.what, {what, factor});
      if (!name.empty() && here <= most) continue;
      name = r.name;
      most = here;
    }
  };
  binding(Explains::compute, 1, d.binds, d.binds_sensitivity);
  for (const Candidate& r : candidates) {
    d.explanations.push_back(solver.explain(r));
    Explanation& e = d.explanations.back();
    if (e.found) binding(e.what, e.value / e.now, e.binds, e.binds_sensitivity);
  }
  const bool several = steps.size() > 1;
  std::stable_sort(d.explanations.begin(), d.explanations.end(),
                   [&](const Explanation& a, const Explanation& b) {
                     if (a.found != b.found) return a.found;
                     if (several && a.found) return a.mean_abs_error_pct < b.mean_abs_error_pct;
                     return a.sensitivity > b.sensitivity;
                   });
  d.steps = std::move(steps);
  return d;
}

std::string diagnosis_table(const Diagnosis& d) {
  std::string out;
  const auto add = std::back_inserter(out);
  fmt::format_to(add, "{:28} {:>12} {:>12} {:>9}\n", "step", "measured s", "predicted s", "error");
  for (size_t i = 0; i < d.steps.size(); ++i)
    fmt::format_to(add, "{:28} {:12.4f} {:12.4f} {:+8.1f}%\n", d.steps[i].name, d.steps[i].seconds,
                   d.predicted_s[i], (d.predicted_s[i] / d.steps[i].seconds - 1) * 100);
  const bool several = d.steps.size() > 1;
  fmt::format_to(add, "\n{:32} {:>10} {:>12} {:>22} {:>11}{}\n", "what would explain it", "now",
                 "needed", "uncertainty", "1 % of it", several ? "   left over" : "");
  for (const Explanation& e : d.explanations) {
    const std::string unit = e.unit.empty() ? "x" : " " + e.unit;
    const std::string needed = e.found ? fmt::format("{:.3g}{}", e.value, unit) : "no value";
    std::string range;
    if (e.found)
      range = std::isinf(e.high) ? fmt::format("above {:.3g}{}", e.low, unit)
                                 : fmt::format("{:.3g} to {:.3g}{}", e.low, e.high, unit);
    fmt::format_to(add, "{:32} {:>10} {:>12} {:>22} {:>9.2f} %{}\n", e.name,
                   fmt::format("{:.3g}{}", e.now, unit), needed, range, e.sensitivity,
                   several ? fmt::format("{:>10.1f} %", e.mean_abs_error_pct) : "");
  }
  bool none = false;
  for (const Explanation& e : d.explanations) {
    if (e.found) continue;
    out += std::exchange(none, true) ? "" : "\nno value\n";
    fmt::format_to(add, "  {}: {}\n", e.name, e.why_not);
  }
  if (d.explanations.empty()) return out;
  out += "\nwhat binds, and what a percent more of it takes off the step\n";
  fmt::format_to(add, "  {:46} {} ({:.2f} %)\n", "as the scenario is", d.binds,
                 d.binds_sensitivity);
  for (const Explanation& e : d.explanations)
    if (e.found)
      fmt::format_to(
          add, "  {:46} {} ({:.2f} %)\n",
          fmt::format("if {}: {:.3g}{}", e.name, e.value, e.unit.empty() ? "x" : " " + e.unit),
          e.binds, e.binds_sensitivity);
  if (several && d.explanations.front().found)
    fmt::format_to(add, "\nWhat leaves least over: {}, {:.1f} % on average.\n",
                   d.explanations.front().name, d.explanations.front().mean_abs_error_pct);
  return out;
}

std::string diagnosis_json(const Diagnosis& d) {
  ordered_json j;
  j["schema_version"] = 1;
  j["steps"] = ordered_json::array();
  for (size_t i = 0; i < d.steps.size(); ++i)
    j["steps"].push_back({{"name", d.steps[i].name},
                          {"measured_s", d.steps[i].seconds},
                          {"predicted_s", d.predicted_s[i]}});
  j["explanations"] = ordered_json::array();
  for (const Explanation& e : d.explanations) {
    ordered_json x{{"what", e.name}, {"unit", e.unit.empty() ? "factor" : e.unit}, {"now", e.now}};
    x["needed"] = e.found ? ordered_json(e.value) : ordered_json(nullptr);
    x["low"] = e.found ? ordered_json(e.low) : ordered_json(nullptr);
    x["high"] = e.found && !std::isinf(e.high) ? ordered_json(e.high) : ordered_json(nullptr);
    x["sensitivity"] = e.sensitivity;
    x["mean_abs_error_pct"] = e.found ? ordered_json(e.mean_abs_error_pct) : ordered_json(nullptr);
    x["why_not"] = e.found ? ordered_json(nullptr) : ordered_json(e.why_not);
    x["binds"] = e.found ? ordered_json(e.binds) : ordered_json(nullptr);
    x["binds_sensitivity"] = e.found ? ordered_json(e.binds_sensitivity) : ordered_json(nullptr);
    j["explanations"].push_back(std::move(x));
  }
  j["binds"] = d.binds.empty() ? ordered_json(nullptr) : ordered_json(d.binds);
  j["binds_sensitivity"] = d.binds_sensitivity;
  return j.dump(1) + "\n";
}

}  // namespace shardsim
