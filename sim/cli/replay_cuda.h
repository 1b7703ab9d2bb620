// `shardsim replay --backend cuda`: this process's rank, on its GPU.
#pragma once

#include <optional>
#include <string>

#include "sim/cli/replay_report.h"
#include "sim/plan/scenario.h"

namespace shardsim {

struct CudaChoices {
  bool single_gpu = false;
  Bytes memory_limit = 0;  // 0: what the GPU has
  std::string directory;   // that the ranks meet in; empty: over TCP
  int port = 0;            // 0: MASTER_PORT + 1
};

// `run` without results in, with this rank's out; none where the ranks did not come together, which is
// said on stderr. Throws Error and NoDevice.
std::optional<ReplayRun> replay_on_cuda(ReplayRun run, const Scenario& scenario,
                                        const CudaChoices& choices, PlayOptions play,
                                        const Limits& limits);

}  // namespace shardsim
