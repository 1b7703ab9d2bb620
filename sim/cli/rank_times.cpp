#include "sim/cli/rank_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "sim/report/step_report.h"
#include "sim/report/text.h"

namespace shardsim {

RankTimes rank_times(const Schedule& schedule, const TimedSteps& steps) {
  RankTimes out;
  out.step = steps.step_time;
  uint32_t launch = 0;
  schedule.for_each([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    const uint32_t n = launch++;
    if (n < steps.first || n >= steps.first + steps.launches) return;
    RankTimes::Ops& ops = out.by_kind[schedule.works[in.a].kind];
    ++ops.count;
    ops.time += steps.trace.end[n] - steps.trace.start[n];
  });
  return out;
}

std::string line_of(const RankTimes& times) {
  std::string line = std::to_string(times.step.ps);
  for (const auto& [kind, ops] : times.by_kind)
    line += fmt::format(" {} {} {}", static_cast<int>(kind), ops.count, ops.time.ps);
  return line;
}

RankTimes rank_times_of(const std::string& line) {
  RankTimes out;
  std::istringstream in(line);
  in >> out.step.ps;
  int kind = 0;
  RankTimes::Ops ops;
  while (in >> kind >> ops.count >> ops.time.ps) out.by_kind[static_cast<WorkKind>(kind)] = ops;
  return out;
}

std::string rank_times_table(const std::vector<RankTimes>& ranks) {
  if (ranks.size() < 2) return "";
  std::vector<std::vector<std::string>> rows{
      {fmt::format("a step on {} ranks", ranks.size()), "ops", "median", "least", "most"}};
  const auto row = [&](std::string_view name, const std::string& count, auto&& time_of) {
    std::vector<Time> times;
    times.reserve(ranks.size());
    for (const RankTimes& r : ranks) times.push_back(time_of(r));
    std::sort(times.begin(), times.end());
    rows.push_back({std::string(name), count, duration(times[times.size() / 2]),
                    duration(times.front()), duration(times.back())});
  };
  row("step time", "", [](const RankTimes& r) { return r.step; });
  for (const auto& [kind, ops] : ranks.front().by_kind)
    row(name_of(kind), grouped(ops.count), [kind = kind](const RankTimes& r) {
      const auto found = r.by_kind.find(kind);
      return found == r.by_kind.end() ? Time{} : found->second.time;
    });
  return "\n" + aligned(rows, "lrrrr");
}

}  // namespace shardsim
