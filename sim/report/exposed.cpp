#include "sim/report/exposed.h"

#include <algorithm>

namespace shardsim {
namespace {

class Walk {
 public:
  Walk(const Trace& trace, const ScheduleGraph& graph) : trace_(trace), graph_(graph) {}

  // Appends the stretches of [a, b), last first.
  void back(uint32_t vertex, Time a, Time b, std::vector<Exposed>& out) const {
    Time t = b;
    uint32_t v = vertex;
    bool through_host = false;
    while (t > a) {
      const Edge* held = last_to_end(v);
      if (held == nullptr || held->why == Why::host) {
        const Edge* device = held == nullptr ? nullptr : last_to_end(held->from);
        if (device == nullptr || device->why == Why::host || end_of(device->from) <= a) {
          add(out, a, t, 0, Cause::host);
          return;
        }
        const Time woke = std::min(t, end_of(device->from));
        if (woke < t) add(out, woke, t, 0, Cause::host);
        t = woke;
        v = held->from;
        through_host = true;
        continue;
      }
      const uint32_t u = held->from;
      const Time from = std::max(a, std::min(t, trace_.start[graph_.vertices[u].launch]));
      if (from < t)
        add(out, from, t, u,
            held->why == Why::communicator ? Cause::communicator
            : through_host                 ? Cause::host
                                           : Cause::event);
      through_host = false;
      t = from;
      v = u;
    }
  }

 private:
  Time end_of(uint32_t v) const {
    const Vertex& x = graph_.vertices[v];
    return x.kind == Vertex::Kind::launch ? trace_.end[x.launch] : Time{};
  }

  // The edge whose source let v start; null at the start of the run. The device's where host and
  // device tie. A host wait is let go by the latest of what it waits for.
  const Edge* last_to_end(uint32_t v) const {
    const Vertex& x = graph_.vertices[v];
    const Edge* best = nullptr;
    Time latest{INT64_MIN};
    for (const Edge& e : graph_.into(v)) {
      if (e.why == Why::host) continue;
      const Time end = end_of(e.from);
      if (end > latest) {
        latest = end;
        best = &e;
      }
    }
    for (const Edge& e : graph_.into(v)) {
      if (e.why != Why::host) continue;
      if (best == nullptr) return &e;
      if (x.kind == Vertex::Kind::launch && trace_.issued[x.launch] > latest) return &e;
    }
    return best;
  }

  static void add(std::vector<Exposed>& out, Time from, Time to, uint32_t vertex, Cause cause) {
    if (!out.empty() && out.back().vertex == vertex && out.back().cause == cause &&
        out.back().start == to) {
      out.back().start = from;
      out.back().duration += to - from;
      return;
    }
    out.push_back({from, to - from, vertex, cause, {}});
  }

  const Trace& trace_;
  const ScheduleGraph& graph_;
};

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
  const Walk walk(trace, graph);
  std::vector<Exposed> out, pieces;
  size_t next = 0;
  for (const Interval& i : timeline.exposed()) {
    while (next < compute.size() && trace.start[compute[next]] < i.end) ++next;
    pieces.clear();
    if (next == compute.size())
      pieces.push_back({i.start,
                        i.end - i.start,
                        running_at(timeline, trace, graph, i),
                        Cause::end_of_step,
                        {}});
    else
      walk.back(graph.of_launch[compute[next]], i.start, i.end, pieces);
    out.insert(out.end(), pieces.rbegin(), pieces.rend());
  }
  for (Exposed& e : out) {
    e.start = e.start - step.start;
    e.waiting_on = e.vertex == 0 ? "host" : vertex_name(schedule, graph, e.vertex, groups);
  }
  return out;
}

}  // namespace shardsim
