// One scenario from its plain values to a trace: model, plan, schedule, costs, machine.
#pragma once

#include <memory>

#include "sim/cost/cost_table.h"
#include "sim/engine/machine.h"
#include "sim/model/model.h"
#include "sim/plan/buckets.h"
#include "sim/plan/plan.h"
#include "sim/plan/scenario.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace shardsim {

struct Simulation {
  Model model;
  Plan plan;
  Schedule schedule;
  Trace trace;
  int steps = 0;                // played
  std::vector<bool> unsharded;  // by group: left unsharded at the end
  // DDP's, in the order in which they are reduced, of the first iteration and at the end.
  std::vector<GradientBucket> first_buckets, buckets;
  bool steady = false;  // the next step would be as the last one was (study/steady.h)
};

enum class Until : uint8_t {
  steady,     // until the next step would be as the last one was, at most options.max_steps
  max_steps,  // exactly options.max_steps
};

Simulation simulate(const Scenario& scenario, Until until = Until::steady);
// The same into a simulation that may hold an earlier one, whose memory is used again.
void simulate(const Scenario& scenario, Until until, Simulation& out);

// The model and its groups alone.
void lay_out(const Scenario& scenario, Simulation& out);

// At the scenario's memory level. Throws Error at allocator settings that PyTorch refuses.
std::unique_ptr<Machine> make_machine(const Scenario& scenario);

// The prices of a schedule under the scenario's cost model.
CostTable price(const Scenario& scenario, const Schedule& schedule);

}  // namespace shardsim
