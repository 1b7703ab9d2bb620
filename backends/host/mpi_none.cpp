// Of a build without MPI.
#include "backends/host/mpi_group.h"
#include "sim/base/error.h"

namespace shardsim {

bool has_mpi() { return false; }

std::unique_ptr<MpiProcess> mpi_process() {
  throw Error("this build has no MPI, and was started as one of several processes", {},
              "install an MPI (Debian: libopenmpi-dev) and build again, or start one process: its "
              "ranks are threads");
}

}  // namespace shardsim
