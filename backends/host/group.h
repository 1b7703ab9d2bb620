// What the ranks of a host replay share: collectives with real data, and the news that one of them has
// failed. One object serves one rank. Ranks are threads of a process (thread_group.h) or processes
// (mpi_group.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/replay/device.h"

namespace shardsim {

class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  // "4 threads of one process"
  virtual std::string kind() const = 0;
  // Communicators by CommId; the same on all ranks.
  virtual void prepare(const std::vector<Comm>& comms) = 0;
  // The rank's number `sequence` (from 0) on the work's communicator may begin: those before it have
  // ended. Throws Stopped when the run has been ended, as the next does.
  virtual void wait_for_turn(const Work& work, uint32_t sequence) = 0;
  // Returns when the data has arrived and the input may be written; its own end, before which no later
  // collective of the communicator begins.
  virtual std::chrono::steady_clock::time_point run(const Work& work, uint32_t sequence,
                                                    Regions regions) = 0;
  virtual void barrier(const Limits& limits) = 0;
  // Ends the run for all ranks; the first reason stays. Returns when no other rank reads this one's
  // memory any more.
  virtual void stop(const std::string& why) = 0;
  // Whether memory may still be written after stop(), by requests that can't be taken back: it is then
  // kept to the end of the process.
  virtual bool writes_after_stop() const { return false; }
  // Why, if the run has been ended; empty: it goes on.
  virtual std::string stopped() const = 0;
};

}  // namespace shardsim
