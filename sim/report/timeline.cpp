#include "sim/report/timeline.h"

#include <algorithm>

#include "sim/base/error.h"

namespace shardsim {
namespace {

Time sum_of(const std::vector<Interval>& intervals) {
  Time t{};
  for (const Interval& i : intervals) t += i.end - i.start;
  return t;
}

// Four maxima, since one would wait for itself at each step.
Time last_end(const Trace& trace, uint32_t begin, uint32_t end) {
  const Time* const at = trace.end.data();
  int64_t t[4] = {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN};
  uint32_t i = begin;
  for (; i + 4 <= end; i += 4)
    for (uint32_t k = 0; k < 4; ++k) t[k] = std::max(t[k], at[i + k].ps);
  for (; i < end; ++i) t[0] = std::max(t[0], at[i].ps);
  return {std::max(std::max(t[0], t[1]), std::max(t[2], t[3]))};
}

// The last end of what the host worked itself, of those that took time.
Time last_worked(const Trace& trace, uint32_t begin, uint32_t end) {
  for (uint32_t i = end; i > begin; --i)
    if (trace.worked[i - 1].end > trace.worked[i - 1].start) return trace.worked[i - 1].end;
  return {INT64_MIN};
}

}  // namespace

int steps_played(const Schedule& schedule, const Trace& trace) {
  int n = 0;
  for (size_t i = 0; i + 1 < trace.marks.size(); ++i)
    if (schedule.step_follows(trace.marks[i].mark)) ++n;
  return n;
}

void Timeline::build(const Schedule& schedule, const Trace& trace, int step) {
  times_ = {};
  times_.step = step;
  times_.end_launch = static_cast<uint32_t>(trace.end.size());
  times_.end_worked = static_cast<uint32_t>(trace.worked.size());
  int seen = -1;
  Time host{};
  for (const MarkRow& row : trace.marks) {
    if (!schedule.marks[row.mark].begins_step) continue;
    ++seen;
    if (seen == step) {
      times_.first_launch = row.launches;
      times_.first_worked = row.worked;
      host = row.host;
    } else if (seen == step + 1) {
      times_.end_launch = row.launches;
      times_.end_worked = row.worked;
      break;
    }
  }
  SHARDSIM_ASSERT(seen >= step && step >= 0, "a timeline is of a step that was played");

  times_.start =
      std::max(last_end(trace, 0, times_.first_launch), last_worked(trace, 0, times_.first_worked));
  if (step == 0) times_.start = std::max(times_.start, host);
  if (times_.start.ps == INT64_MIN) times_.start = host;  // nothing was launched before
  const Time launched = last_end(trace, times_.first_launch, times_.end_launch);
  const Time worked = last_worked(trace, times_.first_worked, times_.end_worked);
  times_.end = std::max({times_.start, launched, worked});
  for (uint32_t i = times_.first_worked; i < times_.end_worked; ++i)
    times_.host_worked += trace.worked[i].end - trace.worked[i].start;

  kind_of_work_.clear();
  for (const Work& w : schedule.works) kind_of_work_.push_back(busy_of(w.kind));
  for (Lane& l : lanes_) {
    l.start = {};
    l.end = {INT64_MIN};
    l.done.clear();
  }
  collectives_.clear();
  collective_stream_.clear();
  pick(schedule);
  scan(trace);
  for (Lane& l : lanes_)
    if (l.end > l.start) l.done.push_back({l.start, l.end});

  if (worked > launched) times_.host_bound += times_.end - std::max(times_.start, launched);

  unite(Busy::compute, union_[0]);
  unite(Busy::comm, union_[1]);
  unite(Busy::copy, union_[2]);
  times_.compute_busy = sum_of(union_[0]);
  times_.comm_busy = sum_of(union_[1]);
  times_.copy_busy = sum_of(union_[2]);
  expose();
  times_.exposed_comm = sum_of(exposed_);
  expose_each(trace);
}

Timeline::Lane& Timeline::lane(size_t stream, size_t kind) {
  const size_t i = stream * kBusyKinds + kind;
  if (i >= lanes_.size()) lanes_.resize((stream + 1) * kBusyKinds);
  return lanes_[i];
}

// The step's launches, picked out of the instructions without a branch on what each one is: they
// come in no order that a processor could foresee.
void Timeline::pick(const Schedule& schedule) {
  const uint32_t first = times_.first_launch, wanted = times_.end_launch - first;
  uint32_t before = 0;
  size_t drop = 0, n = 0;
  for (const Segment& segment : schedule.segments) {
    const Instr* const code = schedule.code.data() + segment.begin;
    const size_t size = segment.end - segment.begin;
    if (before < first && n == 0) {
      uint32_t launches = 0;
      for (size_t i = 0; i < size; ++i) launches += code[i].kind == Kind::Launch;
      if (before + launches <= first) {
        before += launches;
        continue;
      }
      drop = first - before;
    }
    if (n >= drop + wanted) break;
    if (picked_.size() < n + size + 1) picked_.resize(2 * (n + size + 1));
    Instr* const out = picked_.data();
    for (size_t i = 0; i < size; ++i) {
      out[n] = code[i];
      n += code[i].kind == Kind::Launch;
    }
  }
  SHARDSIM_ASSERT(n >= drop + wanted, "a trace has the launches of its schedule");
  first_picked_ = drop;
}

void Timeline::scan(const Trace& trace) {
  const uint32_t first = times_.first_launch, end = times_.end_launch;
  const Time floor = times_.start;
  Time compute_free = times_.start, host_bound{};
  const Instr* i = picked_.data() + first_picked_;
  for (uint32_t l = first; l < end; ++l, ++i) {
    const Time s = trace.start[l], e = trace.end[l];
    const Busy kind = kind_of_work_[i->a];
    if (i->stream == kCompute) {
      host_bound += std::max(Time{}, std::min(trace.issued[l], s) - compute_free);
      compute_free = std::max(compute_free, e);
    }
    if (kind == Busy::comm) {
      collectives_.push_back({l, WorkId{i->a}, e - s, {}});
      collective_stream_.push_back(i->stream);
    }
    Lane& into = lane(i->stream, static_cast<size_t>(kind));
    if (s > into.end) {
      if (into.end > into.start) into.done.push_back({into.start, into.end});
      into.start = std::max(s, floor);
      into.end = e;
    } else {
      into.end = std::max(into.end, e);
    }
  }
  times_.host_bound = host_bound;
  if (trace.slowed.empty()) return;
  i = picked_.data() + first_picked_;
  for (uint32_t l = first; l < end; ++l, ++i)
    if (i->stream == kCompute) times_.slowed += trace.slowed[l];
}

void Timeline::unite(Busy kind, std::vector<Interval>& out) {
  out.clear();
  cursors_.clear();
  for (size_t i = static_cast<size_t>(kind); i < lanes_.size(); i += kBusyKinds)
    if (!lanes_[i].done.empty()) cursors_.push_back({i, 0});
  if (cursors_.size() == 1) {
    out.assign(lanes_[cursors_[0].lane].done.begin(), lanes_[cursors_[0].lane].done.end());
    return;
  }
  while (!cursors_.empty()) {
    size_t least = 0;
    Time start = Time::max();
    for (size_t c = 0; c < cursors_.size(); ++c) {
      const Time s = lanes_[cursors_[c].lane].done[cursors_[c].next].start;
      if (s < start) {
        start = s;
        least = c;
      }
    }
    Cursor& cursor = cursors_[least];
    const std::vector<Interval>& from = lanes_[cursor.lane].done;
    const Interval& i = from[cursor.next];
    if (!out.empty() && i.start <= out.back().end)
      out.back().end = std::max(out.back().end, i.end);
    else
      out.push_back(i);
    if (++cursor.next == from.size()) cursors_.erase(cursors_.begin() + static_cast<long>(least));
  }
}

void Timeline::expose() {
  exposed_.clear();
  const std::vector<Interval>& compute = union_[0];
  size_t c = 0;
  for (const Interval& i : union_[1]) {
    Time at = i.start;
    while (c < compute.size() && compute[c].end <= at) ++c;
    // An interval of compute may reach into the next one of communication: c stays on it.
    for (size_t k = c; k < compute.size() && compute[k].start < i.end; ++k) {
      if (compute[k].start > at) exposed_.push_back({at, compute[k].start});
      at = std::max(at, compute[k].end);
      c = k;
    }
    if (at < i.end) exposed_.push_back({at, i.end});
  }
}

void Timeline::expose_each(const Trace& trace) {
  const std::vector<Interval>& compute = union_[0];
  reached_.assign(lanes_.size() / kBusyKinds, 0);
  for (size_t k = 0; k < collectives_.size(); ++k) {
    CollectiveTime& x = collectives_[k];
    const Time start = trace.start[x.launch], end = trace.end[x.launch];
    size_t& c = reached_[collective_stream_[k]];
    while (c < compute.size() && compute[c].end <= start) ++c;
    Time covered{};
    for (size_t j = c; j < compute.size() && compute[j].start < end; ++j) {
      covered += std::min(end, compute[j].end) - std::max(start, compute[j].start);
      c = j;
    }
    x.exposed = x.time - covered;
  }
}

std::span<const Interval> Timeline::busy(StreamId stream, Busy kind) const {
  const size_t i = size_t{stream} * kBusyKinds + static_cast<size_t>(kind);
  return i < lanes_.size() ? std::span<const Interval>(lanes_[i].done)
                           : std::span<const Interval>();
}

}  // namespace shardsim
