// The step report of a simulated scenario, and what `explain` says of it before any time is known.
#pragma once

#include "sim/plan/scenario.h"
#include "sim/report/step_report.h"
#include "sim/study/simulate.h"

namespace shardsim {

StepReport run_report(const Scenario& scenario, const Simulation& simulation);

// What is known before a run.
RunFacts run_facts(const Scenario& scenario);
std::vector<GroupRow> group_rows(const Model& model, const Plan& plan, const Training& training);
ModelFacts model_facts(const Scenario& scenario, const Model& model);

}  // namespace shardsim
