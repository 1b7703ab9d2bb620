// Replays on the host: with ranks as threads of this process, or with this process as one rank of
// several.
#pragma once

#include <span>
#include <vector>

#include "backends/replay/player.h"

namespace shardsim {

struct HostOptions {
  PlayOptions play;
  Limits limits;
  Bytes memory = 0;  // of each rank
};

// By rank: schedules in, results out. Proves first that they fit together (proof.h), and throws Error
// where they do not. A rank that fails ends the others; what it was is in each result's failure.
std::vector<Replay> replay_on_threads(std::span<const Schedule* const> ranks,
                                      const HostOptions& options);

// This process as one rank; the others run the same under MPI (mpi_group.h).
Replay replay_as_process(const Schedule& schedule, class MpiProcess& process,
                         const HostOptions& options);

}  // namespace shardsim
