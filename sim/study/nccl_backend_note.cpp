#include "sim/study/nccl_backend_note.h"

#include <fmt/format.h>

#include "sim/report/text.h"
#include "sim/study/simulate.h"

namespace shardsim {

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
  return fmt::format(
      "PyTorch 2.15's NCCL backend makes the compute stream wait for each bucket's all-reduce as "
      "it "
      "is issued: {} of communication is exposed in a step of {}. With nccl_backend: legacy "
      "(TORCH_DIST_USE_NCCL2=0) backward runs beside it: {} exposed, a step of {}",
      duration(report.steady.exposed_comm), duration(report.steady.length()),
      duration(legacy.steady.exposed_comm), duration(legacy.steady.length()));
}

}  // namespace shardsim
