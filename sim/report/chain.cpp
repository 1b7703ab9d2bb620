#include "sim/report/chain.h"

#include <algorithm>

namespace shardsim {

Time Chain::end_of(uint32_t vertex) const {
  const Vertex& x = graph_.vertices[vertex];
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
      if (device == nullptr || device->why == Why::host || end_of(device->from) <= from) {
        out.push_back({from, t, 0, Why::host, false});
        return;
      }
      const Time woke = std::min(t, end_of(device->from));
      if (woke < t) out.push_back({woke, t, 0, Why::host, false});
      t = woke;
      v = held->from;
      through_host = true;
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
