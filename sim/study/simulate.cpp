#include "sim/study/simulate.h"

#include "sim/cost/flat.h"
#include "sim/cost/roofline.h"
#include "sim/schedule/training_program.h"

namespace shardsim {

CostTable price(const Scenario& scenario, const Schedule& schedule) {
  return scenario.cost.model == CostChoice::Model::flat
             ? flat_costs(scenario.cost.flat, schedule)
             : roofline_costs(scenario.cluster, schedule);
}

Simulation simulate(const Scenario& scenario, Until until) {
  Simulation s;
  s.model = build_model(scenario.model);
  s.plan = build_plan(s.model, scenario.training);
  TrainingProgram program(s.model, s.plan, scenario, s.schedule);
  program.initialize();
  Machine machine;
  CostTable costs;
  Machine::State before;
  Time step_began, last_length{-1};
  while (s.steps < scenario.options.max_steps) {
    program.step();
    ++s.steps;
    // A step may launch works that did not exist before it.
    if (costs.work.size() != s.schedule.works.size()) costs = price(scenario, s.schedule);
    machine.play(s.schedule, costs, s.trace);
    const Machine::State now = machine.state();
    const Time length = machine.host_now() - step_began;
    s.steady = s.steps > 1 && now == before && length == last_length;
    if (s.steady && until == Until::steady) break;
    before = now;
    step_began = machine.host_now();
    last_length = length;
  }
  return s;
}

}  // namespace shardsim
