#include "sim/cli/replay_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "backends/replay/communicators.h"
#include "sim/base/error.h"
#include "sim/base/quantity.h"

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

OpLogFacts facts_of(const ReplayRun& run) {
  const Replay& rank = run.ranks.front();
  OpLogFacts facts;
  facts.source = run.source;
  facts.scenario = run.scenario;
  facts.rank = run.first_rank;
  facts.world = run.world;
  facts.scale = static_cast<double>(run.scale);
  facts.environment = {rank.environment.begin(), rank.environment.end()};
  if (!run.left_out.empty()) facts.warnings.push_back(run.left_out);
  if (rank.failure) facts.warnings.push_back("stopped: " + rank.failure->what);
  if (data_differs(run)) facts.warnings.push_back("collectives brought other data than was sent");
  return facts;
}

// The launches of the step in which the run stopped that had ended.
std::optional<OpLog> partial_log(const ReplayRun& run) {
  const Replay& rank = run.ranks.front();
  const auto last = std::find(rank.done.rbegin(), rank.done.rend(), true);
  if (last == rank.done.rend()) return std::nullopt;
  const auto stopped_at = static_cast<uint32_t>(rank.done.rend() - last);
  OpLog log;
  static_cast<OpLogFacts&>(log) = facts_of(run);
  log.warnings.emplace_back("no timed step ended: these are ops of the step that was under way");
  log.streams = run.schedule->streams;
  uint32_t launch = 0;
  Time first{}, end{};
  run.schedule->for_each([&](const Instr& in, const Segment&) {
    if (in.kind == Kind::Mark && run.schedule->marks[in.a].begins_step && launch < stopped_at)
      log.ops.clear();
    if (in.kind != Kind::Launch) return;
    const uint32_t n = launch++;
    if (n >= rank.done.size() || !rank.done[n]) return;
    const Work& w = run.schedule->works[in.a];
    LoggedOp& op = log.ops.emplace_back();
    op.stream = in.stream;
    op.kind = w.kind;
    op.name = w.name;
    op.bytes = w.bytes;
    op.flops = w.flops;
    if (w.group.valid() && w.group.v < run.groups.size())
      op.group = run.groups[w.group.v].empty() ? "(root)" : run.groups[w.group.v];
    op.start = rank.trace.start[n];
    op.duration = rank.trace.end[n] - rank.trace.start[n];
    first = log.ops.size() == 1 ? op.start : std::min(first, op.start);
    end = log.ops.size() == 1 ? op.end() : std::max(end, op.end());
  });
  if (log.ops.empty()) return std::nullopt;
  for (LoggedOp& op : log.ops) op.start = op.start - first;
  log.step_time = end - first;
  return log;
}

}  // namespace

std::optional<TimedSteps> timed_steps(const ReplayRun& run, size_t rank) {
  try {
    return median_of_steps(*run.played, run.ranks[rank], run.timed_from);
  } catch (const Error&) {
    if (failed(run)) return std::nullopt;
    throw;
  }
}

void add_times(ReplayRun& run) {
  for (size_t r = 0; r < run.ranks.size() && !failed(run); ++r)
    if (const std::optional<TimedSteps> steps = timed_steps(run, r))
      run.times.push_back(rank_times(*run.played, *steps));
}

void ask_others(ReplayRun& run,
                const std::function<std::vector<std::string>(const std::string&)>& exchange) {
  add_times(run);
  const Replay& mine = run.ranks.front();
  const std::vector<std::string> all =
      exchange(fmt::format("{} {} {}", mine.checked, mine.differences.empty() ? "same" : "differs",
                           line_of(run.times.front())));
  run.times.clear();
  for (size_t r = 0; r < all.size(); ++r) {
    std::istringstream in(all[r]);
    int64_t checked = 0;
    std::string data, times;
    in >> checked >> data;
    std::getline(in, times);
    run.times.push_back(rank_times_of(times));
    if (static_cast<int>(r) == run.first_rank) continue;
    run.checked_elsewhere += checked;
    run.differs_elsewhere |= data == "differs";
  }
}

std::optional<OpLog> replay_log(const ReplayRun& run, const std::optional<TimedSteps>& steps) {
  if (!steps) return partial_log(run);
  OpLogFacts facts = facts_of(run);
  facts.repeats = steps->steps;
  facts.statistic = steps->steps == 1 ? "single" : "median";
  if (!steps->note.empty()) facts.warnings.push_back(steps->note);
  OpLog log = op_log_of(*run.schedule, steps->trace, run.groups, std::move(facts));
  log.step_time = steps->step_time;
  // A measured step begins with its first op.
  Time first = log.ops.empty() ? Time{} : log.ops.front().start;
  for (const LoggedOp& op : log.ops) first = std::min(first, op.start);
  for (LoggedOp& op : log.ops) op.start = op.start - first;
  if (run.scale != 1) log.peak_allocated = log.peak_active = log.peak_reserved = std::nullopt;
  return log;
}

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
  out += fmt::format("  memory      {} reserved at most{}\n", format_bytes(peak_reserved(rank)),
                     run.scale > 1 ? ", of the divided sizes" : "");
  if (!run.left_out.empty()) out += fmt::format("  note        {}\n", run.left_out);
  out += rank_times_table(run.times);
  return out;
}

}  // namespace shardsim
