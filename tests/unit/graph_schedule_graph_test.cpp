#include "sim/schedule/graph/schedule_graph.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "sim/base/error.h"
#include "tests/unit/hand_schedule.h"

namespace shardsim {
namespace {

using test::HandSchedule;

// The worked number of the header: A 10 us on stream 0; C 20 us on stream 1 after A; B 5 us on
// stream 0; D 10 us on stream 0 after C. A [0,10) B [10,15) C [10,30) D [30,40).
HandSchedule worked() {
  HandSchedule h(2);
  const uint32_t comm = h.comm(2, "shard");
  const uint32_t a = h.event(), c = h.event();
  h.kernel(0, 10, "a");
  h.record(0, a);
  h.wait(1, a);
  h.collective(1, WorkKind::AllGather, 20, comm, 0);
  h.record(1, c);
  h.kernel(0, 5, "b");
  h.wait(0, c);
  h.kernel(0, 10, "d");
  h.done();
  return h;
}

std::string edges_text(const ScheduleGraph& g) {
  std::string out;
  for (const Edge& e : g.edges)
    out += std::to_string(e.from) + "-" + std::to_string(e.to) + " " + std::string(name_of(e.why)) +
           "\n";
  return out;
}

TEST(ScheduleGraph, WorkedNumber) {
  HandSchedule h = worked();
  const Trace t = h.play();
  const ScheduleGraph g = build_graph(h.schedule);
  // Vertices: 0 begin, 1 a, 2 all-gather, 3 b, 4 d.
  EXPECT_EQ(
      edges_text(g),
      "0-1 host\n1-2 event\n0-2 host\n1-3 stream\n0-3 host\n3-4 stream\n2-4 event\n0-4 host\n");
  const Weights w = weights_from_trace(g, t);
  const CriticalPath path = critical_path(g, w);
  EXPECT_EQ(path.length, Time::us(40));
  std::vector<uint32_t> on;
  for (uint32_t e : path.edges) on.push_back(g.edges[e].to);
  EXPECT_EQ(on, (std::vector<uint32_t>{1, 2, 4}));
  const std::vector<Time> slack = slacks(g, w);
  EXPECT_EQ(slack[1].ps, 0);
  EXPECT_EQ(slack[2].ps, 0);
  EXPECT_EQ(slack[3], Time::us(15));
  EXPECT_EQ(slack[4].ps, 0);
  const std::vector<std::string> groups{"layers.0"};
  EXPECT_EQ(vertex_name(h.schedule, g, 2, groups), "all_gather layers.0");
  EXPECT_EQ(vertex_name(h.schedule, g, 2, {}), "all_gather group 0");
  EXPECT_EQ(vertex_name(h.schedule, g, 4, groups), "d");
}

TEST(ScheduleGraph, ImpliedEdgesAreLeftOut) {
  HandSchedule h(2);
  const uint32_t e = h.event(), f = h.event();
  h.kernel(0, 1);
  h.record(0, e);
  h.kernel(0, 1);
  h.record(0, f);
  h.wait(1, f);
  h.wait(1, e);  // older than f: implied
  h.kernel(1, 1);
  h.wait(1, f);  // again
  h.kernel(1, 1);
  h.done();
  EXPECT_EQ(edges_text(build_graph(h.schedule)),
            "0-1 host\n1-2 stream\n0-2 host\n2-3 event\n0-3 host\n3-4 stream\n0-4 host\n");
}

// A record on a stream that only waited carries what it waited for.
TEST(ScheduleGraph, WaitsPassThroughAnIdleStream) {
  HandSchedule h(3);
  const uint32_t e = h.event(), f = h.event();
  h.kernel(0, 1);
  h.record(0, e);
  h.wait(1, e);
  h.record(1, f);
  h.wait(2, f);
  h.kernel(2, 1);
  h.done();
  EXPECT_EQ(edges_text(build_graph(h.schedule)), "0-1 host\n1-2 event\n0-2 host\n");
}

TEST(ScheduleGraph, CommunicatorsAndHostWaits) {
  HandSchedule h(3);
  const uint32_t comm = h.comm(8, "shard");
  const uint32_t e = h.event();
  h.collective(1, WorkKind::AllGather, 30, comm, 0);      // 1
  h.collective(2, WorkKind::ReduceScatter, 20, comm, 1);  // 2
  h.record(2, e);
  h.host_wait(e);   // 3
  h.kernel(0, 5);   // 4
  h.device_sync();  // 5: the all-gather is known to be over
  h.kernel(0, 5);   // 6
  const Trace t = h.play(Time::us(1));
  const ScheduleGraph g = build_graph(h.schedule);
  EXPECT_EQ(edges_text(g),
            "0-1 host\n1-2 communicator\n0-2 host\n2-3 event\n0-3 host\n3-4 host\n4-5 event\n"
            "3-5 host\n4-6 stream\n5-6 host\n");
  // Host: gather 0, scatter 1, record 2, wait at 3 until 50, then one call each. Kernel issued at
  // 50 ends at 55; sync until 55, next kernel 55 to 60.
  const Weights w = weights_from_trace(g, t);
  EXPECT_EQ(critical_path(g, w).length, Time::us(60));
  EXPECT_EQ(earliest_starts(g, w)[6], Time::us(55));
  const Weights by_cost = weights_from_costs(g, h.cost, Time::us(1));
  EXPECT_EQ(critical_path(g, by_cost).length, Time::us(60));
}

// A kernel [0, 10), 30 us of the host's own work, a kernel [31, 36): the host's two calls are in the lag
// of their edges.
TEST(ScheduleGraph, TheHostsOwnWork) {
  HandSchedule h(1);
  h.kernel(0, 10);                   // 1
  h.host_work(30, "CPU optimizer");  // 2
  h.kernel(0, 5);                    // 3
  const Trace t = h.play(Time::us(1));
  const ScheduleGraph g = build_graph(h.schedule);
  EXPECT_EQ(edges_text(g), "0-1 host\n0-2 host\n1-3 stream\n2-3 host\n");
  EXPECT_EQ(vertex_name(h.schedule, g, 2, {}), "CPU optimizer");
  EXPECT_EQ(critical_path(g, weights_from_trace(g, t)).length, Time::us(36));
  EXPECT_EQ(critical_path(g, weights_from_costs(g, h.cost, Time::us(1), h.host_cost)).length,
            Time::us(36));
}

// Schedules drawn at random: the graph's earliest starts are the machine's starts, the longest path
// is the run, and Boost's shortest path over negated weights agrees with the forward sweep.
TEST(ScheduleGraph, RandomSchedulesAgreeWithTheMachine) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    HandSchedule h(4);
    h.comm(8, "a");
    h.comm(4, "b");
    for (int e = 0; e < 5; ++e) h.event();
    for (int i = 0; i < 5; ++i) h.record(0, static_cast<uint32_t>(i));
    for (int i = 0; i < 120; ++i) {
      const auto s = static_cast<StreamId>(draw(4));
      switch (draw(12)) {
        case 0:
        case 1:
        case 2: h.kernel(s, 1 + draw(20)); break;
        case 3:
        case 4: h.collective(s, WorkKind::AllGather, 5 + draw(40), draw(2), 0); break;
        case 5:
        case 6: h.record(s, draw(5)); break;
        case 7:
        case 8: h.wait(s, draw(5)); break;
        case 9: h.wait_unless_done(s, draw(5)); break;
        case 10:
          if (draw(3) == 0)
            h.host_wait(draw(5));
          else if (draw(4) == 0)
            h.host_work(1 + draw(30), "CPU optimizer");
          break;
        case 11:
          if (draw(6) == 0)
            h.device_sync();
          else if (draw(6) == 0)
            h.stream_sync(s);
          break;
      }
    }
    const Time host_call = Time::us(draw(4));
    const Trace t = h.play(host_call);
    const ScheduleGraph g = build_graph(h.schedule);
    const Weights w = weights_from_trace(g, t);
    const std::vector<Time> start = earliest_starts(g, w);
    Time end{};
    for (size_t l = 0; l < t.start.size(); ++l) {
      EXPECT_EQ(start[g.of_launch[l]].ps, t.start[l].ps) << "seed " << seed << " launch " << l;
      end = std::max(end, t.end[l]);
    }
    Time graph_end{};
    for (size_t v = 0; v < start.size(); ++v)
      graph_end = std::max(graph_end, start[v] + w.duration[v]);
    EXPECT_GE(graph_end, end);  // a last wait of the host may be later
    EXPECT_EQ(critical_path(g, w).length, graph_end) << "seed " << seed;
    const std::vector<Time> slack = slacks(g, w);
    Time path_slack{};
    for (uint32_t e : critical_path(g, w).edges)
      path_slack = std::max(path_slack, slack[g.edges[e].to]);
    EXPECT_EQ(path_slack.ps, 0) << "seed " << seed;
    for (const Time s : slack) EXPECT_GE(s.ps, 0);
    // Numbers rise along edges, so any order Boost finds is one of them.
    for (const Edge& e : g.edges) EXPECT_LT(e.from, e.to);
    if (host_call.ps == 0) {
      // Without host cost the weights do not depend on a trace.
      EXPECT_EQ(earliest_starts(g, weights_from_costs(g, h.cost, host_call, h.host_cost)), start);
    }
  }
}

