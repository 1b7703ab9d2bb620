// What torch.compile cannot take here, of keys that are fine each by itself: what breaks a graph, and
// what this build has no graph for. Throws Error::at with the key that decides.
#pragma once

#include "sim/model/model.h"
#include "sim/plan/plan.h"
#include "sim/plan/scenario.h"

namespace shardsim {

constexpr bool compiles_blocks(Compile c) { return c != Compile::none; }
constexpr bool compiles_loss(Compile c) {
  return c == Compile::blocks_and_loss || c == Compile::model_and_loss;
}
constexpr bool compiles_model(Compile c) {
  return c == Compile::model || c == Compile::model_and_loss;
}

void check_compile(const Model& model, const Plan& plan, const Training& training);

}  // namespace shardsim
