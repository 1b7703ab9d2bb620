#include "sim/plan/zero_partition.h"

#include <algorithm>
#include <numeric>

namespace shardsim {

std::vector<std::vector<uint32_t>> partition_parameters(std::span<const int64_t> numels,
                                                        int64_t ranks) {
  std::vector<uint32_t> largest_first(numels.size());
  std::iota(largest_first.begin(), largest_first.end(), 0);
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [&](uint32_t a, uint32_t b) { return numels[a] > numels[b]; });
  std::vector<std::vector<uint32_t>> parts(static_cast<size_t>(ranks));
  std::vector<int64_t> sizes(parts.size(), 0);
  for (uint32_t i : largest_first) {
    const auto least =
        static_cast<size_t>(std::min_element(sizes.begin(), sizes.end()) - sizes.begin());
    parts[least].push_back(i);
    sizes[least] += numels[i];
  }
  return parts;
}

}  // namespace shardsim
