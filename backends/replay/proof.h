// Before any device is touched: the ranks' schedules, taken together, can be played to the end. All
// ranks of a communicator must issue the same collectives in the same order, and the graph in which
// such a collective is one vertex for all its ranks must have no cycle: else each of two ranks waits
// in a collective for the other.
//
// Worked example: rank 0 issues an all-gather of "shard" and then an all-reduce of "replicate", both
// on one stream, rank 1 the two in the other order: a cycle, all_gather -> all_reduce -> all_gather.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/schedule/schedule.h"

namespace shardsim {

// By rank. Throws Error that names the first ranks and collectives which do not fit, or the cycle.
void prove(std::span<const Schedule* const> ranks);

// The same of lists that ranks have sent each other (collectives_in_order).
void prove_same_collectives(const std::vector<std::vector<std::string>>& ranks);

}  // namespace shardsim
