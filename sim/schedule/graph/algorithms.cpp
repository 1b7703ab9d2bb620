// The one place with Boost.Graph.
#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/dag_shortest_paths.hpp>
#include <boost/graph/depth_first_search.hpp>
#include <boost/graph/graphviz.hpp>
#include <boost/graph/topological_sort.hpp>
#include <ostream>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/escape.h"
#include "sim/schedule/graph/schedule_graph.h"

namespace shardsim {
namespace {

struct EdgeBundle {
  uint32_t id = 0;
  int64_t negated = 0;  // -(duration of the source + lag): the longest path becomes the shortest
};
using Csr = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, EdgeBundle,
                                               boost::no_property, uint32_t, uint32_t>;

Csr boost_graph(const ScheduleGraph& g, const Weights* weights) {
  std::vector<std::pair<uint32_t, uint32_t>> ends;
  std::vector<EdgeBundle> bundles;
  ends.reserve(g.out.size());
  bundles.reserve(g.out.size());
  for (uint32_t id : g.out) {
    const Edge& e = g.edges[id];
    ends.emplace_back(e.from, e.to);
    bundles.push_back({id, weights ? -(weights->duration[e.from] + weights->lag[id]).ps : 0});
  }
  return Csr(boost::edges_are_sorted, ends.begin(), ends.end(), bundles.begin(),
             static_cast<uint32_t>(g.vertices.size()));
}

// Remembers the tree of the search, and the first edge that goes back up it.
struct CycleFinder : boost::default_dfs_visitor {
  std::vector<uint32_t>* parent;
  std::pair<uint32_t, uint32_t>* back;
  CycleFinder(std::vector<uint32_t>* p, std::pair<uint32_t, uint32_t>* b) : parent(p), back(b) {}
  template <class E, class G>
  void tree_edge(E e, const G& g) {
    (*parent)[target(e, g)] = static_cast<uint32_t>(source(e, g));
  }
  template <class E, class G>
  void back_edge(E e, const G& g) {
    if (back->first == UINT32_MAX)
      *back = {static_cast<uint32_t>(source(e, g)), static_cast<uint32_t>(target(e, g))};
  }
};

std::string cycle_of(const Csr& csr) {
  std::vector<uint32_t> parent(num_vertices(csr), UINT32_MAX);
  std::pair<uint32_t, uint32_t> back{UINT32_MAX, UINT32_MAX};
  boost::depth_first_search(csr, boost::visitor(CycleFinder(&parent, &back)));
  std::vector<uint32_t> loop{back.second};
  for (uint32_t v = back.first; v != back.second; v = parent[v]) loop.push_back(v);
  loop.push_back(back.second);
  std::reverse(loop.begin(), loop.end());
  return fmt::format("{}", fmt::join(loop, " -> "));
}

}  // namespace

std::vector<uint32_t> topological_order(const ScheduleGraph& g) {
  const Csr csr = boost_graph(g, nullptr);
  std::vector<uint32_t> order;
  order.reserve(g.vertices.size());
  try {
    boost::topological_sort(csr, std::back_inserter(order));
  } catch (const boost::not_a_dag&) {
    throw Error("the schedule waits for itself: " + cycle_of(csr), {},
                "each number is a vertex of the schedule graph; the first and last are the same");
  }
  std::reverse(order.begin(), order.end());
  return order;
}

std::vector<Time> earliest_starts(const ScheduleGraph& g, const Weights& weights) {
  std::vector<Time> start(g.vertices.size());
  for (const uint32_t v : topological_order(g))
    for (uint32_t e = g.first_in[v]; e < g.first_in[v + 1]; ++e) {
      const uint32_t u = g.edges[e].from;
      start[v] = std::max(start[v], start[u] + weights.duration[u] + weights.lag[e]);
    }
  return start;
}

std::vector<Time> slacks(const ScheduleGraph& g, const Weights& weights) {
  const std::vector<Time> start = earliest_starts(g, weights);
  Time length{};
  for (size_t v = 0; v < start.size(); ++v)
    length = std::max(length, start[v] + weights.duration[v]);
  std::vector<Time> latest(start.size());
  const std::vector<uint32_t> order = topological_order(g);
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const uint32_t v = *it;
    latest[v] = length - weights.duration[v];
    for (uint32_t o = g.first_out[v]; o < g.first_out[v + 1]; ++o) {
      const uint32_t e = g.out[o];
      latest[v] = std::min(latest[v], latest[g.edges[e].to] - weights.lag[e] - weights.duration[v]);
    }
  }
  for (size_t v = 0; v < start.size(); ++v) latest[v] = latest[v] - start[v];
  return latest;
}

