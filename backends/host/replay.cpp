#include "backends/host/replay.h"

#include <fmt/format.h>

#include <sstream>
#include <thread>

#include "backends/host/device.h"
#include "backends/host/mpi_group.h"
#include "backends/host/thread_group.h"
#include "backends/replay/communicators.h"
#include "backends/replay/proof.h"

namespace shardsim {

std::vector<Replay> replay_on_threads(std::span<const Schedule* const> ranks,
                                      const HostOptions& options) {
  prove(ranks);
  ThreadRanks group(static_cast<int>(ranks.size()));
  std::vector<Replay> out(ranks.size());
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      const std::unique_ptr<RankGroup> mine = group.group(static_cast<int>(r));
      HostDevice device(*mine, options.memory, options.limits);
      out[r] = play(*ranks[r], device, options.play);
    });
  for (std::thread& t : threads) t.join();
  return out;
}

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

}  // namespace

Replay replay_as_process(const Schedule& schedule, MpiProcess& process,
                         const HostOptions& options) {
  std::vector<std::vector<std::string>> collectives;
  const std::string mine = fmt::format("{}", fmt::join(collectives_in_order(schedule), "\n"));
  for (const std::string& theirs : process.exchange(mine)) collectives.push_back(lines_of(theirs));
  prove_same_collectives(collectives);
  const std::vector<const Schedule*> all(static_cast<size_t>(process.world()), &schedule);
  prove(all);
  HostDevice device(process, options.memory, options.limits);
  return play(schedule, device, options.play);
}

}  // namespace shardsim
