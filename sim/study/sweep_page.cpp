#include "sim/study/sweep_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "sim/report/html/page.h"

namespace shardsim {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostErrors = 1'000;  // texts
constexpr size_t kLongestError = 500;  // bytes of one

class SweepPage {
 public:
  SweepPage(const StoredSweep& sweep, const Question& question)
      : sweep_(sweep), question_(question) {}

  std::string write(size_t most_points) {
    json_["name"] = sweep_.name;
    json_["question"] = sweep_.question;
    json_["objective"] = name_of(question_.objective);
    json_["fits"] = question_.require.fits;
    json_["require"] = Json::array();
    for (const Bound& b : question_.require.bounds)
      json_["require"].push_back(
          fmt::format("{} {} {}", b.figure, b.at_most ? "at most" : "at least", b.text));
    scenarios();
    points(most_points);
    return html_page("sweep", sweep_.name + " - shardsim sweep",
                     json_.dump(-1, ' ', false, Json::error_handler_t::replace), "");
  }

 private:
  // The axes' places in the study's order where the store has it, else as points name them.
  void scenarios() {
    labels_.resize(sweep_.axes.size());
    json_["scenarios"] = nullptr;
    if (sweep_.scenarios.empty()) return;
    Json parts = Json::parse(sweep_.scenarios, nullptr, false);
    if (parts.is_discarded() || !parts.contains("axes") ||
        parts["axes"].size() != sweep_.axes.size())
      return;
    for (size_t a = 0; a < sweep_.axes.size(); ++a)
      for (const Json& place : parts["axes"][a]["places"]) place_of(a, place["label"]);
    json_["scenarios"] = std::move(parts);
  }

  size_t place_of(size_t axis, const std::string& label) {
    auto& known = labels_[axis];
    const auto [at, fresh] = known.number.try_emplace(label, known.list.size());
    if (fresh) known.list.push_back(label);
    return at->second;
  }

  std::vector<const StoredPoint*> pick(size_t most) {
    std::vector<const StoredPoint*> out;
    for (const StoredPoint& p : sweep_.points)
      if (sweep_.rows.contains(p.key)) out.push_back(&p);
    json_["missing"] = std::max(sweep_.total, std::ssize(sweep_.points)) - std::ssize(out);
    json_["left_out"] = out.size() > most ? out.size() - most : 0;
    if (out.size() <= most) return out;
    // A price may be missing, which is no reason for no page.
    const bool priced = std::any_of(sweep_.rows.begin(), sweep_.rows.end(),
                                    [](const auto& r) { return r.second.cost.has_value(); });
    Question q = question_;
    if (q.objective == Objective::cost && !priced) q.objective = Objective::step_time;
    std::unordered_map<const StoredPoint*, size_t> rank;
    for (const Answer& a : pareto(sweep_, q)) rank.try_emplace(a.point, rank.size());
    for (const Answer& a : ranked(sweep_, q)) rank.try_emplace(a.point, rank.size());
    const auto rank_of = [&](const StoredPoint* p) {
      const auto at = rank.find(p);
      return at == rank.end() ? rank.size() : at->second;
    };
    std::stable_sort(out.begin(), out.end(), [&](const StoredPoint* a, const StoredPoint* b) {
      return rank_of(a) < rank_of(b);
    });
    out.resize(most);
    std::sort(out.begin(), out.end(),
              [](const StoredPoint* a, const StoredPoint* b) { return a->point < b->point; });
    return out;
  }

  void points(size_t most) {
    Json number = Json::array(), row = Json::array();
    std::vector<Json> at(sweep_.axes.size(), Json::array());
    std::unordered_map<std::string, size_t> known;
    std::vector<const SweepRow*> rows;
    for (const StoredPoint* p : pick(most)) {
      const auto [r, fresh] = known.try_emplace(p->key, rows.size());
      if (fresh) rows.push_back(&sweep_.rows.at(p->key));
      number.push_back(p->point);
      row.push_back(r->second);
      for (size_t a = 0; a < at.size(); ++a) at[a].push_back(place_of(a, p->labels.at(a)));
    }
    json_["points"] = {{"number", std::move(number)}, {"row", std::move(row)}, {"at", at}};
    json_["axes"] = Json::array();
    for (size_t a = 0; a < at.size(); ++a)
      json_["axes"].push_back({{"name", sweep_.axes[a]}, {"labels", labels_[a].list}});
    figures(rows);
  }

  void figures(const std::vector<const SweepRow*>& rows) {
    Json out, errors = Json::array();
    std::map<std::string, int64_t> error_of;
    for (const char* key :
         {"step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "exposed_comm_s",
          "overlap_fraction", "peak_bytes", "headroom_bytes", "fits", "gpus", "params", "cost",
          "budget_hours", "budget_gpu_hours", "budget_cost", "excluded", "error"})
      out[key] = Json::array();
    for (const SweepRow* r : rows) {
      const bool any = r->error.empty(), ended = any && r->step_time_s > 0;
      const auto add = [&](const char* key, bool has, auto value) {
        out[key].push_back(has ? Json(value) : Json());
      };
      add("step_time_s", ended, r->step_time_s);
      add("tokens_per_s", ended, r->tokens_per_s);
      add("tokens_per_s_per_gpu", ended, r->tokens_per_s_per_gpu);
      add("mfu", ended, r->mfu);
      add("exposed_comm_s", ended, r->exposed_comm_s);
      add("overlap_fraction", ended, r->overlap_fraction);
      add("peak_bytes", any, r->peak_bytes);
      add("headroom_bytes", any, r->headroom_bytes);
      add("fits", any, r->fits ? 1 : 0);
      add("gpus", any, r->gpus);
      add("params", any, r->params);
      const auto add_known = [&](const char* key, const std::optional<double>& value) {
        add(key, ended && value.has_value(), value.value_or(0));
      };
      add_known("cost", r->cost);
      add_known("budget_hours", r->budget_hours);
      add_known("budget_gpu_hours", r->budget_gpu_hours);
      add_known("budget_cost", r->budget_cost);
      add("excluded", any, why_excluded(question_.require, *r).empty() ? 0 : 1);
      int64_t error = -1;
      if (!any) {
        std::string text = r->error.substr(0, kLongestError);
        if (text.size() < r->error.size()) text += "...";
        if (error_of.size() >= kMostErrors && !error_of.contains(text)) text = "another error";
        const auto [at, fresh] = error_of.try_emplace(text, static_cast<int64_t>(errors.size()));
        if (fresh) errors.push_back(text);
        error = at->second;
      }
      out["error"].push_back(error);
    }
    json_["rows"] = std::move(out);
    json_["errors"] = std::move(errors);
  }

  struct Labels {
    std::unordered_map<std::string, size_t> number;
    std::vector<std::string> list;
  };

  const StoredSweep& sweep_;
  const Question& question_;
  Json json_;
  std::vector<Labels> labels_;  // by axis
};

}  // namespace

std::string sweep_page(const StoredSweep& sweep, const Question& question, size_t most_points) {
  return SweepPage(sweep, question).write(most_points);
}

}  // namespace shardsim
