// One scenario's step time as a function of its constants: laid out once, priced and played again for
// each set of constants. Three steps are played and the third is the step, so that prices that differ
// a little cannot stop at different steps.
// Worked example: StepModel m(scenario); m.seconds(effective_calibration(scenario)) is what `run`
// reports as step_time_s where its third step is the steady one.
#pragma once

#include "sim/cluster/calibration.h"
#include "sim/plan/scenario.h"
#include "sim/study/simulate.h"

namespace shardsim {

class StepModel {
 public:
  // Throws Error where the scenario cannot be laid out.
  explicit StepModel(Scenario scenario);

  const Scenario& scenario() const { return scenario_; }
  int64_t tokens() const;  // of one GPU in a step
  // Highest live bytes of the steps over what the GPU has for tensors.
  double memory_used() const;

  // With these constants in place of the scenario's own.
  double seconds(const Calibration& constants);
  // With the links of this cluster too.
  double seconds(const Calibration& constants, const Cluster& cluster);

 private:
  Scenario scenario_;
  Simulation laid_out_;
  Trace trace_;
};

}  // namespace shardsim
