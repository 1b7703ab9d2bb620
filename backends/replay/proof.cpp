#include "backends/replay/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "backends/replay/communicators.h"
#include "sim/base/error.h"
#include "sim/schedule/graph/schedule_graph.h"

namespace shardsim {

namespace {

constexpr const char* kSameProgram =
    "all ranks of a replay play one scenario: check that each was started with the same file and "
    "options";

// A communicator as all its ranks know it, and which of its collectives.
struct Instance {
  uint32_t comm = 0;
  int first = 0;
  uint32_t sequence = 0;
  auto key() const { return std::tuple(comm, first, sequence); }
  friend bool operator<(const Instance& a, const Instance& b) { return a.key() < b.key(); }
};

struct Seen {
  uint32_t vertex = 0;  // of the union
  int rank = 0;         // that issued it first
  std::string what;
  int ranks = 0;
};

}  // namespace

namespace {

void check_world(const Schedule& schedule, int rank, size_t ranks) {
  for (const Comm& comm : schedule.comms) {
    const Membership m = membership(comm, rank);
    if (m.rank_of(m.size - 1) >= static_cast<int>(ranks))
      throw Error(fmt::format("communicator '{}' has rank {}, and {} ranks play", comm.name,
                              m.rank_of(m.size - 1), ranks),
                  {}, "start as many ranks as the scenario's mesh has");
  }
}

}  // namespace

void prove(std::span<const Schedule* const> ranks) {
  for (size_t r = 0; r < ranks.size(); ++r)
    check_world(*ranks[r], static_cast<int>(r), ranks.size());
  // One schedule for all: the order in which its host issues works is one in which all ranks can end
  // them, so the graph of one is enough.
  if (std::all_of(ranks.begin(), ranks.end(), [&](const Schedule* s) { return s == ranks[0]; })) {
    topological_order(build_graph(*ranks[0]));
    return;
  }
  std::vector<Vertex> vertices{{Vertex::Kind::begin, 0, UINT32_MAX, {}, {}}};
  std::vector<Edge> edges;
  std::map<Instance, Seen> seen;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    const Schedule& schedule = *ranks[r];
    const ScheduleGraph graph = build_graph(schedule);
    std::vector<uint32_t> to(graph.vertices.size(), 0);
    std::vector<uint32_t> issued(schedule.comms.size(), 0);
    for (uint32_t v = 1; v < graph.vertices.size(); ++v) {
      const Vertex& x = graph.vertices[v];
      const bool meets =
          x.kind == Vertex::Kind::launch && is_collective(schedule.works[x.work.v].kind);
      if (!meets) {
        to[v] = static_cast<uint32_t>(vertices.size());
        vertices.push_back(x);
        continue;
      }
      const Work& w = schedule.works[x.work.v];
      const Membership m = membership(schedule.comms[w.comm.v], rank);
      const Instance instance{w.comm.v, m.first, issued[w.comm.v]++};
      const std::string what = describe(schedule, w);
      const auto [at, made] =
          seen.try_emplace(instance, Seen{static_cast<uint32_t>(vertices.size()), rank, what, 0});
      if (made)
        vertices.push_back(x);
      else if (at->second.what != what)
        throw Error(fmt::format("ranks {} and {} do not issue the same collectives: number {} of "
                                "communicator '{}' is {} on one and {} on the other",
                                at->second.rank, rank, instance.sequence,
                                schedule.comms[w.comm.v].name, at->second.what, what),
                    {}, kSameProgram);
      ++at->second.ranks;
      to[v] = at->second.vertex;
    }
    for (const Edge& e : graph.edges) edges.push_back({to[e.from], to[e.to], e.why, e.calls});
  }
  for (const auto& [instance, s] : seen)
    if (const int64_t size = ranks[static_cast<size_t>(s.rank)]->comms[instance.comm].size;
        s.ranks != size)
      throw Error(fmt::format("{} is issued by {} of the {} ranks of its communicator, rank {} the "
                              "first of them",
                              s.what, s.ranks, size, s.rank),
                  {}, kSameProgram);
  const ScheduleGraph all = graph_of(std::move(vertices), std::move(edges));
  topological_order(all);
}

void prove_same_collectives(const std::vector<std::vector<std::string>>& ranks) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    const std::vector<std::string>&a = ranks[0], &b = ranks[r];
    const size_t common = std::min(a.size(), b.size());
    for (size_t i = 0; i < common; ++i)
      if (a[i] != b[i])
        throw Error(fmt::format("ranks 0 and {} do not issue the same collectives: number {} is "
                                "{} on one and {} on the other",
                                r, i, a[i], b[i]),
                    {}, kSameProgram);
    if (a.size() != b.size())
      throw Error(fmt::format("ranks 0 and {} do not issue the same collectives: {} on one and {} "
                              "on the other",
                              r, a.size(), b.size()),
                  {}, kSameProgram);
  }
}

}  // namespace shardsim
