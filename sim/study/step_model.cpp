#include "sim/study/step_model.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/report/timeline.h"

namespace shardsim {
namespace {

constexpr int64_t kSteps = 3;

}  // namespace

StepModel::StepModel(Scenario scenario) : scenario_(std::move(scenario)) {
  scenario_.options.memory = MemoryLevel::live;
  scenario_.options.max_steps = kSteps;
  simulate(scenario_, Until::max_steps, laid_out_);
}

int64_t StepModel::tokens() const {
  const Training& t = scenario_.training;
  return t.micro_batch * t.grad_accum * t.forwards * t.seq_len;
}

double StepModel::memory_used() const {
  const Gpu& gpu = scenario_.cluster.gpu;
  Bytes peak = 0;
  for (const MarkRow& row : laid_out_.trace.marks)
    if (laid_out_.schedule.marks[row.mark].step == kSteps - 1)
      peak = std::max(peak, row.allocated_peak);
  return static_cast<double>(peak) / static_cast<double>(gpu.memory_bytes - gpu.context_bytes);
}

double StepModel::seconds(const Calibration& constants) {
  return seconds(constants, scenario_.cluster);
}

double StepModel::seconds(const Calibration& constants, const Cluster& cluster) {
  Scenario priced = scenario_;
  priced.cost.calibration = constants;
  priced.cluster = cluster;
  const std::unique_ptr<Machine> machine = make_machine(priced);
  trace_.clear();
  machine->play(laid_out_.schedule, price(priced, laid_out_.schedule), trace_);
  const int played = steps_played(laid_out_.schedule, trace_);
  SHARDSIM_ASSERT(played > 0, "the steps that were laid out are played");
  Timeline timeline;
  timeline.build(laid_out_.schedule, trace_, played - 1);
  return timeline.times().length().as_s();
}

}  // namespace shardsim
