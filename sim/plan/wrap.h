// Which fully_shard calls a wrapping policy makes, in order: bottom-up, the root last.
#pragma once

#include <string>
#include <vector>

#include "sim/model/model.h"
#include "sim/plan/scenario.h"

namespace shardsim {

struct WrapCall {
  std::vector<ModuleId> modules;  // several: fully_shard([a, b, ...])
  Reshard reshard;
};

// Throws Error at a pattern that matches no module.
std::vector<ModuleId> modules_matching(const Model& model, const std::string& pattern,
                                       const std::string& key);

std::vector<WrapCall> wrap_calls(const Model& model, const Training& training);

}  // namespace shardsim
