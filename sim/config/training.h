// The `training` map of a scenario. Every key is PyTorch's knob of that name; defaults are PyTorch's
// too. Keys that belong to features of later builds are known, and refused with a sentence.
#pragma once

#include "sim/config/reader.h"
#include "sim/plan/scenario.h"

namespace shardsim {

// `world` is the number of ranks that the mesh has to fill.
Training read_training(const Value& value, const Architecture& model, int64_t world);

}  // namespace shardsim
