// Two scenarios, simulated and told apart: what `shardsim diff` shows.
#pragma once

#include <string>

#include "sim/report/diff.h"
#include "sim/study/simulate.h"

namespace shardsim {

// Names of the parameters of each group, as PyTorch's named_parameters() gives them before wrapping.
std::vector<std::vector<std::string>> parameters_of_groups(const Model& model, const Plan& plan);

struct CompareSide {
  std::string file;  // for errors that have no place of their own
  const Scenario* scenario = nullptr;
  std::vector<std::pair<std::string, std::string>> settings;  // sim/config/settings.h
};

Diff compare(const CompareSide& a, const CompareSide& b);

}  // namespace shardsim
