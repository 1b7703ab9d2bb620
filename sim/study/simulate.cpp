#include "sim/study/simulate.h"

#include <memory>

#include "sim/cost/flat.h"
#include "sim/cost/roofline.h"
#include "sim/schedule/training_program.h"

namespace shardsim {

CostTable price(const Scenario& scenario, const Schedule& schedule) {
  return scenario.cost.model == CostChoice::Model::flat
             ? flat_costs(scenario.cost.flat, schedule)
             : roofline_costs(scenario.cluster, schedule);
}

namespace {

// What only shows here is still a mistake at a place of the scenario.
template <class F>
void at_its_place(const Training& t, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    const std::string_view what = e.what();
    const Place& place = what.starts_with("wrap:")       ? t.wrap_place
                         : what.starts_with("fsdp2.")    ? t.fsdp2_place
                         : what.starts_with("precision") ? t.precision_place
                         : what.starts_with("frozen")    ? t.frozen_place
                                                         : e.place();
    if (place.line == 0 || e.place().line != 0) throw;
    throw Error(std::string("training.") + e.what(), place, e.hint());
  }
}

}  // namespace

void lay_out(const Scenario& scenario, Simulation& s) {
  at_its_place(scenario.training, [&] {
    s.model = build_model(scenario.model);
    freeze(s.model, scenario.training.frozen);
    s.plan = build_plan(s.model, scenario.training);
  });
}

std::unique_ptr<Machine> make_machine(const Scenario& scenario) {
  const AllocatorSettings settings = [&] {
    try {
      return parse_allocator_settings(scenario.training.allocator);
    } catch (const Error& e) {
      throw Error(std::string("training.allocator: ") + e.what(), scenario.training.allocator_place,
                  e.hint());
    }
  }();
  if (scenario.options.memory == MemoryLevel::live) {
    if (!scenario.training.allocator.empty())
      throw Error("training.allocator: settings need the memory level blocks",
                  scenario.training.allocator_place, "add options: {memory: blocks}");
    return std::make_unique<Machine>();
  }
  const Gpu& gpu = scenario.cluster.gpu;
  return std::make_unique<Machine>(settings, DeviceMemory{gpu.memory_bytes, gpu.context_bytes});
}

Simulation simulate(const Scenario& scenario, Until until) {
  Simulation s;
  simulate(scenario, until, s);
  return s;
}

void simulate(const Scenario& scenario, Until until, Simulation& s) {
  s.schedule.clear();
  s.trace.clear();
  s.steps = 0;
  s.steady = false;
  lay_out(scenario, s);
  TrainingProgram program(s.model, s.plan, scenario, s.schedule);
  program.initialize();
  const std::unique_ptr<Machine> machine = make_machine(scenario);
  CostTable costs;
  Machine::State before;
  Time step_began, last_length{-1};
  while (s.steps < scenario.options.max_steps) {
    at_its_place(scenario.training, [&] { program.step(); });
    ++s.steps;
    // A step may launch works that did not exist before it.
    if (costs.work.size() != s.schedule.works.size()) costs = price(scenario, s.schedule);
    machine->play(s.schedule, costs, s.trace);
    if (s.trace.out_of_memory) break;
    const Machine::State now = machine->state();
    const Time length = machine->now() - step_began;
    s.steady = s.steps > 1 && now == before && length == last_length;
    if (s.steady && until == Until::steady) break;
    before = now;
    step_began = machine->now();
    last_length = length;
  }
  const auto after = [&](bool wanted, void (TrainingProgram::*what)()) {
    if (!wanted || s.trace.out_of_memory) return;
    (program.*what)();
    if (costs.work.size() != s.schedule.works.size()) costs = price(scenario, s.schedule);
    machine->play(s.schedule, costs, s.trace);
  };
  after(scenario.training.evaluate_after, &TrainingProgram::evaluate);
  const Training& t = scenario.training;
  const bool saves =
      t.strategy == Strategy::fsdp1
          ? t.fsdp1.state_dict != Fsdp1Options::StateDict::none || t.fsdp1.summon_full_params
          : t.strategy == Strategy::fsdp2 && t.fsdp2.state_dict != SavedState::none;
  after(saves, &TrainingProgram::save);
  s.unsharded = program.unsharded();
}

}  // namespace shardsim
