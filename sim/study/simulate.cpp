#include "sim/study/simulate.h"

#include <memory>

#include "sim/cost/assumptions.h"
#include "sim/cost/flat.h"
#include "sim/cost/price.h"
#include "sim/cost/stragglers.h"
#include "sim/schedule/training_program.h"
#include "sim/study/steady.h"

namespace shardsim {

CostTable price(const Scenario& scenario, const Schedule& schedule) {
  if (scenario.cost.model == CostChoice::Model::flat)
    return flat_costs(scenario.cost.flat, schedule);
  const Calibration constants = effective_calibration(scenario);
  CostTable table = roofline_costs(scenario.cluster, constants, scenario.cost.collectives, schedule,
                                   scenario.cost.sharing);
  add_stragglers(scenario, constants, schedule, table);
  return table;
}

namespace {

// Every work has a price, the host's own too.
bool prices(const CostTable& costs, const Schedule& schedule) {
  return costs.work.size() == schedule.works.size() &&
         costs.host_work.size() == schedule.host_works.size();
}

// What only shows here is still a mistake at a place of the scenario.
template <class F>
auto at_its_place(const Scenario& s, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    if (e.key().empty() || !s.place_of) throw;
    throw Error(e.what(), s.place_of(e.key()), e.hint());
  }
}

// The model and its groups.
void plan(const Scenario& scenario, Simulation& s) {
  s.model = build_model(scenario.model);
  for (const auto& [pattern, dtype] : scenario.training.param_dtypes)
    set_dtype(s.model, pattern, dtype);
  freeze(s.model, scenario.training.frozen);
  s.plan = build_plan(s.model, scenario.training);
}

std::unique_ptr<Machine> machine_of(const Scenario& scenario) {
  const std::string& text = scenario.training.allocator;
  if (scenario.options.memory == MemoryLevel::live) {
    if (!text.empty())
      throw Error::at("training.allocator", "settings need the memory level blocks",
                      "add options: {memory: blocks}");
    return std::make_unique<Machine>();
  }
  const Gpu& gpu = scenario.cluster.gpu;
  const DeviceMemory device{gpu.memory_bytes, gpu.context_bytes};
  try {
    return std::make_unique<Machine>(parse_allocator_settings(text), device);
  } catch (const Error& e) {
    // "max_split_size_mb: must be ..." has its option in front.
    if (e.key().empty()) throw Error::at("training.allocator", e.what(), e.hint());
    throw e.within("training.allocator.");
  }
}

}  // namespace

void lay_out(const Scenario& scenario, Simulation& out) {
  at_its_place(scenario, [&] { plan(scenario, out); });
}

std::unique_ptr<Machine> make_machine(const Scenario& scenario) {
  return at_its_place(scenario, [&] { return machine_of(scenario); });
}

Simulation simulate(const Scenario& scenario, Until until) {
  Simulation s;
  simulate(scenario, until, s);
  return s;
}

namespace {

void play(const Scenario& scenario, Until until, Simulation& s) {
  s.schedule.clear();
  s.trace.clear();
  s.steps = 0;
  s.steady = false;
  plan(scenario, s);
  TrainingProgram program(s.model, s.plan, scenario, s.schedule);
  program.initialize();
  const std::unique_ptr<Machine> machine = machine_of(scenario);
  CostTable costs;
  const auto play = [&] {
    // A step may launch works that did not exist before it.
    if (!prices(costs, s.schedule)) costs = price(scenario, s.schedule);
    machine->play(s.schedule, costs, s.trace);
    return !s.trace.out_of_memory;
  };
  const Training& t = scenario.training;
  const bool saves =
      t.strategy == Strategy::fsdp1
          ? t.fsdp1.state_dict != Fsdp1Options::StateDict::none || t.fsdp1.summon_full_params
          : t.strategy == Strategy::fsdp2 && t.fsdp2.state_dict != SavedState::none;
  Steady steady(s.schedule);
  bool laid_out = false;
  while (s.steps < scenario.options.max_steps) {
    if (!laid_out) program.step();
    laid_out = false;
    ++s.steps;
    if (!play()) break;
    steady.stepped(*machine, costs, s.trace);
    s.steady = steady.ended_as_it_began();
    if (until != Until::steady) continue;
    if (s.steady) break;
    // What comes behind the steps follows the last one that is laid out.
    const bool more = s.steps < scenario.options.max_steps;
    if (!more || !steady.device_decides() || t.evaluate_after || saves) continue;
    program.step();
    laid_out = true;
    s.steady = repeats(s.schedule, steady.begin(), steady.end());
    if (!s.steady) continue;
    cut(s.schedule, steady.end());
    break;
  }
  const auto after = [&](bool wanted, void (TrainingProgram::*what)()) {
    if (!wanted || s.trace.out_of_memory) return;
    (program.*what)();
    play();
  };
  after(t.evaluate_after, &TrainingProgram::evaluate);
  after(saves, &TrainingProgram::save);
  s.unsharded = program.unsharded();
  s.first_buckets = program.buckets(true);
  s.buckets = program.buckets(false);
}

}  // namespace

void simulate(const Scenario& scenario, Until until, Simulation& out) {
  at_its_place(scenario, [&] { play(scenario, until, out); });
}

}  // namespace shardsim