TEST(ScheduleGraph, TopologicalOrder) {
  const ScheduleGraph g = build_graph(worked().schedule);
  const std::vector<uint32_t> order = topological_order(g);
  std::vector<size_t> at(order.size());
  for (size_t i = 0; i < order.size(); ++i) at[order[i]] = i;
  ASSERT_EQ(order.size(), g.vertices.size());
  for (const Edge& e : g.edges) EXPECT_LT(at[e.from], at[e.to]);
}

TEST(ScheduleGraph, ACycleIsNamed) {
  std::vector<Vertex> vertices(5);
  vertices[0].kind = Vertex::Kind::begin;
  const ScheduleGraph g = graph_of(vertices, {{0, 1, Why::host, 0},
                                              {1, 2, Why::stream, 0},
                                              {2, 3, Why::event, 0},
                                              {3, 1, Why::communicator, 0},
                                              {3, 4, Why::stream, 0}});
  try {
    topological_order(g);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "the schedule waits for itself: 1 -> 2 -> 3 -> 1");
  }
  EXPECT_THROW(critical_path(g, {std::vector<Time>(5), std::vector<Time>(5)}), Error);
}

TEST(ScheduleGraph, Exports) {
  HandSchedule h = worked();
  const Trace t = h.play();
  const ScheduleGraph g = build_graph(h.schedule);
  std::ostringstream dot, json;
  const std::vector<std::string> groups{"layers.0"};
  write_graphviz(dot, g, h.schedule, groups);
  EXPECT_NE(dot.str().find("2[label=\"all_gather layers.0\", group=s1];"), std::string::npos)
      << dot.str();
  EXPECT_NE(dot.str().find("1->2 [tooltip=event, style=bold];"), std::string::npos) << dot.str();
  write_graph_json(json, g, weights_from_trace(g, t), h.schedule, groups);
  EXPECT_NE(json.str().find("{\"id\": 3, \"kind\": \"launch\", \"stream\": 0, \"name\": \"b\", "
                            "\"launch\": 2, \"duration_ps\": 5000000, \"slack_ps\": 15000000}"),
            std::string::npos)
      << json.str();
  EXPECT_NE(json.str().find("\"critical_path\": [1, 2, 4],\n\"length_ps\": 40000000"),
            std::string::npos);
}

TEST(ScheduleGraph, Empty) {
  Schedule s;
  const ScheduleGraph g = build_graph(s);
  EXPECT_EQ(g.vertices.size(), 1u);
  EXPECT_EQ(critical_path(g, {std::vector<Time>(1), {}}).length.ps, 0);
}

}  // namespace
}  // namespace shardsim
