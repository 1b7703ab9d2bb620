#include "sim/study/ledger.h"

#include <algorithm>
#include <utility>

#include "sim/study/simulate.h"

namespace shardsim {

Scenario ledger_scenario(Scenario scenario) {
  scenario.options.memory = MemoryLevel::live;
  // The first step makes the optimizer's state.
  scenario.options.max_steps = std::max<int64_t>(scenario.options.max_steps, 2);
  Training& t = scenario.training;
  t.allocator.clear();
  t.evaluate_after = false;
  t.fsdp1.state_dict = Fsdp1Options::StateDict::none;
  t.fsdp1.summon_full_params = false;
  t.fsdp2.state_dict = SavedState::none;
  return scenario;
}

Ledger scenario_ledger(Scenario scenario) {
  scenario = ledger_scenario(std::move(scenario));
  const Simulation s = simulate(scenario);
  return make_ledger(scenario, s.model, s.plan, s.schedule, s.trace);
}

}  // namespace shardsim
