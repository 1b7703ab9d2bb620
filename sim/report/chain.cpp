#include "sim/report/chain.h"

#include <algorithm>

namespace shardsim {

Chain::Chain(const Trace& trace, const ScheduleGraph& graph) : trace_(trace), graph_(graph) {
  for (size_t k = 0; k < graph.of_worked.size() && k < trace.worked.size(); ++k)
    if (trace.worked[k].end > trace.worked[k].start) host_works_.push_back(graph.of_worked[k]);
}

uint32_t Chain::host_work_before(uint32_t vertex) const {
  const auto behind = std::upper_bound(host_works_.begin(), host_works_.end(), vertex);
  return behind == host_works_.begin() ? 0 : *(behind - 1);
}

Time Chain::end_of(uint32_t vertex) const {
  const Vertex& x = graph_.vertices[vertex];
  if (x.kind == Vertex::Kind::host_work) return trace_.worked[x.worked].end;
  return x.kind == Vertex::Kind::launch ? trace_.end[x.launch] : Time{};
}

const Edge* Chain::held_by(uint32_t vertex) const {
  const Vertex& x = graph_.vertices[vertex];
  const Edge* best = nullptr;
  Time latest{INT64_MIN};
  for (const Edge& e : graph_.into(vertex)) {
    if (e.why == Why::host) continue;
    const Time end = end_of(e.from);
    if (end > latest) {
      latest = end;
      best = &e;
    }
  }
  for (const Edge& e : graph_.into(vertex)) {
    if (e.why != Why::host) continue;
    if (best == nullptr) return &e;
    if (x.kind == Vertex::Kind::launch && trace_.issued[x.launch] > latest) return &e;
  }
  return best;
}

void Chain::back(uint32_t vertex, Time from, Time to, std::vector<Stretch>& out) const {
  Time t = to;
  uint32_t v = vertex;
  bool through_host = false;
  while (t > from) {
    const Edge* held = held_by(v);
    if (held == nullptr || held->why == Why::host) {
      const Edge* device = held == nullptr ? nullptr : held_by(held->from);
      if (device != nullptr && device->why == Why::host) device = nullptr;
      const uint32_t work = held == nullptr ? 0 : host_work_before(held->from);
      const Time waited = device == nullptr ? from : end_of(device->from);
      const Time worked = work == 0 ? from : end_of(work);
      if (std::max(waited, worked) <= from) {
        out.push_back({from, t, 0, Why::host, false});
        return;
      }
      const Time woke = std::min(t, std::max(waited, worked));
      if (woke < t) out.push_back({woke, t, 0, Why::host, false});
      t = woke;
      through_host = worked <= waited;
      v = through_host ? held->from : work;
      if (through_host) continue;
      const Time begin = std::max(from, trace_.worked[graph_.vertices[work].worked].start);
      if (begin < t) out.push_back({begin, t, work, Why::host, false});
      t = std::min(t, begin);
      continue;
    }
    const uint32_t u = held->from;
    const Time begin = std::max(from, std::min(t, trace_.start[graph_.vertices[u].launch]));
    if (begin < t) out.push_back({begin, t, u, held->why, through_host});
    through_host = false;
    t = begin;
    v = u;
  }
}

}  // namespace shardsim
