// Which rank updates which parameter under torch's ZeroRedundancyOptimizer
// (torch/distributed/optim/zero_redundancy_optimizer.py, _partition_parameters): the largest first,
// each to the rank that has the fewest elements so far, the lowest of them on a tie.
// Worked number: 100, 40, 30, 30, 20, 10 elements on 2 ranks are {0, 4} and {1, 2, 3, 5}.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shardsim {

// By rank: indices of `numels` in the order in which they were given to it.
std::vector<std::vector<uint32_t>> partition_parameters(std::span<const int64_t> numels,
                                                        int64_t ranks);

}  // namespace shardsim
