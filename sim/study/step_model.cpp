#include "sim/study/step_model.h"

#include <algorithm>
#include <utility>

#include "sim/base/error.h"
#include "sim/report/timeline.h"

namespace shardsim {
namespace {

constexpr int64_t kSteps = 3;

}  // namespace

double step_tokens(const Training& t, double last_micro_batch) {
  return static_cast<double>(t.micro_batch * t.forwards * t.seq_len) *
         (static_cast<double>(t.grad_accum - 1) + last_micro_batch);
}

StepModel::StepModel(Scenario scenario, double last_micro_batch)
    : scenario_(std::move(scenario)), last_(last_micro_batch) {
  scenario_.options.memory = MemoryLevel::live;
  scenario_.options.max_steps = kSteps;
  simulate(scenario_, Until::max_steps, laid_out_);
  if (last_ >= 1 || scenario_.training.grad_accum == 1) return;
  Scenario fewer = scenario_;
  --fewer.training.grad_accum;
  fewer_ = std::make_unique<StepModel>(std::move(fewer));
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
  const double whole = timeline.times().length().as_s();
  if (!fewer_) return whole;
  const double less = fewer_->seconds(constants, cluster);
  return less + last_ * (whole - less);
}

}  // namespace shardsim
