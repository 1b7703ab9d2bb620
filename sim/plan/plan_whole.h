// The plan of strategies that keep parameters whole on every rank: nothing is sharded, and the groups
// are there for names only, each block's parameters and those of the rest.
// Worked number: Llama-3-8B has 33 groups, a block's of 218,112,000 elements.
#pragma once

#include "sim/model/model.h"
#include "sim/plan/plan.h"

namespace shardsim {

// build_plan's part for strategies none and ddp. Ranks 1, shard = elements.
Plan build_plan_whole(const Model& model, const Training& training);

}  // namespace shardsim
