#include "sim/study/compare.h"

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/study/run_report.h"

namespace shardsim {

std::vector<std::vector<std::string>> parameters_of_groups(const Model& model, const Plan& plan) {
  std::vector<std::vector<std::string>> out(plan.groups.size());
  for (size_t g = 0; g < plan.groups.size(); ++g)
    for (const ShardedParam& p : plan.groups[g].params) out[g].push_back(model.param_name(p.id));
  return out;
}

Diff compare(const CompareSide& a, const CompareSide& b) {
  const Two<const CompareSide*> from{&a, &b};
  Two<Simulation> simulations;
  Two<StepReport> reports;
  Two<DiffSide> sides;
  for (size_t i = 0; i < 2; ++i) {
    try {
      simulations[i] = simulate(*from[i]->scenario);
    } catch (const Error& e) {
      if (!e.place().file.empty()) throw;
      throw Error(e.what(), {from[i]->file}, e.hint());
    }
    reports[i] = run_report(*from[i]->scenario, simulations[i]);
    sides[i] = {from[i]->file,
                &reports[i],
                &simulations[i].schedule,
                &simulations[i].trace,
                parameters_of_groups(simulations[i].model, simulations[i].plan),
                from[i]->settings};
  }
  Diff d = diff(sides[0], sides[1]);
  for (size_t i = 0; i < 2; ++i)
    if (!simulations[i].steady && d.timed[i])
      d.notes.push_back(
          fmt::format("{} {} of {}, {}, did not reach a steady state; options.max_steps plays more",
                      simulations[i].steps, simulations[i].steps == 1 ? "step" : "steps",
                      i == 0 ? "A" : "B", from[i]->file));
  return d;
}

}  // namespace shardsim
