#include "sim/engine/machine.h"

#include <algorithm>
#include <bit>

#include "sim/base/error.h"
#include "sim/schedule/streams.h"

namespace shardsim {

Machine::Machine() : stream_(kStreams), pinned_(64), taken_(kStreams, 0) {}

Machine::State Machine::state() const {
  State s;
  s.live = live_;
  s.lag.reserve(stream_.size() + comm_.size());
  // A clock in the past cannot matter any more.
  for (Time t : stream_) s.lag.push_back(std::max(Time{}, t - host_));
  for (Time t : comm_) s.lag.push_back(std::max(Time{}, t - host_));
  return s;
}

void Machine::play(const Schedule& schedule, const CostTable& costs, Trace& trace) {
  comm_.resize(schedule.comms.size());
  event_.resize(schedule.events);
  size_t total = 0;
  for (size_t i = next_segment_; i < schedule.segments.size(); ++i)
    total += schedule.segments[i].end - schedule.segments[i].begin;
  trace.start.reserve(trace.start.size() + total);
  trace.end.reserve(trace.end.size() + total);
  trace.issued.reserve(trace.issued.size() + total);

  const Time call = costs.host_call;
  const Instr* const code = schedule.code.data();
  const Work* const works = schedule.works.data();
  const Time* const price = costs.work.data();
  SHARDSIM_ASSERT(costs.work.size() >= schedule.works.size(), "every work has a price");
  Time host = host_;
  Bytes live = live_, peak = peak_;

  for (; next_segment_ < schedule.segments.size(); ++next_segment_) {
    const Segment& segment = schedule.segments[next_segment_];
    for (uint32_t i = segment.begin; i < segment.end; ++i) {
      const Instr in = code[i];
      switch (in.kind) {
        case Kind::Launch: {
          const Work& w = works[in.a];
          Time start = std::max(stream_[in.stream], host);
          Time end;
          if (is_collective(w.kind)) {
            start = std::max(start, comm_[w.comm.v]);
            end = start + price[in.a];
            comm_[w.comm.v] = end;
          } else {
            end = start + price[in.a];
          }
          stream_[in.stream] = end;
          trace.start.push_back(start);
          trace.end.push_back(end);
          trace.issued.push_back(host);
          ++launches_;
          host += call;
          break;
        }
        case Kind::Record:
          event_[in.a] = std::max(stream_[in.stream], host);
          host += call;
          break;
        case Kind::Wait:
          stream_[in.stream] = std::max(stream_[in.stream], event_[in.a]);
          host += call;
          break;
        case Kind::WaitUnlessDone:
          if (event_[in.a] > host) {
            stream_[in.stream] = std::max(stream_[in.stream], event_[in.a]);
            host += call;
          }
          break;
        case Kind::HostWait:
          host = std::max(host, event_[in.a]) + call;
          break;
        case Kind::StreamSync:
          host = std::max(host, stream_[in.stream]) + call;
          break;
        case Kind::DeviceSync:
          for (Time t : stream_) host = std::max(host, t);
          host += call;
          break;
        case Kind::Alloc: {
          const Buffer& b = schedule.buffers[segment.buffer(in).v];
          const Bytes bytes = round_block(b.bytes);
          live += bytes;
          by_category_[static_cast<size_t>(b.category)] += bytes;
          if (live > peak) {
            peak = live;
            trace.peak_by_category = by_category_;
            trace.peak_mark = static_cast<uint32_t>(trace.marks.size());
          }
          break;
        }
        case Kind::Free: {
          const Buffer& b = schedule.buffers[segment.buffer(in).v];
          const Bytes bytes = round_block(b.bytes);
          live -= bytes;
          by_category_[static_cast<size_t>(b.category)] -= bytes;
          break;
        }
        case Kind::PinnedTake: {
          const auto size = static_cast<uint8_t>(std::bit_width(std::max(in.a, 1u) - 1));
          PinnedPool& pool = pinned_[size];
          if (pool.head < pool.free_at.size() && pool.free_at[pool.head] <= host)
            ++pool.head;
          else
            host += call;
          taken_[in.stream] = size;
          break;
        }
        case Kind::PinnedRelease:
          pinned_[taken_[in.stream]].free_at.push_back(std::max(stream_[in.stream], host));
          host += call;
          break;
        case Kind::Mark: {
          trace.marks.push_back({in.a, launches_, host, live, peak});
          if (schedule.marks[in.a].begins_step) peak = live;
          host += call;
          break;
        }
      }
    }
  }
  host_ = host;
  live_ = live;
  peak_ = peak;
  trace.peak = peak;
}

}  // namespace shardsim
