#include "sim/study/nccl_backend_note.h"

#include <fmt/format.h>

#include "sim/report/text.h"
#include "sim/study/simulate.h"

namespace shardsim {

namespace {

// Of the reducer's all-reduces; ZeroRedundancyOptimizer's broadcasts wait with any backend.
Time exposed_reductions(const StepReport& report) {
  Time sum;
  for (const CollectiveRow& c : report.collectives)
    if (c.kind == WorkKind::AllReduce) sum += c.exposed;
  return sum;
}

}  // namespace

std::string nccl_backend_note(const Scenario& scenario, const StepReport& report) {
  const Training& t = scenario.training;
  const bool waits = !t.legacy_nccl && !t.behaviour().internal_streams;
  if (!reduces_buckets(t.strategy) || !waits || t.mesh.world() < 2 || report.memory.failure)
    return {};
  Scenario other = scenario;
  other.training.legacy_nccl = true;
  other.training.allocator.clear();
  other.options.memory = MemoryLevel::live;
  const Simulation s = simulate(other);
  const StepReport legacy = make_step_report({}, {}, {}, s.schedule, s.trace);
  const Time exposed = exposed_reductions(report), beside = exposed_reductions(legacy);
  if (exposed <= beside) return {};
  const Time step = report.steady.length(), other_step = legacy.steady.length();
  return fmt::format(
      "PyTorch 2.15's NCCL backend makes the compute stream wait for each bucket's all-reduce as "
      "it is issued: {} of the all-reduces is exposed, {} with nccl_backend: legacy "
      "(TORCH_DIST_USE_NCCL2=0), where backward runs beside them. The step takes {} instead of "
      "{}{}",
      duration(exposed), duration(beside), duration(other_step), duration(step),
      other_step < step ? "" : ": it gets no faster, other work holds it up");
}

}  // namespace shardsim
