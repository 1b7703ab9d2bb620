// A whole training run on one rank as a schedule: initialization, then steps of micro-batches
// (batch, forward, loss, backward), optimizer and zero_grad, with a mark after each phase, named as
// the recordings name them. It runs the model's stages through the strategy's hooks and the autograd
// order; what the GPU takes is no part of it.
#pragma once

#include <memory>

#include "sim/plan/buckets.h"
#include "sim/plan/plan.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

class TrainingProgram {
 public:
  // model, plan and scenario must outlive it. Writes into `schedule`, which starts empty.
  TrainingProgram(const Model& model, const Plan& plan, const Scenario& scenario,
                  Schedule& schedule);
  ~TrainingProgram();
  TrainingProgram(const TrainingProgram&) = delete;
  TrainingProgram& operator=(const TrainingProgram&) = delete;

  void initialize();  // up to the mark after_init
  void step();        // the next step
  // By group: whether its parameters are unsharded now.
  std::vector<bool> unsharded() const;
  std::vector<GradientBucket> buckets(bool first_iteration) const;
  void evaluate();  // a forward without gradients, up to the mark after_eval
  void save();      // the state dicts that are asked for, up to their marks

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shardsim
