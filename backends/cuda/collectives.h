// NCCL: one communicator for the world, split into those of the schedule, in the schedule's order on
// every rank (other orders would deadlock). All communicators are non-blocking, so that each wait for
// NCCL ends at the time-out, at Ctrl-C or when another rank has failed, and is then aborted.
//
// Worked example, 8 ranks with shard {size 4, stride 1} and replicate {size 2, stride 4}: rank 5
// splits with colour 4 (its first rank) and key 5, then with colour 1 and key 5.
#pragma once

#include <vector>

#include "backends/cuda/codes.h"
#include "backends/replay/device.h"
#include "backends/replay/meeting.h"

namespace shardsim {

class Collectives {
 public:
  Collectives(Meeting& meeting, const Limits& limits) : meeting_(meeting), limits_(limits) {}
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  void prepare(const std::vector<Comm>& comms);
  // A premultiplied sum is played as a sum: the factor costs nothing that could be measured.
  void run(const Work& work, Regions regions, cudaStream_t stream);
  // Throws Stopped where a communicator reports an error of its own.
  void look();
  void abort();

 private:
  void await(ncclComm_t comm, const char* what);

  Meeting& meeting_;
  const Limits limits_;
  std::vector<Comm> comms_;
  ncclComm_t world_ = nullptr;
  std::vector<ncclComm_t> by_id_;  // by CommId
  std::vector<ncclComm_t> all_;    // each once, the world first
};

}  // namespace shardsim
