#include "sim/study/score.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "sim/base/error.h"

namespace shardsim {

Score score(const std::vector<double>& errors, std::vector<double> absolute) {
  SHARDSIM_ASSERT(errors.size() == absolute.size(), "each error has its absolute value");
  double bias = 0;
  for (size_t i = 0; i < errors.size(); ++i) {
    bias += errors[i] / static_cast<double>(errors.size());
    absolute[i] = std::copysign(absolute[i], errors[i]);
  }
  Score s = score(std::move(absolute));
  s.bias_pct = bias;
  return s;
}

Score score(std::vector<double> errors) {
  Score s;
  s.count = errors.size();
  if (errors.empty()) return s;
  const auto n = static_cast<double>(errors.size());
  for (double e : errors) {
    s.bias_pct += e / n;
    s.mean_abs_pct += std::abs(e) / n;
  }
  std::sort(errors.begin(), errors.end(),
            [](double a, double b) { return std::abs(a) < std::abs(b); });
  const auto at = [&](double q) {
    const double x = q * (n - 1);
    const auto i = static_cast<size_t>(x);
    const size_t next = std::min(i + 1, errors.size() - 1);
    const double low = std::abs(errors[i]), high = std::abs(errors[next]);
    return low + (x - static_cast<double>(i)) * (high - low);
  };
  s.median_abs_pct = at(.5);
  s.p90_abs_pct = at(.9);
  s.worst_pct = errors.back();
  return s;
}

nlohmann::ordered_json score_json(const Score& s) {
  if (s.count == 0) return nullptr;
  return {{"count", s.count},
          {"median_abs_pct", s.median_abs_pct},
          {"mean_abs_pct", s.mean_abs_pct},
          {"p90_abs_pct", s.p90_abs_pct},
          {"worst_pct", s.worst_pct},
          {"bias_pct", s.bias_pct}};
}

}  // namespace shardsim
