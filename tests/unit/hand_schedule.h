// Small schedules written call by call, and a machine of forty lines that plays them by the rules
// of sim/schedule: launch start = max(host now, stream, events waited for, communicator); a host
// call's cost is charged after its own start. Tests of the graph and the reports stand on it, so
// that they do not stand on the engine.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace shardsim::test {

class HandSchedule {
 public:
  Schedule schedule;
  std::vector<Time> cost;       // by work
  std::vector<Time> host_cost;  // by the host's own work

  explicit HandSchedule(int streams = 3) {
    for (int s = 0; s < streams; ++s) schedule.streams.push_back("s" + std::to_string(s));
  }
  uint32_t comm(int64_t size, const std::string& name, int64_t stride = 1) {
    schedule.comms.push_back({size, stride, name});
    return static_cast<uint32_t>(schedule.comms.size()) - 1;
  }
  uint32_t event() { return schedule.events++; }

  Work& kernel(StreamId stream, int64_t us, const char* name = "kernel") {
    return launch(stream, WorkKind::Kernel, us, name);
  }
  Work& copy(StreamId stream, int64_t us) { return launch(stream, WorkKind::CopyH2D, us, ""); }
  Work& collective(StreamId stream, WorkKind kind, int64_t us, uint32_t comm_id, uint32_t group) {
    Work& w = launch(stream, kind, us, "");
    w.comm = {comm_id};
    w.group = {group};
    return w;
  }
  Work& launch(StreamId stream, WorkKind kind, int64_t us, const char* name) {
    add(Kind::Launch, stream, static_cast<uint32_t>(schedule.works.size()));
    schedule.works.push_back({});
    schedule.works.back().kind = kind;
    schedule.works.back().name = name;
    cost.push_back(Time::us(us));
    return schedule.works.back();
  }
  void host_work(int64_t us, const char* name) {
    add(Kind::HostWork, 0, static_cast<uint32_t>(schedule.host_works.size()));
    schedule.host_works.emplace_back().name = name;
    host_cost.push_back(Time::us(us));
  }
  void record(StreamId stream, uint32_t e) { add(Kind::Record, stream, e); }
  void wait(StreamId stream, uint32_t e) { add(Kind::Wait, stream, e); }
  void wait_unless_done(StreamId stream, uint32_t e) { add(Kind::WaitUnlessDone, stream, e); }
  void host_wait(uint32_t e) { add(Kind::HostWait, 0, e); }
  void stream_sync(StreamId stream) { add(Kind::StreamSync, stream, 0); }
  void device_sync() { add(Kind::DeviceSync, 0, 0); }
  uint32_t buffer(Bytes bytes) {
    schedule.buffers.push_back({bytes, 0, Category::activations, {}});
    return static_cast<uint32_t>(schedule.buffers.size()) - 1;
  }
  void alloc(uint32_t b) { add(Kind::Alloc, 0, b); }
  void free(uint32_t b) { add(Kind::Free, 0, b); }
  void mark(const std::string& name, int step, bool begins) {
    add(Kind::Mark, 0, static_cast<uint32_t>(schedule.marks.size()));
    schedule.marks.push_back({name, step, begins});
  }
  void add(Kind kind, StreamId stream, uint32_t a) {
    Instr i;
    i.kind = kind;
    i.stream = stream;
    i.a = a;
    schedule.code.push_back(i);
  }

  const Schedule& done() {
    Segment s;
    s.end = static_cast<uint32_t>(schedule.code.size());
    schedule.segments = {s};
    return schedule;
  }

  Trace play(Time host_call = {}) {
    done();
    Trace t;
    const size_t n = schedule.streams.size();
    std::vector<Time> stream(n), event_at(schedule.events), comm_at(schedule.comms.size());
    Time now{};
    Bytes live = 0, peak = 0;
    schedule.for_each([&](const Instr& i, const Segment& s) {
      switch (i.kind) {
        case Kind::Launch: {
          const Work& w = schedule.works[i.a];
          Time start = std::max(now, stream[i.stream]);
          if (w.comm.valid()) start = std::max(start, comm_at[w.comm.v]);
          const Time end = start + cost[i.a];
          stream[i.stream] = end;
          if (w.comm.valid()) comm_at[w.comm.v] = end;
          t.start.push_back(start);
          t.end.push_back(end);
          t.issued.push_back(now);
          now += host_call;
          break;
        }
        case Kind::Record:
          event_at[i.a] = std::max(now, stream[i.stream]);
          now += host_call;
          break;
        case Kind::WaitUnlessDone:
          if (event_at[i.a] <= now) break;
          [[fallthrough]];
        case Kind::Wait:
          stream[i.stream] = std::max(stream[i.stream], event_at[i.a]);
          now += host_call;
          break;
        case Kind::HostWait:
          t.reached.push_back(now + host_call);
          now = std::max(now + host_call, event_at[i.a]);
          break;
        case Kind::StreamSync:
          t.reached.push_back(now + host_call);
          now = std::max(now + host_call, stream[i.stream]);
          break;
        case Kind::HostWork:
          t.worked.push_back({now, now + host_cost[i.a]});
          now = t.worked.back().end;
          break;
        case Kind::HostCalls:
          for (uint32_t k = 0; k < i.a; ++k) now += host_call;
          break;
        case Kind::DeviceSync:
          t.reached.push_back(now + host_call);
          now = std::max(now + host_call, *std::max_element(stream.begin(), stream.end()));
          break;
        case Kind::Alloc:
        case Kind::AllocOnce:  // once each, in these schedules
          live += round_block(schedule.buffers[s.buffer(i).v].bytes);
          peak = std::max(peak, live);
          break;
        case Kind::Free: live -= round_block(schedule.buffers[s.buffer(i).v].bytes); break;
        case Kind::EmptyCache:  // no blocks here
        case Kind::EventPush:   // and no queues: no test by hand has one
        case Kind::EventLimit:
        case Kind::UseOn:
        case Kind::PinnedTake: break;
        case Kind::PinnedRelease: now += host_call; break;
        case Kind::Mark:
          t.marks.push_back({i.a, static_cast<uint32_t>(t.start.size()), now, live, peak});
          t.marks.back().worked = static_cast<uint32_t>(t.worked.size());
          if (schedule.marks[i.a].begins_step) peak = live;
          now += host_call;
          break;
      }
    });
    t.peak = peak;
    t.peak_by_category[static_cast<size_t>(Category::activations)] = peak;
    t.peak_mark = t.marks.empty() ? 0 : static_cast<uint32_t>(t.marks.size()) - 1;
    return t;
  }
};

}  // namespace shardsim::test
