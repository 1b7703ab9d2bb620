#include "sim/cli/replay_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/replay/communicators.h"

namespace shardsim {

namespace {

std::vector<uint32_t> works_in_order(const Schedule& schedule) {
  std::vector<uint32_t> works;
  schedule.for_each([&](const Instr& in, const Segment&) {
    if (in.kind == Kind::Launch) works.push_back(in.a);
  });
  return works;
}

std::string data_text(const ReplayRun& run) {
  std::string out;
  int64_t checked = run.checked_elsewhere;
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const Replay& rank = run.ranks[r];
    checked += rank.checked;
    if (rank.differences.empty()) continue;
    const auto& [launch, elements] = rank.differences.front();
    const uint32_t work = works_in_order(*run.played)[launch];
    out += fmt::format(
        "  rank {}: {} collectives brought other data than was sent; the first is launch {}, {} "
        "({} elements)\n",
        run.first_rank + static_cast<int>(r), rank.differences.size(), launch,
        describe(*run.played, run.played->works[work]), elements);
  }
  if (run.differs_elsewhere) out += "  other ranks have said what arrived wrong there\n";
  if (!out.empty()) return out;
  return fmt::format("  data        {} collectives checked, all brought what was sent\n", checked);
}

Bytes peak_reserved(const Replay& rank) {
  Bytes peak = 0;
  for (const MarkRow& m : rank.trace.marks) peak = std::max(peak, m.reserved_peak);
  return peak;
}

}  // namespace

bool failed(const ReplayRun& run) {
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const Replay& r) { return r.failure.has_value(); });
}

bool data_differs(const ReplayRun& run) {
  return run.differs_elsewhere ||
         std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const Replay& r) { return !r.differences.empty(); });
}

std::string failure_text(const ReplayRun& run) {
  std::string out;
  for (size_t r = 0; r < run.ranks.size(); ++r) {
    const Replay& rank = run.ranks[r];
    if (!rank.failure) continue;
    out += fmt::format("rank {}: {}\n", run.first_rank + static_cast<int>(r), rank.failure->what);
    for (const std::string& line : progress(*run.played, rank)) out += "  " + line + "\n";
  }
  return out;
}

std::string replay_text(const ReplayRun& run, const std::optional<TimedSteps>& steps) {
  std::string out = fmt::format("{}: {}", run.scenario, run.where);
  if (run.scale > 1) out += fmt::format(", sizes divided by {}", run.scale);
  out += "\n\n";
  if (steps) {
    out += fmt::format("  step time   {:.3f} ms, median of {} steps ({:.3f} to {:.3f} ms)\n",
                       steps->step_time.as_us() / 1e3, steps->steps, steps->shortest.as_us() / 1e3,
                       steps->longest.as_us() / 1e3);
    if (!steps->note.empty()) out += fmt::format("              {}\n", steps->note);
  } else {
    out += "  step time   no timed step ended\n";
  }
  const Replay& rank = run.ranks.front();
  out += fmt::format("  launches    {} of {} ended on rank {}\n",
                     std::count(rank.done.begin(), rank.done.end(), true), rank.done.size(),
                     run.first_rank);
  out += data_text(run);
  out += fmt::format("  memory      {} bytes reserved at most{}\n", peak_reserved(rank),
                     run.scale > 1 ? ", of the divided sizes" : "");
  return out;
}

}  // namespace shardsim
