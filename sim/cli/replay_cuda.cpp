#include "sim/cli/replay_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "backends/cuda/replay.h"
#include "backends/replay/communicators.h"
#include "backends/replay/launch.h"
#include "backends/replay/meeting.h"
#include "backends/replay/proof.h"
#include "sim/base/error.h"
#include "sim/cli/command.h"
#include "sim/study/simulate.h"

namespace shardsim {

namespace {

// A proof's graph has all ranks' launches: of more ranks it takes longer than it is worth, since all
// play one schedule.
constexpr int64_t kMostProved = 32;

std::unique_ptr<Meeting> meet(const LaunchPlace& place, const CudaChoices& choices,
                              const Limits& limits) {
  if (choices.single_gpu || place.world == 1) return meet_alone();
  if (!choices.directory.empty())
    return meet_in_directory(place.rank, place.world, choices.directory, limits);
  const int port = choices.port != 0 ? choices.port : place.port + 1;
  return meet_over_tcp(place.rank, place.world, place.address, port, limits);
}

// By hash first: the lists themselves, of thousands of lines, only where they are not the same.
void prove_together(Meeting& meeting, const Schedule& schedule, int64_t world) {
  if (meeting.rank() == 0 && world <= kMostProved)
    prove(std::vector<const Schedule*>(static_cast<size_t>(world), &schedule));
  const std::vector<std::string> mine = collectives_in_order(schedule);
  std::string text;
  for (const std::string& line : mine) text += line + "\n";
  const std::vector<std::string> hashes =
      meeting.all_gather(std::to_string(std::hash<std::string>{}(text)));
  if (std::all_of(hashes.begin(), hashes.end(), [&](const auto& h) { return h == hashes[0]; }))
    return;
  std::vector<std::vector<std::string>> ranks;
  for (const std::string& list : meeting.all_gather(text)) {
    std::vector<std::string>& lines = ranks.emplace_back();
    for (size_t at = 0; at < list.size();) {
      const size_t end = list.find('\n', at);
      lines.push_back(list.substr(at, end - at));
      at = end + 1;
    }
  }
  prove_same_collectives(ranks);
}

}  // namespace

std::optional<ReplayRun> replay_on_cuda(ReplayRun run, const Scenario& scenario,
                                        const CudaChoices& choices, PlayOptions play,
                                        const Limits& limits) {
  const LaunchPlace place = choices.single_gpu ? LaunchPlace{} : launch_place(environment_variable);
  if (!choices.single_gpu && place.world != run.world)
    throw Error(fmt::format("the scenario has {} ranks, and {} {} started", run.world, place.world,
                            place.world == 1 ? "process was" : "processes were"),
                {},
                fmt::format("torchrun --no-python --nproc-per-node {} shardsim replay ..., srun or "
                            "mpirun; or --single-gpu",
                            run.world));
  run.first_rank = place.rank;
  run.source = OpSource::replay_cuda;
  run.where = choices.single_gpu
                  ? fmt::format("one GPU as rank 0 of {}, collectives modelled", run.world)
                  : fmt::format("{} GPU{}", run.world, run.world == 1 ? "" : "s");
  CudaOptions cuda;
  cuda.local_rank = place.local_rank;
  cuda.limits = limits;
  cuda.memory_limit = choices.memory_limit;
  cuda.single_gpu = choices.single_gpu;
  cuda.single_gpu_world = run.world;
  cuda.groups = run.groups;
  const Schedule& played = *run.played;
  CostTable costs;
  if (choices.single_gpu) {
    costs = price(scenario, played);
    cuda.collective_time = [&](const Work& w) {
      return costs.work[static_cast<size_t>(&w - played.works.data())];
    };
    play.checked_steps = -1;
  }
  try {
    const std::unique_ptr<Meeting> meeting = meet(place, choices, limits);
    prove_together(*meeting, played, run.world);
    const std::unique_ptr<Device> device = cuda_device(*meeting, cuda);
    play.memory.total = device->total_memory();
    if (place.rank == 0) note("playing on {}\n", run.where);
    run.ranks.push_back(shardsim::play(played, *device, play));
    if (!failed(run))
      ask_others(run, [&](const std::string& mine) { return meeting->all_gather(mine); });
  } catch (const Stopped& e) {
    if (!run.ranks.empty()) {
      run.ranks.front().failure = Failure{e.why(), e.what()};
      return run;
    }
    note("rank {}: {}\n", place.rank, e.what());
    return std::nullopt;
  }
  return run;
}

}  // namespace shardsim
