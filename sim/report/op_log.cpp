#include "sim/report/op_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include "sim/base/error.h"
#include "sim/base/escape.h"
#include "sim/report/step_report.h"
#include "sim/schedule/fingerprint.h"

namespace shardsim {
namespace {

struct SourceName {
  OpSource source;
  std::string_view name;
};
constexpr SourceName kSources[] = {{OpSource::simulation, "simulation"},
                                   {OpSource::replay_host, "replay host"},
                                   {OpSource::replay_cuda, "replay cuda"},
                                   {OpSource::kineto, "kineto"}};

std::optional<Bytes> known(Bytes b) { return b > 0 ? std::optional<Bytes>(b) : std::nullopt; }

void add_peaks(OpLog& log, const Trace& trace) {
  Bytes allocated = trace.peak, active = 0, reserved = 0;
  for (const MarkRow& m : trace.marks) {
    allocated = std::max(allocated, m.allocated_peak);
    active = std::max(active, m.active_peak);
    reserved = std::max(reserved, m.reserved_peak);
  }
  log.peak_allocated = known(allocated);
  log.peak_active = known(active);
  log.peak_reserved = known(reserved);
}

// "gather" of Inductor's and others' kernels is the work's own; a product's is its sizes.
std::string op_name(const Work& w) {
  if (w.kind == WorkKind::Gemm)
    return fmt::format("{}x{}x{}{} {}", w.m, w.n, w.k,
                       w.batch > 1 ? fmt::format(" x{}", w.batch) : "", name_of(w.dtype));
  return w.name;
}

// The union of intervals, in order.
std::vector<Interval> united(std::vector<Interval> all) {
  std::sort(all.begin(), all.end(),
            [](const Interval& a, const Interval& b) { return a.start < b.start; });
  std::vector<Interval> out;
  for (const Interval& i : all) {
    if (!out.empty() && i.start <= out.back().end)
      out.back().end = std::max(out.back().end, i.end);
    else
      out.push_back(i);
  }
  return out;
}

Time length_of(const std::vector<Interval>& intervals) {
  Time t{};
  for (const Interval& i : intervals) t += i.end - i.start;
  return t;
}

// How long both are covered.
Time overlap_of(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  Time t{};
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const Time start = std::max(a[i].start, b[j].start), end = std::min(a[i].end, b[j].end);
    if (end > start) t += end - start;
    if (a[i].end < b[j].end)
      ++i;
    else
      ++j;
  }
  return t;
}

class JsonWriter {
 public:
  explicit JsonWriter(const OpLog& log) : log_(log) {}

  std::string write() {
    raw("{{\n\"schema_version\": 1,\n\"kind\": \"op_log\",\n\"source\": \"{}\",\n",
        name_of(log_.source));
    raw("\"scenario\": {},\n\"fingerprint\": {},\n", optional_text(log_.scenario),
        optional_text(log_.fingerprint));
    raw("\"rank\": {},\n\"world_size\": {},\n\"scale\": {},\n", log_.rank, log_.world, log_.scale);
    raw("\"repeats\": {},\n\"statistic\": {},\n", log_.repeats, text(log_.statistic));
    raw("\"step_time_s\": {},\n", seconds(log_.step_time));
    raw("\"memory\": {{\"peak_allocated_bytes\": {}, \"peak_active_bytes\": {}, "
        "\"peak_reserved_bytes\": {}}},\n",
        number(log_.peak_allocated), number(log_.peak_active), number(log_.peak_reserved));
    out_ += "\"environment\": {";
    for (const auto& [key, value] : log_.environment)
      raw("{}\n  {}: {}", key == log_.environment.begin()->first ? "" : ",", text(key),
          text(value));
    out_ += log_.environment.empty() ? "},\n" : "\n},\n";
    list("warnings", log_.warnings);
    list("streams", log_.streams);
    out_ += "\"ops\": [";
    for (size_t i = 0; i < log_.ops.size(); ++i) {
      out_ += i == 0 ? "\n" : ",\n";
      op(log_.ops[i]);
    }
    out_ += log_.ops.empty() ? "]\n}\n" : "\n]\n}\n";
    return std::move(out_);
  }

 private:
  template <class... A>
  void raw(fmt::format_string<A...> f, A&&... args) {
    fmt::format_to(std::back_inserter(out_), f, std::forward<A>(args)...);
  }
  static std::string text(std::string_view s) { return '"' + escaped(s) + '"'; }
  static std::string optional_text(const std::string& s) { return s.empty() ? "null" : text(s); }
  template <class T>
  static std::string number(const std::optional<T>& n) {
    return n ? std::to_string(*n) : "null";
  }
  // A division is rounded correctly where a product with 1e-12 is not.
  static std::string seconds(Time t) { return fmt::format("{}", static_cast<double>(t.ps) / 1e12); }

  void list(std::string_view key, const std::vector<std::string>& of) {
    raw("\"{}\": [", key);
    for (size_t i = 0; i < of.size(); ++i) raw("{}{}", i == 0 ? "" : ", ", text(of[i]));
    out_ += "],\n";
  }

