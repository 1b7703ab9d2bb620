#include "sim/base/spelling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace shardsim {

int edit_distance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int> cost((a.size() + 1) * width);
  const auto at = [&](size_t i, size_t j) -> int& { return cost[i * width + j]; };
  for (size_t i = 0; i <= a.size(); ++i) at(i, 0) = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) at(0, j) = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      at(i, j) = std::min(
          {at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + (a[i - 1] != b[j - 1] ? 1 : 0)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(a.size(), b.size());
}

std::string spelling_hint(std::string_view word, const std::vector<std::string_view>& known,
                          std::string_view noun) {
  constexpr size_t kLongest = 64;  // a longer word is no typing mistake
  if (word.size() <= kLongest) {
    std::vector<std::string_view> containing;
    for (std::string_view k : known)
      if (word.size() >= 3 && k.find(word) != std::string_view::npos) containing.push_back(k);
    if (containing.size() > 1)
      return fmt::format("{} with '{}': {}", noun, word, fmt::join(containing, ", "));
    std::string_view best;
    int best_distance = std::max(2, static_cast<int>(word.size()) / 3) + 1;
    for (std::string_view k : known) {
      const int distance = edit_distance(word, k);
      if (distance < best_distance && 2 * distance < static_cast<int>(k.size())) {
        best = k;
        best_distance = distance;
      }
    }
    if (!best.empty()) return fmt::format("did you mean '{}'?", best);
  }
  return fmt::format("known {}: {}", noun, fmt::join(known, ", "));
}

}  // namespace shardsim
