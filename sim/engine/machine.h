// The machine: one loop that plays a schedule and owns the only clocks. The host issues calls in
// order; a launch starts when its stream, the host and (a collective) its communicator are free and
// every event its stream waits for has passed. Policy "in order": a launch's cost is known when it is
// issued, so one pass suffices, O(1) an instruction and no allocation.
// Memory level live: the sum of live buffers, each rounded up to 512 bytes, in the host's order.
//
// Worked example, kernel 10 us, free host: launch on stream 0 (0..10), record e, wait e on stream 1,
// launch on stream 1: 10..20.
#pragma once

#include <vector>

#include "sim/cost/cost_table.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace shardsim {

class Machine {
 public:
  Machine();

  // Plays the segments of `schedule` that it has not played yet, appending to `trace`. `costs` has an
  // entry for every work they launch.
  void play(const Schedule& schedule, const CostTable& costs, Trace& trace);

  // The clocks of streams and communicators relative to the host's, and the live bytes: two equal
  // states at the ends of two steps mean that the next step will be as the last one was.
  struct State {
    std::vector<Time> lag;
    Bytes live = 0;
    friend bool operator==(const State&, const State&) = default;
  };
  State state() const;
  Time host_now() const { return host_; }

 private:
  struct PinnedPool {
    std::vector<Time> free_at;  // in the order of release
    size_t head = 0;
  };

  Time host_;
  std::vector<Time> stream_, comm_, event_;
  size_t next_segment_ = 0;
  uint32_t launches_ = 0;
  Bytes live_ = 0, peak_ = 0;
  std::array<Bytes, kCategories> by_category_{};
  std::vector<PinnedPool> pinned_;  // by log2 of the size
  std::vector<uint8_t> taken_;      // by stream: the size taken last
};

}  // namespace shardsim
