// The `training` map of a scenario. Every key is PyTorch's knob of that name; defaults are PyTorch's
// too. Keys that belong to features of later builds are known, and refused with a sentence.
#pragma once

#include "sim/config/reader.h"
#include "sim/plan/scenario.h"

namespace shardsim {

// Exact as a double; a hundred times what has been trained on.
inline constexpr int64_t kMostTokenBudget = 1'000'000'000'000'000;
inline constexpr const char* kTokenBudgetHint = "tokens of the whole training: 15e12";

// `world` is the number of ranks that the mesh has to fill.
Training read_training(const Value& value, const Architecture& model, int64_t world);

}  // namespace shardsim
