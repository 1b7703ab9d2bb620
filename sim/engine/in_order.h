// Policy "in order": nothing is shared, so what a launch takes is known when it is issued. One pass,
// O(1) an instruction, no allocation. An event is the picosecond at which it passes.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/cost/cost_table.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/trace.h"

namespace shardsim {

class InOrder {
 public:
  using Event = int64_t;

  void begin(const Schedule& schedule, const CostTable& costs, Trace& trace) {
    works_ = schedule.works.data();
    price_ = costs.work.data();
    trace_ = &trace;
    stream_.resize(std::max(stream_.size(), schedule.streams.size()));
    comm_.resize(schedule.comms.size());
  }

  void launch(StreamId stream, uint32_t work, Time host) {
    const Work& w = works_[work];
    Time start = std::max(stream_[stream], host);
    Time end;
    if (is_collective(w.kind)) {
      start = std::max(start, comm_[w.comm.v]);
      end = start + price_[work];
      comm_[w.comm.v] = end;
    } else {
      end = start + price_[work];
    }
    stream_[stream] = end;
    trace_->start.push_back(start);
    trace_->end.push_back(end);
  }
  Event record(StreamId stream, Time host) const { return std::max(stream_[stream], host).ps; }
  void wait(StreamId stream, Event e) { stream_[stream] = std::max(stream_[stream], Time{e}); }

  // The device as the host sees it; the host's now, or what it waits for, is its argument or result.
  bool passed(Event e, Time at) const { return e <= at.ps; }
  Time when(Event e) const { return {e}; }
  Time idle(StreamId stream) const { return stream_[stream]; }
  Time all_idle() const { return *std::max_element(stream_.begin(), stream_.end()); }

  // When everything that was issued is over.
  const std::vector<Time>& streams() const { return stream_; }
  const std::vector<Time>& comms() const { return comm_; }

 private:
  const Work* works_ = nullptr;
  const Time* price_ = nullptr;
  Trace* trace_ = nullptr;
  std::vector<Time> stream_ = std::vector<Time>(kStreams), comm_;
};

}  // namespace shardsim