CriticalPath critical_path(const ScheduleGraph& g, const Weights& weights) {
  CriticalPath path;
  if (g.vertices.empty()) return path;
  topological_order(g);  // a cycle is an error, not an endless walk
  const Csr csr = boost_graph(g, &weights);
  const size_t n = g.vertices.size();
  std::vector<int64_t> distance(n);
  boost::dag_shortest_paths(csr, 0u,
                            boost::weight_map(get(&EdgeBundle::negated, csr))
                                .distance_map(boost::make_iterator_property_map(
                                    distance.begin(), get(boost::vertex_index, csr)))
                                .distance_inf(INT64_MAX));
  uint32_t last = 0;
  for (uint32_t v = 0; v < n; ++v) {
    if (distance[v] == INT64_MAX) continue;
    const Time end = Time{-distance[v]} + weights.duration[v];
    if (end > path.length) {
      path.length = end;
      last = v;
    }
  }
  for (uint32_t v = last; v != 0;) {
    uint32_t tight = UINT32_MAX;
    for (uint32_t e = g.first_in[v]; e < g.first_in[v + 1] && tight == UINT32_MAX; ++e) {
      const uint32_t u = g.edges[e].from;
      if (distance[u] == INT64_MAX) continue;
      if (distance[u] - (weights.duration[u] + weights.lag[e]).ps == distance[v]) tight = e;
    }
    SHARDSIM_ASSERT(tight != UINT32_MAX, "a vertex starts when one of its edges lets it");
    path.edges.push_back(tight);
    v = g.edges[tight].from;
  }
  std::reverse(path.edges.begin(), path.edges.end());
  return path;
}

void write_graphviz(std::ostream& out, const ScheduleGraph& g, const Schedule& schedule,
                    std::span<const std::string> groups) {
  const Csr csr = boost_graph(g, nullptr);
  const auto vertex_writer = [&](std::ostream& o, auto v) {
    const Vertex& x = g.vertices[v];
    o << "[label=\"" << escaped(vertex_name(schedule, g, static_cast<uint32_t>(v), groups)) << '"';
    if (x.kind == Vertex::Kind::launch)
      o << ", group=s" << static_cast<int>(x.stream);
    else
      o << ", shape=box";
    o << ']';
  };
  const auto edge_writer = [&](std::ostream& o, const Csr::edge_descriptor& e) {
    constexpr const char* kStyle[] = {"solid", "bold", "dashed", "dotted"};
    const Why why = g.edges[csr[e].id].why;
    o << "[tooltip=" << name_of(why) << ", style=" << kStyle[static_cast<int>(why)] << ']';
  };
  boost::write_graphviz(out, csr, vertex_writer, edge_writer);
}

void write_graph_json(std::ostream& out, const ScheduleGraph& g, const Weights& weights,
                      const Schedule& schedule, std::span<const std::string> groups) {
  constexpr const char* kKinds[] = {"begin", "launch", "host_wait", "host_work"};
  const std::vector<Time> slack = slacks(g, weights);
  const CriticalPath path = critical_path(g, weights);
  std::string text = "{\n\"vertices\": [\n";
  for (uint32_t v = 0; v < g.vertices.size(); ++v) {
    const Vertex& x = g.vertices[v];
    const bool launch = x.kind == Vertex::Kind::launch;
    text += fmt::format(
        "{{\"id\": {}, \"kind\": \"{}\", \"stream\": {}, \"name\": \"{}\", \"launch\": {}, "
        "\"duration_ps\": {}, \"slack_ps\": {}}}{}\n",
        v, kKinds[static_cast<int>(x.kind)], launch ? std::to_string(x.stream) : "null",
        escaped(vertex_name(schedule, g, v, groups)), launch ? std::to_string(x.launch) : "null",
        weights.duration[v].ps, slack[v].ps, v + 1 < g.vertices.size() ? "," : "");
  }
  text += "],\n\"edges\": [\n";
  for (uint32_t e = 0; e < g.edges.size(); ++e)
    text += fmt::format("{{\"from\": {}, \"to\": {}, \"why\": \"{}\", \"lag_ps\": {}}}{}\n",
                        g.edges[e].from, g.edges[e].to, name_of(g.edges[e].why), weights.lag[e].ps,
                        e + 1 < g.edges.size() ? "," : "");
  std::vector<uint32_t> vertices;
  for (const uint32_t e : path.edges) vertices.push_back(g.edges[e].to);
  text += fmt::format("],\n\"critical_path\": [{}],\n\"length_ps\": {}\n}}\n",
                      fmt::join(vertices, ", "), path.length.ps);
  out << text;
}

}  // namespace shardsim
