// --shard of a sweep: which part of its points a process plays.
//
// "i/n" is the i-th of n parts. "auto" asks the environment: a Slurm array's task, or the rank of whoever
// started the processes (torchrun, mpirun, srun).
// Worked example: SLURM_ARRAY_TASK_ID=6, _MIN=2, _STEP=2, _COUNT=4 (sbatch --array=2-8:2): part 3 of 4.
#pragma once

#include <cstdint>
#include <string>

#include "backends/replay/launch.h"

namespace shardsim {

struct Shard {
  int64_t number = 1, of = 1;  // from 1
};

// Throws Error for a text that is neither, and for "auto" where nothing says a rank.
Shard read_shard(const std::string& text, const Variables& variables);

}  // namespace shardsim
