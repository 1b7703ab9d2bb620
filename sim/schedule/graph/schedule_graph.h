// The schedule as a graph: what has to be over before what, and why. Built on demand, in compressed
// sparse row form; never on a sweep's path. Boost.Graph works on it in algorithms.cpp.
//
// Vertices, numbered in the order the host comes to them, so every edge goes from a smaller number
// to a larger one: 0 is the start of the run, then each launch, each wait of the host (HostWait,
// StreamSync, DeviceSync) and each work of the host itself (HostWork).
// Edges into a launch:
//   stream        the launch before it on its stream
//   event         the last launch, of each other stream, that an event waited for covers
//   communicator  the collective before it on its communicator
//   host          the last wait or work of the host before it, with the number of host calls in
//                 between
// Edges into a host wait: event edges from the launches it waits for, a host edge as above, which is
// all that a host work has. An edge
// that others imply is left out (a second wait for the same event, say), so at most one comes from
// each stream.
// WaitUnlessDone counts as a host call and PinnedTake as none, since both depend on time; weights
// taken from a trace do not depend on the count.
//
// Weights: a duration for each vertex (0 for the start and for host waits) and a lag for each edge
// (0 but for host edges: how long after the wait or work the host gets to the launch). Then
//   start(v) = max over edges u -> v of start(u) + duration(u) + lag
// is the machine's own start, and the longest path is as long as the run.
// Worked number: A (10 us) on stream 0, recorded; stream 1 waits and runs collective C (20 us),
// recorded; stream 0 runs B (5 us), waits for C and runs D (10 us), host free of cost. Edges: start
// to each; A-B, B-D (stream); A-C, C-D (event). Longest path A, C, D: 40 us; B has 15 us of slack.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace shardsim {

enum class Why : uint8_t { stream, event, communicator, host };
std::string_view name_of(Why why);

struct Vertex {
  enum class Kind : uint8_t { begin, launch, host_wait, host_work } kind = Kind::launch;
  StreamId stream = 0;
  uint32_t launch = UINT32_MAX;  // number of the launch, as in a Trace
  WorkId work;
  GroupId group;  // of the work, or of the segment whose compute it is
  // Host works: the number in the order played, as in a Trace, and which of Schedule::host_works.
  uint32_t worked = UINT32_MAX, host_work = UINT32_MAX;
};

struct Edge {
  uint32_t from = 0, to = 0;
  Why why = Why::stream;
  uint32_t calls = 0;  // host edges: host calls in between
};

struct ScheduleGraph {
  std::vector<Vertex> vertices;
  std::vector<Edge> edges;         // by `to`: those into v are [first_in[v], first_in[v+1])
  std::vector<uint32_t> first_in;  // one more than vertices
  std::vector<uint32_t> out;       // edge numbers by `from`: [first_out[v], first_out[v+1])
  std::vector<uint32_t> first_out;
  std::vector<uint32_t> of_launch;  // vertex of each launch
  std::vector<uint32_t> of_worked;  // and of each work of the host itself

  std::span<const Edge> into(uint32_t v) const {
    return {edges.data() + first_in[v], edges.data() + first_in[v + 1]};
  }
};

ScheduleGraph build_graph(const Schedule& schedule);
// Of any vertices and edges, acyclic or not.
ScheduleGraph graph_of(std::vector<Vertex> vertices, std::vector<Edge> edges);

struct Weights {
  std::vector<Time> duration;  // by vertex
  std::vector<Time> lag;       // by edge
};

// What the run of a trace took.
Weights weights_from_trace(const ScheduleGraph& graph, const Trace& trace);
// By a cost for each work; host_work: for each of the host's own, empty where they take no time.
Weights weights_from_costs(const ScheduleGraph& graph, std::span<const Time> work, Time host_call,
                           std::span<const Time> host_work = {});

// Throws Error that names a cycle if there is one.
std::vector<uint32_t> topological_order(const ScheduleGraph& graph);

// By vertex; the start of the run is 0.
std::vector<Time> earliest_starts(const ScheduleGraph& graph, const Weights& weights);
// How much later each vertex may start without making the run longer.
std::vector<Time> slacks(const ScheduleGraph& graph, const Weights& weights);

struct CriticalPath {
  std::vector<uint32_t> edges;  // first to last
  Time length;
};
// The longest path; the lower edge number where two are equally long.
CriticalPath critical_path(const ScheduleGraph& graph, const Weights& weights);

// "all_gather layers.3", "rms_norm", "host wait". Group names by GroupId; may be empty.
std::string vertex_name(const Schedule& schedule, const ScheduleGraph& graph, uint32_t vertex,
                        std::span<const std::string> groups);

void write_graphviz(std::ostream& out, const ScheduleGraph& graph, const Schedule& schedule,
                    std::span<const std::string> groups);
// {"vertices": [{"id", "kind", "stream", "name", "launch", "duration_ps", "slack_ps"}],
//  "edges": [{"from", "to", "why", "lag_ps"}], "critical_path": [vertex...], "length_ps"}
void write_graph_json(std::ostream& out, const ScheduleGraph& graph, const Weights& weights,
                      const Schedule& schedule, std::span<const std::string> groups);

}  // namespace shardsim
