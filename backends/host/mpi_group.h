// Ranks as processes under mpirun or srun: the collectives are MPI's, on communicators that are split
// in one order on all ranks. Needs an MPI with MPI_THREAD_MULTIPLE, since a rank's streams are threads.
//
// No MPI call blocks: requests are polled, so that a rank that fails can end the others. It sends them
// why, which each finds where it polls.
// Worked example: mpirun -np 4 shardsim replay scenarios/small/fsdp2.yaml
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/host/group.h"

namespace shardsim {

// Whether a launcher of MPI has started more than one process (OpenMPI's, PMI's and Slurm's variables).
bool started_by_mpi();

// Whether this build has it.
bool has_mpi();

class MpiProcess : public RankGroup {
 public:
  // By rank: everyone's text, the same on all ranks.
  virtual std::vector<std::string> exchange(const std::string& text) = 0;
  // The end of a process that has failed: waits, for some seconds at most, until the others have kept
  // what they have, and ends the run.
  [[noreturn]] virtual void leave(int code) = 0;
};

// Initializes MPI; finalized when it is destroyed. Throws Error where it can't be used.
std::unique_ptr<MpiProcess> mpi_process();

}  // namespace shardsim
