// What a replay says when it ends: text for a person, and the op log of one rank.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/replay/player.h"
#include "backends/replay/steps.h"
#include "sim/cli/rank_times.h"
#include "sim/report/op_log.h"

namespace shardsim {

struct ReplayRun {
  std::string scenario, where;  // "4 ranks as threads"
  OpSource source = OpSource::replay_host;
  int64_t world = 1;
  std::vector<std::string> groups;     // names
  const Schedule* schedule = nullptr;  // the scenario's own
  const Schedule* played = nullptr;    // its sizes scaled
  int64_t scale = 1;
  int first_rank = 0;  // of `ranks`; the others are other processes'
  std::vector<Replay> ranks;
  int timed_from = 0;
  std::string left_out;          // what a replay does not do of the schedule; empty: all is played
  std::vector<RankTimes> times;  // of all ranks; empty: not all have a timed step
  // Of the other processes.
  int64_t checked_elsewhere = 0;
  bool differs_elsewhere = false;
};

// The timed steps of one of `ranks`, or none where no step ended.
std::optional<TimedSteps> timed_steps(const ReplayRun& run, size_t rank = 0);
// Ranks of one process.
void add_times(ReplayRun& run);
// Of ranks as processes: what the others found and took. `exchange` gives everyone's text, by rank.
void ask_others(ReplayRun& run,
                const std::function<std::vector<std::string>(const std::string&)>& exchange);

// Step time, data, memory, and all ranks' times.
std::string replay_text(const ReplayRun& run, const std::optional<TimedSteps>& steps);
// Of each rank that failed why, and where it stood; empty: none did.
std::string failure_text(const ReplayRun& run);
bool failed(const ReplayRun& run);
// Of the first rank's timed steps, or, where none ended, of what ended of the step that it stopped in.
// None where nothing ended at all.
std::optional<OpLog> replay_log(const ReplayRun& run, const std::optional<TimedSteps>& steps);
bool data_differs(const ReplayRun& run);

}  // namespace shardsim
