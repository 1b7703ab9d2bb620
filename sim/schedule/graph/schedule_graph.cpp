#include "sim/schedule/graph/schedule_graph.h"

#include <algorithm>
#include <array>
#include <deque>

#include "sim/base/error.h"

namespace shardsim {
namespace {

// For one stream (or event, or the host), the newest vertex of each stream that matters to it;
// 0 is none, since vertex 0 is on no stream.
using Clock = std::vector<uint32_t>;

void raise(Clock& a, const Clock& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = std::max(a[i], b[i]);
}

class Builder {
 public:
  explicit Builder(const Schedule& s)
      : schedule_(s),
        streams_(stream_count(s)),
        front_(streams_, Clock(streams_)),
        known_(streams_, Clock(streams_)),
        event_front_(s.events, Clock(streams_)),
        event_known_(s.events, Clock(streams_)),
        host_known_(streams_),
        comm_last_(s.comms.size()) {
    graph_.vertices.push_back({Vertex::Kind::begin, 0, UINT32_MAX, {}, {}});
    graph_.first_in = {0, 0};
  }

  ScheduleGraph build() {
    schedule_.for_each([&](const Instr& i, const Segment& s) { step(i, s); });
    return std::move(graph_);
  }

 private:
  static size_t stream_count(const Schedule& s) {
    size_t n = std::max<size_t>(1, s.streams.size());
    for (const Instr& i : s.code) n = std::max<size_t>(n, size_t{i.stream} + 1);
    return n;
  }

  void step(const Instr& i, const Segment& s) {
    switch (i.kind) {
      case Kind::Launch: launch(i, s); break;
      case Kind::Record:
        event_front_[s.event(i).v] = front_[i.stream];
        event_known_[s.event(i).v] = known_[i.stream];
        ++calls_;
        break;
      case Kind::Wait:
      case Kind::WaitUnlessDone: {
        Clock& front = front_[i.stream];
        Clock& known = known_[i.stream];
        const Clock& event = event_front_[s.event(i).v];
        for (size_t t = 0; t < streams_; ++t)
          if (event[t] > known[t]) front[t] = std::max(front[t], event[t]);
        raise(known, event_known_[s.event(i).v]);
        ++calls_;
        break;
      }
      case Kind::HostWork: host_work(i.a); break;
      case Kind::HostWait: host_wait(event_front_[i.a], event_known_[i.a]); break;
      // As if none had passed when it is looked at.
      case Kind::EventPush: queues_[i.stream].push_back(i.a); break;
      case Kind::EventLimit: {
        std::deque<uint32_t>& queue = queues_[i.stream];
        if (queue.size() <= i.a) break;
        host_wait(event_front_[queue.front()], event_known_[queue.front()]);
        queue.pop_front();
        break;
      }
      case Kind::StreamSync: host_wait(front_[i.stream], known_[i.stream]); break;
      case Kind::DeviceSync: {
        Clock front(streams_), known(streams_);
        for (size_t t = 0; t < streams_; ++t) {
          raise(front, front_[t]);
          raise(known, known_[t]);
        }
        host_wait(front, known);
        break;
      }
      case Kind::Mark:
      case Kind::PinnedRelease: ++calls_; break;
      case Kind::Alloc:
      case Kind::HostCalls: calls_ += i.a; break;
      case Kind::AllocOnce:
      case Kind::Free:
      case Kind::UseOn:
      case Kind::EmptyCache:
      case Kind::PinnedTake: break;
    }
  }

  void launch(const Instr& i, const Segment& s) {
    const auto v = static_cast<uint32_t>(graph_.vertices.size());
    const Work& work = schedule_.works[i.a];
    Clock& front = front_[i.stream];
    Clock& known = known_[i.stream];
    if (front[i.stream] != 0) edge(front[i.stream], v, Why::stream);
    for (size_t t = 0; t < streams_; ++t)
      if (t != i.stream && front[t] != 0) edge(front[t], v, Why::event);
    if (is_collective(work.kind) && work.comm.valid()) {
      uint32_t& last = comm_last_[work.comm.v];
      if (last != 0) {
        const StreamId t = graph_.vertices[last].stream;
        if (last > known[t]) {
          edge(last, v, Why::communicator);
          known[t] = last;
        }
      }
      last = v;
    }
    edge(host_, v, Why::host, calls_);
    std::fill(front.begin(), front.end(), 0);
    front[i.stream] = v;
    known[i.stream] = v;
    ++calls_;
    graph_.vertices.push_back({Vertex::Kind::launch, i.stream,
                               static_cast<uint32_t>(graph_.of_launch.size()), WorkId{i.a},
                               work.group.valid() ? work.group : s.group});
    graph_.of_launch.push_back(v);
    close();
  }

