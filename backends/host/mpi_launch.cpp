#include <cstdlib>

#include "backends/host/mpi_group.h"

namespace shardsim {

bool started_by_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const char* value = std::getenv(name)) return std::atoi(value) > 1;
  return false;
}

}  // namespace shardsim
