// A device whose works share links, NICs, HBM and SMs (sim/engine/sharing.h), and its clock.
//
// Each stream is a queue of what the host issued: launches, records and waits. The clock moves from
// one start or end to the next, the earliest of the few streams' and never of what is queued behind
// them; at each the speeds of what runs are made anew, and with them the ends. Collectives of one
// communicator run in the order of their issue, whatever their streams.
// Speeds are whole parts of 2^20, and progress is rounded down to whole picoseconds at each change of
// speed: times are integers that do not depend on when the clock began.
//
// Worked example: kernel A (10 us, HBM 1) on stream 0 and collective B (10 us, HBM 1) on stream 1, both
// at 0: each runs at half speed, 0..20. With B of 4 us: B 0..8, A at half speed until 8 and then alone,
// 0..14.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/cost/cost_table.h"
#include "sim/engine/sharing.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/trace.h"

namespace shardsim {

class SharedDevice {
 public:
  // What the host issues to a stream, and the number of the launch or the event.
  enum class What : uint8_t { launch, record, wait };

  void begin(const Schedule& schedule, const CostTable& costs, Trace& trace);

  // False where it would have started before the clock.
  bool add(StreamId stream, What what, uint32_t id, uint32_t work, Time issued);
  uint32_t events() const { return static_cast<uint32_t>(event_.size()); }  // the next record's

  // Plays everything up to `limit`.
  void advance(Time limit) {
    while (step(limit)) {
    }
  }
  // Each plays no further than it has to.
  bool passed(uint32_t event, Time at);
  Time when(uint32_t event);
  Time idle(StreamId stream);
  Time all_idle();

  // When what is played of each stream and communicator is over.
  void ready(std::vector<Time>& streams, std::vector<Time>& comms) const;

 private:
  struct Item {
    Time issued;
    uint32_t id = 0;
    uint32_t work = 0;
    uint32_t turn = 0;  // of a collective among its communicator's
    What what = What::launch;
  };
  struct Stream {
    std::vector<Item> queue;
    size_t head = 0;
    Time ready;  // what was before the head is over
    Time at;     // when the head starts, or what runs ends
    // What runs.
    Time since, left;  // at full speed, from `since` on
    uint32_t launch = 0, work = 0;
    uint32_t speed = 0;      // in parts of 2^20
    uint32_t waits_for = 0;  // an event that is not over, or a communicator
    bool for_turn = false;   // it is a communicator
  };
  struct Comm {
    Time ready;
    uint32_t issued = 0, over = 0;
  };

  bool step(Time limit);  // false where nothing is left up to `limit`
  void look(size_t s);    // at the head of an idle stream
  void finish(size_t s);
  void start(size_t s);
  void set_speeds(Time now);
  void set_speed(Stream& s, uint32_t speed, Time now);
  void wake(uint32_t what, bool turn);
  bool collective(uint32_t work) const { return is_collective(works_[work].kind); }

  const Work* works_ = nullptr;
  const CostTable* costs_ = nullptr;
  Trace* trace_ = nullptr;
  std::vector<Stream> stream_ = std::vector<Stream>(kStreams);
  std::vector<Comm> comm_;
  std::vector<Time> event_{Time{}};                     // by record; Time::max(): not known yet
  uint64_t running_ = 0, startable_ = 0, blocked_ = 0;  // streams, by bit
  Time clock_;                                          // everything up to here is played
};

}  // namespace shardsim
