// Ranks as threads: a collective is a meeting of the threads that play its communicator's streams, each
// of which reads the others' memory directly. One after another on a communicator, as NCCL does.
// Worked example: 4 ranks all-gather 1 KiB parts: each waits until four regions are known, copies
// four parts, and waits until all have copied.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/host/group.h"

namespace shardsim {

class ThreadRanks {
 public:
  explicit ThreadRanks(int world) : world_(world) {}
  // Of one rank; the ranks must outlive it.
  std::unique_ptr<RankGroup> group(int rank);

 private:
  friend class ThreadGroup;

  // One communicator's ranks; `turn` counts the collectives that all have left.
  struct Meeting {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Regions> regions;            // by number
    std::vector<std::vector<char>> partial;  // by number: its part of a sum
    int arrived = 0, summed = 0, left = 0;
    uint32_t turn = 0;
    std::vector<std::chrono::steady_clock::time_point> ended;  // by turn
  };
  Meeting& meeting(CommId comm, int first, int size);
  void stop(const std::string& why);

  const int world_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::unique_ptr<Meeting>>> meetings_;  // by communicator, by first rank
  std::string why_;
  std::atomic<bool> stopped_ = false;
  int waiting_ = 0;
  int copying_ = 0;  // threads that read other ranks' memory
  uint64_t barriers_ = 0;
};

}  // namespace shardsim
