#include "sim/report/phases.h"

#include <algorithm>

namespace shardsim {

std::string_view name_of(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::backward: return "backward";
    case Phase::optimizer: return "optimizer";
  }
  return "?";
}

Phase phase_before(std::string_view mark) {
  if (mark.ends_with("after_forward")) return Phase::forward;
  if (mark.ends_with("after_backward")) return Phase::backward;
  return Phase::optimizer;
}

std::vector<PhaseWindow> phase_windows(const Schedule& schedule, const Trace& trace,
                                       const StepTimes& step) {
  std::vector<PhaseWindow> out;
  uint32_t launch = step.first_launch, worked = step.first_worked;
  Time at = step.start;
  const auto add = [&](Phase phase, uint32_t end_launch, uint32_t end_worked) {
    PhaseWindow w{phase, at, at, end_launch};
    for (; launch < end_launch; ++launch) w.end = std::max(w.end, trace.end[launch]);
    for (; worked < end_worked; ++worked)
      if (trace.worked[worked].end > trace.worked[worked].start)
        w.end = std::max(w.end, trace.worked[worked].end);
    at = w.end;
    out.push_back(w);
  };
  for (const MarkRow& row : trace.marks) {
    const MarkInfo& mark = schedule.marks[row.mark];
    const bool played = row.launches > launch || row.worked > worked;
    if (mark.step != step.step || !played || row.launches > step.end_launch) continue;
    add(phase_before(mark.name), row.launches, row.worked);
  }
  if (launch < step.end_launch || worked < step.end_worked)
    add(Phase::optimizer, step.end_launch, step.end_worked);
  return out;
}

}  // namespace shardsim
