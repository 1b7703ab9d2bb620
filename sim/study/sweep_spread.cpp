#include "sim/study/sweep_spread.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

namespace shardsim {

namespace {

// The row of a point that counts, or null.
const SweepRow* counted(const StoredSweep& sweep, const Question& q, const StoredPoint& p) {
  const auto row = sweep.rows.find(p.key);
  if (row == sweep.rows.end() || !row->second.error.empty() ||
      !why_excluded(q.require, row->second).empty())
    return nullptr;
  return &row->second;
}

}  // namespace

HeldSpread held_spread(const StoredSweep& sweep, const Question& q, size_t axis) {
  struct Range {
    double low = 0, high = 0;
    int points = 0;
  };
  std::unordered_map<std::string, Range> held;  // by the other axes' places
  for (const StoredPoint& p : sweep.points) {
    const SweepRow* row = counted(sweep, q, p);
    if (row == nullptr || (q.objective == Objective::cost && !row->cost)) continue;
    std::string others;
    for (size_t a = 0; a < p.labels.size(); ++a)
      if (a != axis) others += p.labels[a] + '\0';
    const double value = value_of(q.objective, *row);
    Range& r = held[others];
    r.low = r.points == 0 ? value : std::min(r.low, value);
    r.high = r.points == 0 ? value : std::max(r.high, value);
    ++r.points;
  }
  std::vector<double> apart;
  for (const auto& [others, r] : held)
    if (r.points > 1 && r.low > 0) apart.push_back(r.high / r.low - 1);
  if (apart.empty()) return {};
  std::sort(apart.begin(), apart.end());
  return {apart[apart.size() / 2], apart.back()};
}

TokensPerStep tokens_per_step(const StoredSweep& sweep, const Question& q) {
  TokensPerStep out;
  for (const StoredPoint& p : sweep.points) {
    const SweepRow* row = counted(sweep, q, p);
    if (row == nullptr) continue;
    const double tokens = row->tokens_per_s * row->step_time_s;
    out.fewest = out.most == 0 ? tokens : std::min(out.fewest, tokens);
    out.most = std::max(out.most, tokens);
  }
  return out;
}

}  // namespace shardsim
