// Which rank a process is, from the variables of whoever started it. The first launcher whose
// variables are there counts: torchrun, OpenMPI, PMI (MPICH, Intel MPI), Slurm; Slurm comes last
// because its variables are also set around mpirun and torchrun. None of them: rank 0 of 1.
//
// Worked example: OMPI_COMM_WORLD_RANK=5, _SIZE=8, _LOCAL_RANK=1, MASTER_ADDR=node0: rank 5 of 8, on
// its node's second GPU, rank 0 is met at node0:29500.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace shardsim {

struct LaunchPlace {
  std::string launcher;  // "torchrun"; empty: started by hand
  int rank = 0, world = 1;
  std::optional<int> local_rank;  // on the node; none where the launcher does not say
  std::string address = "127.0.0.1";
  int port = 29500;  // MASTER_PORT, which the launcher itself may use: a meeting takes the next one
};

using Variables = std::function<std::optional<std::string>(const std::string&)>;

// The process's own.
std::optional<std::string> environment_variable(const std::string& name);

// Throws Error for variables that are no numbers, contradict each other, or leave rank 0's address
// open.
LaunchPlace launch_place(const Variables& variables);

// The first host of a Slurm node list: "gpu[07-09,12],login" -> "gpu07".
std::string first_node(const std::string& list);

}  // namespace shardsim