  void host_wait(const Clock& front, const Clock& known) {
    const auto v = static_cast<uint32_t>(graph_.vertices.size());
    for (size_t t = 0; t < streams_; ++t)
      if (front[t] > host_known_[t]) edge(front[t], v, Why::event);
    edge(host_, v, Why::host, calls_ + 1);  // its own cost runs while it waits
    raise(host_known_, known);
    for (Clock& k : known_) raise(k, host_known_);
    host_ = v;
    calls_ = 0;
    graph_.vertices.push_back({Vertex::Kind::host_wait, 0, UINT32_MAX, {}, {}});
    close();
  }

  void host_work(uint32_t work) {
    const auto v = static_cast<uint32_t>(graph_.vertices.size());
    edge(host_, v, Why::host, calls_);
    host_ = v;
    calls_ = 0;
    Vertex& x = graph_.vertices.emplace_back();
    x.kind = Vertex::Kind::host_work;
    x.worked = static_cast<uint32_t>(graph_.of_worked.size());
    x.host_work = work;
    graph_.of_worked.push_back(v);
    close();
  }

  void edge(uint32_t from, uint32_t to, Why why, uint32_t calls = 0) {
    graph_.edges.push_back({from, to, why, calls});
  }
  void close() { graph_.first_in.push_back(static_cast<uint32_t>(graph_.edges.size())); }

