// FSDP1's units: which modules an auto-wrap policy makes units, their flat parameters, and what
// FullyShardedDataParallel decides from its arguments.
// Worked number: Llama-2-7B per block on 8 ranks is 33 units; a block's flat parameter has L
// 202,383,360 elements, each rank stores S 25,297,920.
#pragma once

#include <cstdint>

#include "sim/model/model.h"
#include "sim/plan/plan.h"
#include "sim/plan/scenario.h"

namespace shardsim {

// build_plan's part for Strategy::fsdp1. A unit is a Group with its flat parameter's length in `flat`.
// With NO_SHARD every rank keeps the whole: ranks 1, shard L.
Plan build_plan_fsdp1(const Model& model, const Training& training);

// What runs: NO_SHARD where only one rank shares the parameters, as FSDP switches with a warning.
ShardingStrategy effective_sharding_strategy(const Training& training);

// Gradients are divided by this before the reduction, and by world / this after it:
// the smallest power of two f with f f >= world, or that does not divide world. 8 ranks: 4 and 2.
double gradient_predivide_factor(int64_t world);

}  // namespace shardsim
