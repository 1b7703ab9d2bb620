// Policy "shared": a device whose works share the machine (sim/engine/shared_device.h), as the host sees it.
//
// The device moves when the host looks at it: to the host's now, or on to the event that the host waits
// for; so whatever the host issues later starts later, and what was played stays true. When a step has
// been issued, the rest of it is played too, so that the trace is whole: ahead of what the host may
// issue next. If that then starts where the device has been already, everything since goes back to
// what was certain, and is decided anew. It rarely does: a step's first works wait for the last one's.
//
// Worked example: kernel A (10 us, HBM 1) is played to its end, 0..10. B (10 us, HBM 1), issued
// at 3 to another stream, starts at 3: A was at 3 and had 7 left, at half speed 14: 0..17. Had B waited
// for A, it would run 10..20, and nothing would go back.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/shared_device.h"

namespace shardsim {

class Shared {
 public:
  using Event = int64_t;  // the number of a record; 0: the start of the run

  void begin(const Schedule& schedule, const CostTable& costs, Trace& trace);
  // Plays what is queued to its end.
  void end();

  void launch(StreamId stream, uint32_t work, Time host);
  Event record(StreamId stream, Time host);
  void wait(StreamId stream, Event e);

  bool passed(Event e, Time at) { return device_.passed(static_cast<uint32_t>(e), at); }
  Time when(Event e) { return device_.when(static_cast<uint32_t>(e)); }
  Time idle(StreamId stream) { return device_.idle(stream); }
  Time all_idle() { return device_.all_idle(); }

  // When everything that was issued is over, as of the last end().
  const std::vector<Time>& streams() const { return stream_end_; }
  const std::vector<Time>& comms() const { return comm_end_; }

 private:
  using What = SharedDevice::What;
  struct Issued {
    Time issued;
    uint32_t id, work;
    StreamId stream;
    What what;
  };

  void add(StreamId stream, What what, uint32_t id, uint32_t work, Time host);
  void go_back();

  SharedDevice device_;
  Trace* trace_ = nullptr;
  bool ahead_ = false;         // the device has played what the host could still change
  SharedDevice certain_;       // where it is: before that,
  std::vector<Issued> since_;  // and what was issued since
  std::vector<Time> stream_end_, comm_end_;
};

}  // namespace shardsim
