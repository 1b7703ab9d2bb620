#include "sim/study/offload_note.h"

#include <fmt/format.h>

#include "sim/cost/host_work.h"
#include "sim/report/text.h"
#include "sim/study/simulate.h"

namespace shardsim {

namespace {

constexpr int kThreads = 16;  // enough for a rank's share of any node's memory

Time step_of(Scenario s) {
  s.training.allocator.clear();
  s.options.memory = MemoryLevel::live;
  const Simulation played = simulate(s);
  return make_step_report({}, {}, {}, played.schedule, played.trace).steady.length();
}

}  // namespace

std::string offload_note(const Scenario& scenario, const StepReport& report) {
  const Time step = report.steady.length();
  if (!offloads(scenario.training) || report.memory.failure ||
      10 * report.steady.host_worked.ps < step.ps)
    return {};
  std::string ways;
  const auto offer = [&](const Scenario& other, const char* way) {
    const Time takes = step_of(other);
    if (takes < step)
      ways += fmt::format("{} {} with {}", ways.empty() ? "" : ",", duration(takes), way);
  };
  const Optimizer& o = scenario.training.optimizer;
  const bool loop = o.implementation != Optimizer::Implementation::fused &&
                    (o.name == Optimizer::Name::adamw || o.name == Optimizer::Name::adam);
  const bool few = host_rates(scenario.cluster).threads < kThreads;
  Scenario fused = scenario, threads = scenario;
  fused.training.optimizer.implementation = Optimizer::Implementation::fused;
  threads.cluster.host.threads = kThreads;
  if (loop) offer(fused, "optimizer.implementation: fused");
  if (few) offer(threads, "OMP_NUM_THREADS=16 (cluster.host.threads)");
  fused.cluster.host.threads = kThreads;
  if (loop && few) offer(fused, "both");
  if (ways.empty()) return {};
  return fmt::format(
      "the host works {} of the step itself and issues nothing meanwhile. The step takes{}",
      duration(report.steady.host_worked), ways);
}

}  // namespace shardsim