  void op(const LoggedOp& o) {
    raw("{{\"launch\": {}, \"stream\": {}, \"kind\": \"{}\", \"name\": {}, \"group\": {}, "
        "\"bytes\": {}, \"flops\": {}, \"start_s\": {}, \"duration_s\": {}}}",
        number(o.launch), o.stream, name_of(o.kind), optional_text(o.name), optional_text(o.group),
        number(o.bytes), number(o.flops), seconds(o.start), seconds(o.duration));
  }

  const OpLog& log_;
  std::string out_;
};

}  // namespace

std::string_view name_of(OpSource source) {
  for (const SourceName& s : kSources)
    if (s.source == source) return s.name;
  return "?";
}

std::optional<OpSource> op_source_of(std::string_view name) {
  for (const SourceName& s : kSources)
    if (s.name == name) return s.source;
  return std::nullopt;
}

OpLog op_log_of(const Schedule& schedule, const Trace& trace, std::span<const std::string> groups,
                OpLogFacts facts) {
  const int steps = steps_played(schedule, trace);
  if (trace.out_of_memory)
    throw Error("the run ends out of memory, so there is no step whose ops could be logged");
  if (steps == 0) throw Error("no step was played, so there are no ops to log");
  Timeline timeline;
  timeline.build(schedule, trace, steps - 1);
  const StepTimes& step = timeline.times();

  OpLog log;
  static_cast<OpLogFacts&>(log) = std::move(facts);
  log.fingerprint = fingerprint_text(step_fingerprint(schedule, steps - 1));
  log.streams = schedule.streams;
  log.step_time = step.length();
  log.ops.reserve(step.end_launch - step.first_launch);
  uint32_t launch = 0;
  schedule.for_each([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    const uint32_t n = launch++;
    if (n < step.first_launch || n >= step.end_launch) return;
    const Work& w = schedule.works[in.a];
    LoggedOp& op = log.ops.emplace_back();
    while (log.streams.size() <= in.stream)
      log.streams.push_back(fmt::format("stream {}", log.streams.size()));
    op.launch = n - step.first_launch;
    op.stream = in.stream;
    op.kind = w.kind;
    op.name = op_name(w);
    if (w.group.valid() && w.group.v < groups.size())
      op.group = groups[w.group.v].empty() ? "(root)" : groups[w.group.v];
    op.bytes = w.bytes;
    op.flops = w.flops;
    op.start = trace.start[n] - step.start;
    op.duration = trace.end[n] - trace.start[n];
  });
  add_peaks(log, trace);
  return log;
}

std::string op_log_json(const OpLog& log) { return JsonWriter(log).write(); }

std::vector<Interval> busy_intervals(const OpLog& log, Busy kind) {
  std::vector<Interval> all;
  for (const LoggedOp& op : log.ops) {
    const Interval i{std::max(op.start, Time{}), std::min(op.end(), log.step_time)};
    if (busy_of(op.kind) == kind && i.end > i.start) all.push_back(i);
  }
  return united(std::move(all));
}

OpTimes op_times(const OpLog& log) {
  const std::vector<Interval> compute = busy_intervals(log, Busy::compute),
                              comm = busy_intervals(log, Busy::comm);
  OpTimes t;
  t.compute_busy = length_of(compute);
  t.comm_busy = length_of(comm);
  t.copy_busy = length_of(busy_intervals(log, Busy::copy));
  t.exposed_comm = t.comm_busy - overlap_of(compute, comm);
  return t;
}

std::vector<std::string> stream_roles(const OpLog& log) {
  constexpr size_t kKinds = static_cast<size_t>(WorkKind::Memset) + 1;
  std::vector<std::array<Time, kKinds>> time(log.streams.size());
  for (const LoggedOp& op : log.ops) time[op.stream][static_cast<size_t>(op.kind)] += op.duration;
  const auto most_of = [&](WorkKind kind) {
    size_t best = 0;
    for (size_t s = 1; s < time.size(); ++s)
      if (time[s][static_cast<size_t>(kind)] > time[best][static_cast<size_t>(kind)]) best = s;
    const bool any = !time.empty() && time[best][static_cast<size_t>(kind)] > Time{};
    return any ? best : time.size();
  };
  size_t compute = most_of(WorkKind::Gemm);
  if (compute == time.size()) compute = most_of(WorkKind::Kernel);
  std::vector<std::string> roles;
  for (size_t s = 0; s < time.size(); ++s) {
    const auto most = std::max_element(time[s].begin(), time[s].end());
    const auto kind = static_cast<WorkKind>(most - time[s].begin());
    roles.push_back(s == compute          ? "compute"
                    : *most == Time{}     ? "idle"
                    : is_compute(kind)    ? "kernels"
                    : is_collective(kind) ? std::string(name_of(kind))
                                          : "copy");
  }
  return roles;
}

}  // namespace shardsim
