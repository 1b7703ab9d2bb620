#include "sim/report/exposed.h"

#include "sim/report/chain.h"

namespace shardsim {
namespace {

Cause cause_of(const Stretch& s) {
  if (s.vertex == 0 || s.why == Why::host) return Cause::host;
  if (s.why == Why::communicator) return Cause::communicator;
  return s.through_host ? Cause::host : Cause::event;
}

// Stretches, last first, as pieces of an interval; neighbours of one work and cause are one piece.
void add(std::vector<Exposed>& out, const std::vector<Stretch>& stretches) {
  for (const Stretch& s : stretches) {
    const Cause cause = cause_of(s);
    if (!out.empty() && out.back().vertex == s.vertex && out.back().cause == cause &&
        out.back().start == s.end) {
      out.back().start = s.start;
      out.back().duration += s.end - s.start;
      continue;
    }
    out.push_back({s.start, s.end - s.start, s.vertex, cause, {}});
  }
}

// The collective that runs at the end of an interval.
uint32_t running_at(const Timeline& timeline, const Trace& trace, const ScheduleGraph& graph,
                    const Interval& i) {
  uint32_t vertex = 0;
  Time latest{INT64_MIN};
  for (const CollectiveTime& c : timeline.collectives()) {
    if (trace.start[c.launch] >= i.end || trace.end[c.launch] <= i.start) continue;
    if (trace.end[c.launch] > latest) {
      latest = trace.end[c.launch];
      vertex = graph.of_launch[c.launch];
    }
  }
  return vertex;
}

}  // namespace

std::string_view name_of(Cause cause) {
  switch (cause) {
    case Cause::event: return "event";
    case Cause::communicator: return "communicator";
    case Cause::host: return "host";
    case Cause::end_of_step: return "end_of_step";
  }
  return "?";
}

std::vector<Exposed> explain_exposed(const Timeline& timeline, const Schedule& schedule,
                                     const Trace& trace, const ScheduleGraph& graph,
                                     std::span<const std::string> groups) {
  const StepTimes& step = timeline.times();
  std::vector<uint32_t> compute;  // launches of the compute stream that compute, by start
  for (uint32_t l = step.first_launch; l < step.end_launch; ++l) {
    const Vertex& v = graph.vertices[graph.of_launch[l]];
    if (v.stream == kCompute && is_compute(schedule.works[v.work.v].kind)) compute.push_back(l);
  }
  const Chain chain(trace, graph);
  std::vector<Exposed> out, pieces;
  std::vector<Stretch> stretches;
  size_t next = 0;
  for (const Interval& i : timeline.exposed()) {
    while (next < compute.size() && trace.start[compute[next]] < i.end) ++next;
    pieces.clear();
    if (next == compute.size()) {
      pieces.push_back({i.start,
                        i.end - i.start,
                        running_at(timeline, trace, graph, i),
                        Cause::end_of_step,
                        {}});
    } else {
      stretches.clear();
      chain.back(graph.of_launch[compute[next]], i.start, i.end, stretches);
      add(pieces, stretches);
    }
    out.insert(out.end(), pieces.rbegin(), pieces.rend());
  }
  for (Exposed& e : out) {
    e.start = e.start - step.start;
    e.waiting_on = e.vertex == 0 ? "host" : vertex_name(schedule, graph, e.vertex, groups);
  }
  return out;
}

}  // namespace shardsim
