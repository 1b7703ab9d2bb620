#include "sim/study/sweep_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string_view>

#include "sim/report/planning.h"
#include "sim/report/timeline.h"
#include "sim/study/run_report.h"

namespace shardsim {

namespace {

constexpr int64_t kCostTokens = 1'000'000'000;

Bytes peak_of(const Scenario& scenario, const Simulation& s) {
  if (scenario.options.memory == MemoryLevel::live) return s.trace.peak;
  Bytes peak = s.trace.out_of_memory ? s.trace.out_of_memory->reserved : 0;
  for (const MarkRow& m : s.trace.marks) peak = std::max(peak, m.reserved_peak);
  return peak;
}

}  // namespace

SweepRow sweep_row(const Scenario& scenario, Simulation& s) {
  simulate(scenario, Until::steady, s);
  SweepRow row;
  row.gpus = scenario.training.mesh.world();
  row.params = s.model.numel();
  row.peak_bytes = peak_of(scenario, s);
  const Gpu& gpu = scenario.cluster.gpu;
  row.headroom_bytes = s.trace.out_of_memory
                           ? -s.trace.out_of_memory->missing
                           : gpu.memory_bytes - gpu.context_bytes - row.peak_bytes;
  row.fits = row.headroom_bytes >= 0;
  if (steps_played(s.schedule, s.trace) == 0 || s.trace.out_of_memory) return row;
  Timeline timeline;
  timeline.build(s.schedule, s.trace, steps_played(s.schedule, s.trace) - 1);
  const StepTimes& step = timeline.times();
  row.step_time_s = step.length().as_s();
  row.exposed_comm_s = step.exposed_comm.as_s();
  row.overlap_fraction = step.overlap_fraction();
  const RunFacts facts = run_facts(scenario);
  if (row.step_time_s > 0)
    row.tokens_per_s_per_gpu = static_cast<double>(facts.tokens_per_step) / row.step_time_s;
  row.tokens_per_s = row.tokens_per_s_per_gpu * static_cast<double>(row.gpus);
  if (facts.peak_tflops > 0)
    row.mfu = model_facts(scenario, s.model).flops_per_token * row.tokens_per_s_per_gpu /
              (facts.peak_tflops * 1e12);
  const auto planned = [&](int64_t tokens) {
    return plan_tokens(tokens, facts.tokens_per_step, row.step_time_s, row.gpus,
                       scenario.cluster.price_per_gpu_hour);
  };
  if (const std::optional<Planning> p = planned(kCostTokens)) row.cost = p->cost();
  if (const std::optional<Planning> p = planned(scenario.training.token_budget)) {
    row.budget_hours = p->hours;
    row.budget_gpu_hours = p->gpu_hours;
    row.budget_cost = p->cost();
  }
  return row;
}

SweepRow row_or_error(const std::function<Scenario()>& make, Simulation& s,
                      const std::function<std::string(const Error&)>& say) {
  SweepRow row;
  const auto no_memory = [&] {
    s = {};
    row.error = "not enough memory to play it";
  };
  try {
    return sweep_row(make(), s);
  } catch (const Error& e) {
    row.error = say(e);
  } catch (const BrokenInvariant& e) {
    const std::string_view what = e.what();
    row.error = fmt::format("a fault of shardsim itself: {}", what.substr(0, what.find('\n')));
  } catch (const std::bad_alloc&) {
    no_memory();
  } catch (const std::length_error&) {
    no_memory();
  }
  return row;
}

}  // namespace shardsim
