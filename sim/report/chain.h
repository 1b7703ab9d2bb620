// What held a work back: the chain of works, one behind the other, whose last let it start.
//
// A launch starts when the last of its edges in the schedule graph lets it, so from any vertex one
// can walk back in time without a gap: to what it waited for, to what that waited for, and so on.
// Each stretch of time belongs to the work that ran in it, on the device or on the host itself (the
// CPU's optimizer), or, where none did, to the host, which had not come to the call yet. Walked back over a whole step from its last work, the stretches are the
// critical path: their sum is the step time.
// Worked number: gathers A [0, 30) and B [30, 60) on one communicator, compute from 60 on waits for
// B: [30, 60) is B, held by an event; [0, 30) is A, held by the communicator.
#pragma once

#include <vector>

#include "sim/schedule/graph/schedule_graph.h"
#include "sim/schedule/trace.h"

namespace shardsim {

struct Stretch {
  Time start, end;
  uint32_t vertex = 0;        // the work that ran; 0: the host
  Why why = Why::event;       // how it held what came behind it
  bool through_host = false;  // the host itself waited for it
};

class Chain {
 public:
  Chain(const Trace& trace, const ScheduleGraph& graph);

  // The edge whose source let the vertex start; null at the start of the run. The device's where
  // host and device tie. A host wait is let go by the latest of what it waits for.
  const Edge* held_by(uint32_t vertex) const;
  // Appends what held `vertex` in [from, to), last first; `to` is when it starts.
  void back(uint32_t vertex, Time from, Time to, std::vector<Stretch>& out) const;
  // The end of a launch on the device or of a work of the host; 0 for the others.
  Time end_of(uint32_t vertex) const;

 private:
  // The last work of the host itself, at `vertex` or before it, that takes time; 0: none.
  uint32_t host_work_before(uint32_t vertex) const;

  const Trace& trace_;
  const ScheduleGraph& graph_;
  std::vector<uint32_t> host_works_;  // vertices of those that take time
};

}  // namespace shardsim
