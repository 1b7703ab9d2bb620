#include "sim/plan/zero_partition.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace shardsim {

std::vector<std::vector<uint32_t>> partition_parameters(std::span<const int64_t> numels,
                                                        int64_t ranks) {
  std::vector<uint32_t> largest_first(numels.size());
  std::iota(largest_first.begin(), largest_first.end(), 0);
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [&](uint32_t a, uint32_t b) { return numels[a] > numels[b]; });
  std::vector<std::vector<uint32_t>> parts(static_cast<size_t>(ranks));
  // Elements so far and rank: the least first, the lowest rank where several have as few.
  using Load = std::pair<int64_t, uint32_t>;
  std::vector<Load> empty;
  for (uint32_t r = 0; r < parts.size(); ++r) empty.emplace_back(0, r);
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least({}, std::move(empty));
  for (uint32_t i : largest_first) {
    const auto [size, rank] = least.top();
    least.pop();
    parts[rank].push_back(i);
    least.emplace(size + numels[i], rank);
  }
  return parts;
}

}  // namespace shardsim
