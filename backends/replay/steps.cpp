#include "backends/replay/steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/replay/communicators.h"
#include "sim/base/error.h"

namespace shardsim {

namespace {

struct Step {
  int number = 0;
  std::vector<uint32_t> works;
  uint32_t first = 0;     // launch
  uint32_t end_mark = 0;  // in Schedule::marks
};

// The launches of each step, without the preparations and what follows the last one.
std::vector<Step> steps_of(const Schedule& schedule) {
  std::vector<Step> steps;
  uint32_t launch = 0;
  bool inside = false;
  schedule.for_each([&](const Instr& in, const Segment&) {
    if (in.kind == Kind::Launch) {
      if (inside) steps.back().works.push_back(in.a);
      ++launch;
    }
    if (in.kind != Kind::Mark || !schedule.marks[in.a].begins_step) return;
    if (inside) steps.back().end_mark = in.a;
    inside = schedule.step_follows(in.a);
    if (inside) steps.push_back({static_cast<int>(steps.size()), {}, launch});
  });
  return steps;
}

Time median(std::vector<Time>& of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

// What was measured up to the end of a step whose launches have all ended. The host may have been stopped
// before the mark behind them.
Trace cut_after(const Trace& measured, const Step& step) {
  Trace out = measured;
  const size_t launches = step.first + step.works.size();
  out.start.resize(launches);
  out.end.resize(launches);
  out.issued.resize(std::min(launches, out.issued.size()));
  const auto end = std::find_if(out.marks.begin(), out.marks.end(),
                                [&](const MarkRow& row) { return row.mark == step.end_mark; });
  if (end != out.marks.end()) {
    out.marks.erase(end + 1, out.marks.end());
  } else {
    MarkRow row = out.marks.empty() ? MarkRow{} : out.marks.back();
    row.mark = step.end_mark;
    row.launches = static_cast<uint32_t>(launches);
    out.marks.push_back(row);
  }
  return out;
}

bool alike(const Schedule& schedule, const Step& a, const Step& b) {
  if (a.works.size() != b.works.size()) return false;
  for (size_t i = 0; i < a.works.size(); ++i) {
    const Work &x = schedule.works[a.works[i]], &y = schedule.works[b.works[i]];
    if (x.kind != y.kind || x.bytes != y.bytes || x.flops != y.flops) return false;
  }
  return true;
}

}  // namespace

TimedSteps median_of_steps(const Schedule& schedule, const Replay& replay, int first) {
  const std::vector<Step> steps = steps_of(schedule);
  const Trace& measured = replay.trace;
  TimedSteps out;
  std::vector<const Step*> timed;
  int unfinished = 0;
  for (const Step& s : steps) {
    if (s.number < first || s.works.empty()) continue;
    bool whole = s.first + s.works.size() <= replay.done.size();
    for (size_t i = 0; whole && i < s.works.size(); ++i) whole = replay.done[s.first + i];
    if (whole)
      timed.push_back(&s);
    else
      ++unfinished;
  }
  if (timed.empty())
    throw Error(fmt::format("none of the {} steps that were to be timed has ended", unfinished));
  if (unfinished > 0) out.note = fmt::format("{} steps did not end and are left out", unfinished);
  for (const Step& s : steps)
    if (s.number >= timed.front()->number && !alike(schedule, *timed.front(), s))
      throw Error(fmt::format("steps {} and {} do not launch the same works", timed.front()->number,
                              s.number),
                  {}, "more steps of warm-up, until the program repeats itself");

  out.steps = static_cast<int>(timed.size());
  std::vector<Time> began, lengths;
  for (const Step* s : timed) {
    Time start = measured.start[s->first], end;
    for (size_t i = 0; i < s->works.size(); ++i) {
      start = std::min(start, measured.start[s->first + i]);
      end = std::max(end, measured.end[s->first + i]);
    }
    began.push_back(start);
    lengths.push_back(end - start);
  }
  const Step& last = *timed.back();
  out.trace = cut_after(measured, last);
  std::vector<Time> starts, durations;
  for (size_t i = 0; i < last.works.size(); ++i) {
    starts.clear();
    durations.clear();
    for (size_t k = 0; k < timed.size(); ++k) {
      const uint32_t launch = timed[k]->first + static_cast<uint32_t>(i);
      starts.push_back(measured.start[launch] - began[k]);
      durations.push_back(measured.end[launch] - measured.start[launch]);
    }
    const Time start = began.back() + median(starts);
    const uint32_t launch = last.first + static_cast<uint32_t>(i);
    out.trace.start[launch] = start;
    out.trace.end[launch] = start + median(durations);
  }
  out.first = last.first;
  out.launches = static_cast<uint32_t>(last.works.size());
  out.shortest = *std::min_element(lengths.begin(), lengths.end());
  out.longest = *std::max_element(lengths.begin(), lengths.end());
  out.step_time = median(lengths);
  return out;
}

}  // namespace shardsim
