// Variables as the launchers set them (torchrun's, OpenMPI 4's, MPICH's Hydra's, Slurm 23's), and
// mixtures that a user gets by nesting them.
#include "backends/replay/launch.h"

#include <gtest/gtest.h>

#include <map>

#include "sim/base/error.h"

namespace shardsim {
namespace {

using Map = std::map<std::string, std::string>;

LaunchPlace place_of(const Map& map) {
  return launch_place([&](const std::string& name) {
    const auto at = map.find(name);
    return at != map.end() ? std::optional<std::string>(at->second) : std::nullopt;
  });
}

std::string refused(const Map& map) {
  try {
    place_of(map);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Launch, ByHand) {
  const LaunchPlace p = place_of({});
  EXPECT_EQ(p.launcher, "");
  EXPECT_EQ(p.rank, 0);
  EXPECT_EQ(p.world, 1);
  EXPECT_EQ(p.address, "127.0.0.1");
  EXPECT_EQ(p.port, 29500);
}

TEST(Launch, Torchrun) {
  const LaunchPlace p = place_of({{"RANK", "5"},
                                  {"WORLD_SIZE", "8"},
                                  {"LOCAL_RANK", "1"},
                                  {"LOCAL_WORLD_SIZE", "4"},
                                  {"MASTER_ADDR", "node0"},
                                  {"MASTER_PORT", "1234"}});
  EXPECT_EQ(p.launcher, "torchrun");
  EXPECT_EQ(p.rank, 5);
  EXPECT_EQ(p.world, 8);
  EXPECT_EQ(p.local_rank, 1);
  EXPECT_EQ(p.address, "node0");
  EXPECT_EQ(p.port, 1234);
}

// mpirun inside a Slurm job: Slurm counts one process, the daemon.
TEST(Launch, OpenMpiBeforeSlurm) {
  const LaunchPlace p = place_of({{"OMPI_COMM_WORLD_RANK", "3"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                  {"SLURM_PROCID", "0"},
                                  {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(p.launcher, "OpenMPI");
  EXPECT_EQ(p.rank, 3);
  EXPECT_EQ(p.local_rank, 3);
  EXPECT_EQ(p.address, "127.0.0.1");
}

TEST(Launch, Mpich) {
  const LaunchPlace p = place_of({{"PMI_RANK", "9"},
                                  {"PMI_SIZE", "16"},
                                  {"MPI_LOCALRANKID", "1"},
                                  {"MPI_LOCALNRANKS", "8"},
                                  {"MASTER_ADDR", "10.0.0.1"}});
  EXPECT_EQ(p.launcher, "PMI");
  EXPECT_EQ(p.rank, 9);
  EXPECT_EQ(p.local_rank, 1);
}

TEST(Launch, SlurmFindsTheFirstNode) {
  const LaunchPlace p = place_of({{"SLURM_PROCID", "12"},
                                  {"SLURM_NTASKS", "16"},
                                  {"SLURM_LOCALID", "4"},
                                  {"SLURM_STEP_NODELIST", "gpu[07-08]"}});
  EXPECT_EQ(p.launcher, "Slurm");
  EXPECT_EQ(p.rank, 12);
  EXPECT_EQ(p.local_rank, 4);
  EXPECT_EQ(p.address, "gpu07");
  EXPECT_EQ(first_node("a1"), "a1");
  EXPECT_EQ(first_node("a1,b[2-3]"), "a1");
  EXPECT_EQ(first_node("rack-[003,007-009],login"), "rack-003");
  EXPECT_EQ(first_node("n[1-2]-ib"), "n1-ib");
}

// A batch script itself: Slurm says how many tasks its steps will have.
TEST(Launch, ABatchScriptIsByHand) { EXPECT_EQ(place_of({{"SLURM_NTASKS", "8"}}).world, 1); }

TEST(Launch, RefusesWhatMakesNoSense) {
  EXPECT_EQ(refused({{"RANK", "two"}, {"WORLD_SIZE", "4"}}),
            "RANK: expected a whole number from 0 to 1048576, got 'two'");
  EXPECT_EQ(refused({{"RANK", "4"}, {"WORLD_SIZE", "4"}}),
            "RANK is 4, which WORLD_SIZE of 4 does not allow");
  EXPECT_EQ(refused({{"RANK", "0"}}), "RANK is set and WORLD_SIZE is not");
  EXPECT_EQ(refused({{"WORLD_SIZE", "4"}}), "WORLD_SIZE is set and RANK is not");
  EXPECT_EQ(refused({{"RANK", "0"}, {"WORLD_SIZE", "0"}}),
            "WORLD_SIZE: expected a whole number from 1 to 1048576, got '0'");
  EXPECT_EQ(
      refused({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}),
      "LOCAL_RANK is 2, which LOCAL_WORLD_SIZE of 2 does not allow");
  EXPECT_EQ(refused({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}),
            "MASTER_ADDR is not set, and PMI does not say where rank 0 runs");
  EXPECT_EQ(refused({{"MASTER_PORT", "0x50"}}),
            "MASTER_PORT: expected a whole number from 1 to 65534, got '0x50'");
}

}  // namespace
}  // namespace shardsim
