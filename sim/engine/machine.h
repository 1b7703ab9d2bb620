// The machine: one loop that plays a schedule and owns the only clocks. The host issues calls in
// order; a launch starts when its stream, the host and (a collective) its communicator are free and
// every event its stream waits for has passed. How long it then takes is the policy's: "in order"
// (engine/in_order.h) or, where the costs say what works demand, "shared" (engine/shared.h).
// Memory is played in the same loop, in the host's order. Level live: the sum of live buffers, each
// rounded up to 512 bytes. Level blocks: the caching allocator, whose cudaMallocs cost the host time
// and whose retries synchronize; where it finds no room the run ends.
//
// Worked example, kernel 10 us, free host: launch on stream 0 (0..10), record e, wait e on stream 1,
// launch on stream 1: 10..20.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "sim/cost/cost_table.h"
#include "sim/engine/in_order.h"
#include "sim/engine/shared.h"
#include "sim/memory/caching_allocator.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace shardsim {

// Follows every buffer of a run at level blocks.
class MemoryObserver {
 public:
  virtual ~MemoryObserver() = default;
  virtual void allocated(const CachingAllocator& allocator, uint32_t slot) = 0;  // just now
  virtual void freeing(const CachingAllocator& allocator, uint32_t slot) = 0;    // about to
};

class Machine {
 public:
  Machine();  // level live
  // Level blocks.
  Machine(const AllocatorSettings& settings, const DeviceMemory& device);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Plays the segments of `schedule` that it has not played yet, appending to `trace`. `costs` has an
  // entry for every work they launch, and demands for each or for none: the first call's decide on the
  // policy. Stops where memory runs out (trace.out_of_memory).
  void play(const Schedule& schedule, const CostTable& costs, Trace& trace);

  // What the next step depends on: the clocks of streams and communicators relative to the latest of
  // them, the host's too where it is not ahead of them all, and memory. Equal states at the ends of
  // two steps of equal length mean that the next step will be as the last one was.
  struct State {
    std::vector<Time> lag;
    Bytes live = 0;
    uint64_t layout = 0;  // of the allocator's segments
    friend bool operator==(const State&, const State&) = default;
  };
  State state() const;
  Time now() const;                    // the latest clock
  Time host() const { return host_; }  // its own

  const CachingAllocator* allocator() const { return allocator_.get(); }

  // Level blocks. Ends the run right after the allocation that makes reserved bytes reach this many.
  void stop_at_reserved(Bytes bytes) { stop_at_ = bytes; }
  void observe(MemoryObserver* observer, AllocatorLog* log) {
    observer_ = observer;
    allocator_->set_log(log);
  }

 private:
  class Clock;
  template <class Device>
  void run(Device& device, const Schedule& schedule, const CostTable& costs, Trace& trace);
  const std::vector<Time>& streams() const {
    return shared_ ? shared_->streams() : in_order_.streams();
  }
  void unwind(const Schedule& schedule, size_t segment, uint32_t instr, Trace& trace);
  bool allocate(BufferId id, const Buffer& buffer, Time& host, Trace& trace);

  struct PinnedPool {
    std::vector<int64_t> free_at;  // events, in the order of release
    size_t head = 0;
  };

  Time host_;
  Time looked_;  // at the host: when the last collective was issued
  InOrder in_order_;
  std::unique_ptr<Shared> shared_;
  std::vector<int64_t> event_;  // the policy's, by the schedule's: of the latest record
  std::array<std::deque<uint32_t>, 2> queues_;  // of events that the program keeps
  size_t next_segment_ = 0;
  size_t phase_segment_ = 0;  // of the last mark
  uint32_t launches_ = 0;
  Bytes live_ = 0, peak_ = 0;
  std::array<Bytes, kCategories> by_category_{};
  std::vector<PinnedPool> pinned_;  // by log2 of the size
  std::vector<uint32_t> kept_;      // buffers of AllocOnce that are there
  Bytes stop_at_ = INT64_MAX;
  bool stopped_ = false;
  MemoryObserver* observer_ = nullptr;
  std::unique_ptr<Clock> clock_;  // level blocks
  std::unique_ptr<CachingAllocator> allocator_;
};

}  // namespace shardsim
