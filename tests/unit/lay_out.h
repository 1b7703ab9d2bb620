// A shipped scenario's schedule of so many steps, without a simulation.
#pragma once

#include <string>

#include "sim/config/scenario.h"
#include "sim/model/model.h"
#include "sim/plan/plan.h"
#include "sim/schedule/training_program.h"

namespace shardsim::test {

inline Schedule lay_out_steps(Scenario scenario, int steps) {
  const Model model = build_model(scenario.model);
  const Plan plan = build_plan(model, scenario.training);
  Schedule schedule;
  TrainingProgram program(model, plan, scenario, schedule);
  program.initialize();
  for (int i = 0; i < steps; ++i) program.step();
  return schedule;
}

inline Scenario shipped(const std::string& name) {
  return load_scenario(std::string(SHARDSIM_SOURCE_DIR) + "/scenarios/small/" + name + ".yaml");
}

}  // namespace shardsim::test
