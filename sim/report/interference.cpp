#include "sim/report/interference.h"

#include <algorithm>
#include <map>

namespace shardsim {
namespace {

struct Run {
  Time start, end;
  uint32_t launch = 0;
  const Work* work = nullptr;
};

}  // namespace

std::vector<Interference> interference(const Schedule& schedule, const Trace& trace,
                                       const StepTimes& step) {
  std::vector<Interference> out;
  if (trace.slowed.empty() || step.slowed.ps == 0) return out;
  std::vector<Run> compute, beside;
  uint32_t launch = 0;
  schedule.for_each([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    const uint32_t l = launch++;
    if (l >= trace.start.size()) return;
    const bool of_step = l >= step.first_launch && l < step.end_launch;
    const Run run{trace.start[l], trace.end[l], l, &schedule.works[in.a]};
    if (in.stream != kCompute)
      beside.push_back(run);
    else if (of_step && trace.slowed[l].ps > 0)
      compute.push_back(run);
  });
  std::sort(beside.begin(), beside.end(), [](const Run& a, const Run& b) {
    return a.start < b.start || (a.start == b.start && a.launch < b.launch);
  });
  std::map<std::pair<WorkKind, uint32_t>, Time> sums;
  size_t first = 0;
  for (const Run& c : compute) {
    while (first < beside.size() && beside[first].end <= c.start) ++first;
    Time overlap, left = trace.slowed[c.launch];
    const auto each = [&](auto&& f) {
      for (size_t b = first; b < beside.size() && beside[b].start < c.end; ++b) {
        const Time t = std::min(c.end, beside[b].end) - std::max(c.start, beside[b].start);
        if (t.ps > 0) f(*beside[b].work, t);
      }
    };
    each([&](const Work&, Time t) { overlap += t; });
    each([&](const Work& w, Time t) {
      // The last takes what rounding leaves.
      const Time part =
          t == overlap
              ? left
              : Time{static_cast<int64_t>(static_cast<double>(left.ps) * static_cast<double>(t.ps) /
                                          static_cast<double>(overlap.ps))};
      sums[{w.kind, w.group.v}] += part;
      overlap = overlap - t;
      left = left - part;
    });
  }
  for (const auto& [of, time] : sums) out.push_back({of.first, GroupId{of.second}, time});
  std::stable_sort(out.begin(), out.end(),
                   [](const Interference& a, const Interference& b) { return a.time > b.time; });
  return out;
}

}  // namespace shardsim
