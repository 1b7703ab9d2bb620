#include "sim/report/html/group_times.h"

#include <algorithm>

namespace shardsim {

std::vector<GroupTimes> group_times(const Schedule& schedule, const Trace& trace, int step,
                                    size_t groups) {
  std::vector<GroupTimes> out(groups + 1);
  Timeline timeline;
  timeline.build(schedule, trace, step);
  const StepTimes& times = timeline.times();
  const std::vector<PhaseWindow> windows = phase_windows(schedule, trace, times);
  std::vector<uint32_t> group_of(times.end_launch - times.first_launch);
  size_t window = 0;
  uint32_t launch = 0;
  schedule.for_each([&](const Instr& in, const Segment& segment) {
    if (in.kind != Kind::Launch) return;
    const uint32_t l = launch++;
    if (l < times.first_launch || l >= times.end_launch) return;
    const Work& w = schedule.works[in.a];
    const GroupId group = w.group.valid() ? w.group : segment.group;
    const size_t row = std::min<size_t>(group.v, groups);
    group_of[l - times.first_launch] = static_cast<uint32_t>(row);
    GroupTimes& g = out[row];
    while (window + 1 < windows.size() && l >= windows[window].end_launch) ++window;
    const Time length = trace.end[l] - trace.start[l];
    if (is_compute(w.kind)) {
      const Phase phase = windows.empty() ? Phase::forward : windows[window].phase;
      g.compute[static_cast<size_t>(phase)] += length;
    } else if (w.kind == WorkKind::AllGather) {
      g.all_gather += length;
      ++g.gathers;
      g.gathered += w.bytes;
    } else if (is_collective(w.kind)) {
      g.reduce += length;
      ++g.reductions;
      g.reduced += w.bytes;
    }
  });
  for (const CollectiveTime& c : timeline.collectives())
    out[group_of[c.launch - times.first_launch]].exposed += c.exposed;
  return out;
}

}  // namespace shardsim
