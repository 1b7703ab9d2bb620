#include "sim/report/uneven_ranks.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "sim/schedule/graph/schedule_graph.h"

namespace shardsim {
namespace {

constexpr int kNoPass = -1;

struct Passes {
  std::vector<int> of_launch;
  uint32_t begin = 0, end = 0;  // launches of the last step
};

Passes passes_of(const Schedule& schedule, const Trace& trace) {
  Passes p;
  p.of_launch.assign(trace.start.size(), kNoPass);
  int pass = 0;
  uint32_t from = 0;
  for (const MarkRow& row : trace.marks) {
    const MarkInfo& mark = schedule.marks[row.mark];
    const std::string_view name = mark.name;
    const bool backward = name.ends_with(".after_backward");
    if (mark.step >= 0 && (backward || name.ends_with(".after_forward")))
      std::fill(p.of_launch.begin() + from, p.of_launch.begin() + row.launches, pass);
    pass += backward ? 1 : 0;
    from = row.launches;
    if (!mark.begins_step) continue;
    pass = 0;
    p.begin = p.end;
    p.end = row.launches;
  }
  return p;
}

UnevenStep play(const Schedule& schedule, const ScheduleGraph& graph, const Weights& weights,
                const Passes& passes, int64_t world,
                const std::vector<std::vector<double>>& kinds) {
  const size_t n = kinds.size();
  std::vector<Time> end(graph.vertices.size() * n), at(n), last(2);
  UnevenStep step;
  step.waiting.resize(n);
  for (uint32_t v = 0; v < graph.vertices.size(); ++v) {
    const Vertex& x = graph.vertices[v];
    for (size_t r = 0; r < n; ++r) {
      at[r] = {};
      for (uint32_t e = graph.first_in[v]; e < graph.first_in[v + 1]; ++e)
        at[r] = std::max(at[r], end[graph.edges[e].from * n + r] + weights.lag[e]);
    }
    const bool launch = x.kind == Vertex::Kind::launch;
    const bool in_step = launch && x.launch >= passes.begin && x.launch < passes.end;
    if (launch && is_collective(schedule.works[x.work.v].kind)) {
      const Comm& comm = schedule.comms[schedule.works[x.work.v].comm.v];
      if (comm.size == world || comm.stride > 1) {
        const Time all = *std::max_element(at.begin(), at.end());
        step.points += in_step ? 1 : 0;
        for (size_t r = 0; r < n; ++r) {
          if (in_step) step.waiting[r] += all - at[r];
          at[r] = all;
        }
      }
    }
    const int pass = launch ? passes.of_launch[x.launch] : kNoPass;
    const bool scaled = pass != kNoPass && is_compute(schedule.works[x.work.v].kind);
    for (size_t r = 0; r < n; ++r) {
      Time takes = weights.duration[v];
      if (scaled) {
        const double factor = kinds[r][static_cast<size_t>(pass) % kinds[r].size()];
        takes.ps = std::llround(static_cast<double>(takes.ps) * factor);
      }
      end[v * n + r] = at[r] + takes;
      if (!launch || x.launch >= passes.end) continue;
      last[1] = std::max(last[1], end[v * n + r]);
      if (x.launch < passes.begin) last[0] = std::max(last[0], end[v * n + r]);
    }
  }
  step.uneven = last[1] - last[0];
  return step;
}

}  // namespace

UnevenStep uneven_step(const Schedule& schedule, const Trace& trace, int64_t world,
                       const std::vector<std::vector<double>>& kinds) {
  const ScheduleGraph graph = build_graph(schedule);
  const Weights weights = weights_from_trace(graph, trace);
  const Passes passes = passes_of(schedule, trace);
  UnevenStep step = play(schedule, graph, weights, passes, world, kinds);
  step.alike = play(schedule, graph, weights, passes, world, {{1.0}}).uneven;
  return step;
}

}  // namespace shardsim