  const Schedule& schedule_;
  size_t streams_;
  std::vector<Clock> front_;  // what the stream's next launch has edges from
  std::vector<Clock> known_;  // what is over by then, directly or not
  std::vector<Clock> event_front_, event_known_;
  std::array<std::deque<uint32_t>, 2> queues_;  // of events that the program keeps
  Clock host_known_;
  std::vector<uint32_t> comm_last_;
  uint32_t host_ = 0;
  uint32_t calls_ = 0;
  ScheduleGraph graph_;
};

void index_out(ScheduleGraph& g) {
  const size_t n = g.vertices.size();
  g.first_out.assign(n + 1, 0);
  for (const Edge& e : g.edges) ++g.first_out[e.from + 1];
  for (size_t v = 0; v < n; ++v) g.first_out[v + 1] += g.first_out[v];
  g.out.resize(g.edges.size());
  std::vector<uint32_t> next(g.first_out.begin(), g.first_out.end() - 1);
  for (uint32_t e = 0; e < g.edges.size(); ++e) g.out[next[g.edges[e].from]++] = e;
}

}  // namespace

std::string_view name_of(Why why) {
  switch (why) {
    case Why::stream: return "stream";
    case Why::event: return "event";
    case Why::communicator: return "communicator";
    case Why::host: return "host";
  }
  return "?";
}

ScheduleGraph build_graph(const Schedule& schedule) {
  ScheduleGraph g = Builder(schedule).build();
  index_out(g);
  return g;
}

ScheduleGraph graph_of(std::vector<Vertex> vertices, std::vector<Edge> edges) {
  ScheduleGraph g;
  const size_t n = vertices.size();
  for (const Edge& e : edges)
    SHARDSIM_ASSERT(e.from < n && e.to < n, "an edge joins two vertices of its graph");
  std::stable_sort(edges.begin(), edges.end(),
                   [](const Edge& a, const Edge& b) { return a.to < b.to; });
  g.first_in.assign(n + 1, 0);
  for (const Edge& e : edges) ++g.first_in[e.to + 1];
  for (size_t v = 0; v < n; ++v) g.first_in[v + 1] += g.first_in[v];
  for (uint32_t v = 0; v < n; ++v) {
    if (vertices[v].kind != Vertex::Kind::launch) continue;
    if (vertices[v].launch == UINT32_MAX)
      vertices[v].launch = static_cast<uint32_t>(g.of_launch.size());
    g.of_launch.push_back(v);
  }
  g.vertices = std::move(vertices);
  g.edges = std::move(edges);
  index_out(g);
  return g;
}

Weights weights_from_trace(const ScheduleGraph& g, const Trace& trace) {
  const size_t n = g.vertices.size();
  Weights w{std::vector<Time>(n), std::vector<Time>(g.edges.size())};
  std::vector<Time> end(n);
  size_t waits = 0;
  for (uint32_t v = 0; v < n; ++v) {
    const Vertex& x = g.vertices[v];
    if (x.kind == Vertex::Kind::begin) continue;
    const bool launch = x.kind == Vertex::Kind::launch, works = x.kind == Vertex::Kind::host_work;
    const Time host = launch  ? trace.issued[x.launch]
                      : works ? trace.worked[x.worked].start
                              : trace.reached[waits++];
    if (launch) w.duration[v] = trace.end[x.launch] - trace.start[x.launch];
    if (works) w.duration[v] = trace.worked[x.worked].end - host;
    Time device{};
    for (uint32_t e = g.first_in[v]; e < g.first_in[v + 1]; ++e) {
      const Time from = end[g.edges[e].from];
      if (g.edges[e].why == Why::host)
        w.lag[e] = host - from;
      else
        device = std::max(device, from);
    }
    end[v] = launch  ? trace.end[x.launch]
             : works ? trace.worked[x.worked].end
                     : std::max(device, host);
  }
  return w;
}

Weights weights_from_costs(const ScheduleGraph& g, std::span<const Time> work, Time host_call,
                           std::span<const Time> host_work) {
  Weights w{std::vector<Time>(g.vertices.size()), std::vector<Time>(g.edges.size())};
  for (size_t v = 0; v < g.vertices.size(); ++v) {
    const Vertex& x = g.vertices[v];
    if (x.kind == Vertex::Kind::launch) w.duration[v] = work[x.work.v];
    if (x.kind == Vertex::Kind::host_work && !host_work.empty())
      w.duration[v] = host_work[x.host_work];
  }
  for (size_t e = 0; e < g.edges.size(); ++e)
    if (g.edges[e].why == Why::host) w.lag[e] = Time{host_call.ps * g.edges[e].calls};
  return w;
}

std::string vertex_name(const Schedule& schedule, const ScheduleGraph& graph, uint32_t vertex,
                        std::span<const std::string> groups) {
  const Vertex& v = graph.vertices[vertex];
  if (v.kind == Vertex::Kind::begin) return "begin";
  if (v.kind == Vertex::Kind::host_wait) return "host wait";
  if (v.kind == Vertex::Kind::host_work) return schedule.host_works[v.host_work].name;
  if (!v.work.valid() || v.work.v >= schedule.works.size())
    return "launch " + std::to_string(v.launch);
  const Work& work = schedule.works[v.work.v];
  std::string out;
  switch (work.kind) {
    case WorkKind::Gemm: out = *work.name ? work.name : "gemm"; break;
    case WorkKind::Kernel: out = *work.name ? work.name : "kernel"; break;
    case WorkKind::AllGather: out = "all_gather"; break;
    case WorkKind::ReduceScatter: out = "reduce_scatter"; break;
    case WorkKind::AllReduce: out = "all_reduce"; break;
    case WorkKind::Broadcast: out = "broadcast"; break;
    case WorkKind::Reduce: out = "reduce"; break;
    case WorkKind::CopyH2D: out = "copy_h2d"; break;
    case WorkKind::CopyD2H: out = "copy_d2h"; break;
    case WorkKind::CopyD2D: out = "copy_d2d"; break;
    case WorkKind::Memset: out = "memset"; break;
  }
  if (v.group.valid()) {
    out += ' ';
    if (v.group.v < groups.size())
      out += groups[v.group.v].empty() ? "(root)" : groups[v.group.v];
    else
      out += "group " + std::to_string(v.group.v);
  }
  return out;
}

}  // namespace shardsim
