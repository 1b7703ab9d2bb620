// One scenario's step time as a function of its constants: laid out once, priced and played again for
// each set of constants. Three steps are played and the third is the step, so that prices that differ
// a little cannot stop at different steps.
// Worked example: StepModel m(scenario); m.seconds(own_calibration(scenario)) is what `run`
// reports as step_time_s where its third step is the steady one.
#pragma once

#include <memory>

#include "sim/cluster/calibration.h"
#include "sim/plan/scenario.h"
#include "sim/study/simulate.h"

namespace shardsim {

// Of one GPU in a step whose last micro-batch is so full.
double step_tokens(const Training& t, double last_micro_batch);

class StepModel {
 public:
  // A last micro-batch that is not full takes that part of the time that it adds when full, where there
  // are several. Throws Error where the scenario cannot be laid out.
  explicit StepModel(Scenario scenario, double last_micro_batch = 1);

  const Scenario& scenario() const { return scenario_; }
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
  double last_ = 1;
  std::unique_ptr<StepModel> fewer_;  // the step without its last micro-batch, where that is ragged
};

}  // namespace shardsim
