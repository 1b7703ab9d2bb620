#include "sim/study/conform.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "sim/base/error.h"
#include "sim/study/allocator_script.h"
#include "sim/study/fsdp1_shapes.h"
#include "sim/study/recorded_program.h"
#include "sim/study/simulate.h"
#include "sim/study/zero3_shapes.h"

namespace shardsim {

namespace {

std::string describe(const Call& c) {
  switch (c.kind) {
    case CallKind::all_gather: return fmt::format("all_gather {} B on {} ranks", c.bytes, c.ranks);
    case CallKind::reduce_scatter:
      return fmt::format("reduce_scatter {} B on {} ranks", c.bytes, c.ranks);
    case CallKind::all_reduce: return fmt::format("all_reduce {} B on {} ranks", c.bytes, c.ranks);
    case CallKind::broadcast: return fmt::format("broadcast {} B on {} ranks", c.bytes, c.ranks);
    case CallKind::reduce: return fmt::format("reduce {} B on {} ranks", c.bytes, c.ranks);
    case CallKind::gemm:
      return fmt::format("gemm {}x{}x{} batch {}", c.gemm[0], c.gemm[1], c.gemm[2], c.gemm[3]);
    case CallKind::kernel: {
      static const char* const names[] = {"kernel", "copy_out", "chunk_cat", "cat"};
      return names[c.shape_kind];
    }
    default: return "call";
  }
}

// What the waits compare: kinds, and a product's sizes.
std::string kind_text(const Call& c) {
  const std::string text = describe(c);
  return is_collective(c.kind) ? text.substr(0, text.find(' ')) : text;
}

// Two lists of text compared: the first difference, or ten lines around it.
struct Differ {
  bool verbose;
  std::vector<std::string>& out;

  void operator()(const std::string& check, const std::string& section,
                  const std::vector<std::string>& expected, const std::vector<std::string>& got,
                  size_t at) {
    const auto line = [](const std::vector<std::string>& v, size_t i) {
      return i < v.size() ? v[i] : std::string("(nothing)");
    };
    out.push_back(fmt::format("{}: {} [{}]: expected {}, got {}", check, section, at,
                              line(expected, at), line(got, at)));
    if (!verbose) return;
    for (size_t i = at >= 5 ? at - 5 : 0; i < at + 6 && i < std::max(expected.size(), got.size());
         ++i)
      out.push_back(fmt::format("    [{}] {} | {}", i, line(expected, i), line(got, i)));
  }
};

// The sections of a record that both sides compare: from the recording's first after after_init.
std::vector<const Section*> compared(const RunRecord& r, const RunRecord& seen) {
  std::vector<const Section*> out;
  std::string first;
  for (const Section& s : seen.sections)
    if (s.until != "after_init") {
      first = s.until;
      break;
    }
  bool begun = false;
  for (const Section& s : r.sections) {
    begun = begun || s.until == first;
    if (begun && s.until != "after_init") out.push_back(&s);
  }
  return out;
}

bool order(const RunRecord& seen, const RunRecord& sim, Differ& differ) {
  const auto a = compared(seen, seen), b = compared(sim, seen);
  bool ok = true;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto list = [](const Section* s) {
      std::vector<std::string> out;
      for (const Call& c : s->calls)
        if (is_collective(c.kind)) out.push_back(describe(c));
      return out;
    };
    const auto expected = list(a[i]);
    const auto it =
        std::find_if(b.begin(), b.end(), [&](const Section* s) { return s->until == a[i]->until; });
    const auto got = it == b.end() ? std::vector<std::string>{} : list(*it);
    if (expected == got) continue;
    if (ok) {
      size_t at = 0;
      while (at < expected.size() && at < got.size() && expected[at] == got[at]) ++at;
      differ("order", a[i]->until, expected, got, at);
    }
    ok = false;
  }
  return ok;
}

using AnchorLists = std::map<int, std::vector<std::string>>;

AnchorLists anchors_by_stream(const std::vector<const Section*>& sections) {
  AnchorLists out;
  for (const Section* s : sections)
    for (const Call& c : s->calls)
      if (c.anchor) out[c.stream].push_back(describe(c));
  return out;
}

// Simulated stream to recorded stream; nullopt with a line where there is none.
std::optional<std::map<int, int>> match_streams(const RunRecord& seen, const RunRecord& sim,
                                                Differ& differ) {
  const auto a = compared(seen, seen), b = compared(sim, seen);
  std::map<int, int> to, from;
  const auto pair = [&](int simulated, int recorded) {
    const auto x = to.emplace(simulated, recorded), y = from.emplace(recorded, simulated);
    return x.first->second == recorded && y.first->second == simulated;
  };
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    std::vector<const Call*> x, y;
    for (const Call& c : a[i]->calls)
      if (is_collective(c.kind)) x.push_back(&c);
    for (const Call& c : b[i]->calls)
      if (is_collective(c.kind)) y.push_back(&c);
    for (size_t j = 0; j < std::min(x.size(), y.size()); ++j)
      if (!pair(y[j]->stream, x[j]->stream)) {
        differ.out.push_back(
            fmt::format("streams: {} [{}]: expected {} on s{}, got a stream that holds others",
                        a[i]->until, j, describe(*x[j]), x[j]->stream));
        return std::nullopt;
      }
  }
  const AnchorLists x = anchors_by_stream(a), y = anchors_by_stream(b);
  for (const auto& [recorded, list] : x) {
    if (from.count(recorded)) continue;
    bool found = false;
    for (const auto& [simulated, other] : y)
      if (!to.count(simulated) && other == list) {
        found = pair(simulated, recorded);
        break;
      }
    if (found) continue;
    // Not equal anywhere: pair the only ones left, so that the waits check can say where they part.
    std::vector<int> left;
    for (const auto& [simulated, other] : y)
      if (!to.count(simulated)) left.push_back(simulated);
    if (left.size() == 1) {
      pair(left[0], recorded);
      const auto& other = y.at(left[0]);
      size_t at = 0;
      while (at < list.size() && at < other.size() && list[at] == other[at]) ++at;
      differ("streams", fmt::format("s{}", recorded), list, other, at);
    } else {
      differ.out.push_back(fmt::format("streams: no simulated stream does what s{} did", recorded));
    }
    return std::nullopt;
  }
  for (const auto& [simulated, list] : y)
    if (!to.count(simulated)) {
      differ.out.push_back(
          fmt::format("streams: a simulated stream with {} anchors, first {}, was "
                      "not recorded",
                      list.size(), list[0]));
      return std::nullopt;
    }
  return to;
}

// Anchors with their clocks: how many anchors of each other stream must have finished before.
struct Clocked {
  std::string what, section;
  int stream = 0;
  size_t number = 0;
  std::map<int, size_t> clock;
};

std::vector<Clocked> clocks(const std::vector<const Section*>& sections) {
  using Clock = std::map<int, size_t>;
  const auto join = [](Clock& into, const Clock& other) {
    for (const auto& [s, n] : other) {
      size_t& x = into[s];
      x = std::max(x, n);
    }
  };
  std::map<int, Clock> stream;
  std::map<int, size_t> issued;
  std::map<int64_t, Clock> event;
  Clock host;
  std::vector<Clocked> out;
  for (const Section* section : sections)
    for (const Call& c : section->calls) {
      switch (c.kind) {
        case CallKind::record: {
          Clock e = stream[c.stream];
          e[c.stream] = issued[c.stream];
          event[c.event] = std::move(e);
          break;
        }
        case CallKind::wait: {
          const auto e = event.find(c.event);
          if (e != event.end()) join(stream[c.stream], e->second);
          break;
        }
        case CallKind::event_sync: {
          const auto e = event.find(c.event);
          if (e != event.end()) join(host, e->second);
          break;
        }
        case CallKind::stream_sync: {
          join(host, stream[c.stream]);
          size_t& n = host[c.stream];
          n = std::max(n, issued[c.stream]);
          break;
        }
        case CallKind::device_sync:
          for (const auto& [s, n] : issued) {
            join(host, stream[s]);
            host[s] = std::max(host[s], n);
          }
          break;
        default:
          if (!c.anchor) break;
          Clock& k = stream[c.stream];
          join(k, host);
          Clocked a;
          a.what = kind_text(c);
          a.section = section->until;
          a.stream = c.stream;
          a.number = issued[c.stream]++;
          for (const auto& [s, n] : k)
            if (n > 0 && s != c.stream) a.clock[s] = n;
          out.push_back(std::move(a));
      }
    }
  return out;
}

bool waits(const RunRecord& seen, const RunRecord& sim, const std::map<int, int>& to,
           Differ& differ) {
  const auto text = [](const Clocked& a, const std::map<int, int>* map) {
    const auto name = [&](int s) {
      if (!map) return s;
      const auto it = map->find(s);
      return it == map->end() ? 100 + s : it->second;
    };
    std::map<int, size_t> clock;
    for (const auto& [s, n] : a.clock) clock[name(s)] = n;
    std::string out = fmt::format("s{}#{} {} after", name(a.stream), a.number, a.what);
    for (const auto& [s, n] : clock) out += fmt::format(" s{}:{}", s, n);
    return out;
  };
  // Per stream, in order: the host's order between streams is no part of it.
  using Lists = std::map<int, std::pair<std::vector<std::string>, std::vector<std::string>>>;
  const auto lists = [&](const std::vector<const Section*>& sections,
                         const std::map<int, int>* map) {
    Lists out;
    for (const Clocked& a : clocks(sections)) {
      auto& [what, where] = out[map ? map->at(a.stream) : a.stream];
      what.push_back(text(a, map));
      where.push_back(a.section);
    }
    return out;
  };
  const Lists x = lists(compared(seen, seen), nullptr), y = lists(compared(sim, seen), &to);
  for (const auto& [stream, list] : x) {
    const auto other = y.find(stream);
    const auto got = other == y.end() ? std::vector<std::string>{} : other->second.first;
    if (list.first == got) continue;
    size_t at = 0;
    while (at < list.first.size() && at < got.size() && list.first[at] == got[at]) ++at;
    differ("waits", at < list.second.size() ? list.second[at] : "end", list.first, got, at);
    return false;
  }
  return true;
}

bool host_waits(const RunRecord& seen, const RunRecord& sim, Differ& differ) {
  const auto count = [](const Section* s) {
    return std::count_if(s->calls.begin(), s->calls.end(), [](const Call& c) {
      return c.kind == CallKind::event_sync || c.kind == CallKind::stream_sync ||
             c.kind == CallKind::device_sync;
    });
  };
  const auto a = compared(seen, seen), b = compared(sim, seen);
  for (const Section* s : a) {
    const auto it =
        std::find_if(b.begin(), b.end(), [&](const Section* t) { return t->until == s->until; });
    const auto got = it == b.end() ? 0 : count(*it);
    if (count(s) != got) {
      differ.out.push_back(
          fmt::format("host_waits: {}: expected {}, got {}", s->until, count(s), got));
      return false;
    }
  }
  return true;
}

// "step1.0.after_forward" belongs to step "step1".
std::string step_of(const std::string& until) {
  return until.starts_with("step") ? until.substr(0, until.find('.')) : std::string();
}

double timeline(const RunRecord& seen, const RunRecord& sim, Differ& differ) {
  struct Step {
    std::optional<Time> t0;
    std::vector<std::pair<const Call*, std::string>> collectives;
  };
  const auto steps = [&](const RunRecord& r) {
    std::map<std::string, Step> out;
    for (const Section* s : compared(r, seen)) {
      if (step_of(s->until).empty()) continue;
      Step& step = out[step_of(s->until)];
      for (const Call& c : s->calls) {
        if (!c.timed) continue;
        if (!step.t0) step.t0 = c.start;
        if (is_collective(c.kind)) step.collectives.emplace_back(&c, s->until);
      }
    }
    return out;
  };
  auto a = steps(seen), b = steps(sim);
  double worst = 0;
  std::string where;
  for (auto& [name, x] : a) {
    const Step& y = b[name];
    if (x.collectives.size() != y.collectives.size()) return 1;
    for (size_t i = 0; i < x.collectives.size(); ++i) {
      const Call &p = *x.collectives[i].first, &q = *y.collectives[i].first;
      const Time start = (p.start - *x.t0) - (q.start - *y.t0),
                 end = (p.end - *x.t0) - (q.end - *y.t0);
      const double off = static_cast<double>(std::max(std::llabs(start.ps), std::llabs(end.ps)));
      const double error = off / static_cast<double>(std::max(p.end - *x.t0, Time::us(200)).ps);
      if (error > worst) {
        worst = error;
        where = fmt::format("timeline: {} [{}]: {} expected {:.3f}..{:.3f}, got {:.3f}..{:.3f} us",
                            x.collectives[i].second, i, describe(p), (p.start - *x.t0).as_us(),
                            (p.end - *x.t0).as_us(), (q.start - *y.t0).as_us(),
                            (q.end - *y.t0).as_us());
      }
    }
  }
  if (worst > 0.0005) differ.out.push_back(where);
  return worst;
}

double relative(Bytes recorded, Bytes simulated) {
  if (recorded == 0) return simulated == 0 ? 0 : 1;
  return std::abs(static_cast<double>(simulated - recorded)) / static_cast<double>(recorded);
}

void memory(const RunRecord& seen, const RunRecord& sim, bool bytes, Checks& checks,
            Differ& differ) {
  if (seen.memory.empty()) return;
  struct Column {
    const char* name;
    std::optional<Bytes> (*of)(const MemoryMark&);
    std::optional<double> Checks::*error;
  };
  static const Column columns[] = {
      {"allocated", [](const MemoryMark& m) { return std::optional(m.allocated); },
       &Checks::allocated_error},
      {"peak", [](const MemoryMark& m) { return std::optional(m.allocated_peak); },
       &Checks::peak_error},
      {"active", [](const MemoryMark& m) { return m.active_peak; }, &Checks::active_error},
      {"reserved", [](const MemoryMark& m) { return m.reserved_peak; }, &Checks::reserved_error},
  };
  for (const Column& column : columns) {
    if (!bytes) break;
    std::optional<double> worst;
    std::string where;
    for (const MemoryMark& m : seen.memory) {
      const auto it = std::find_if(sim.memory.begin(), sim.memory.end(),
                                   [&](const MemoryMark& x) { return x.phase == m.phase; });
      const auto expected = column.of(m);
      if (!expected) continue;
      const auto got = it == sim.memory.end() ? std::optional<Bytes>(0) : column.of(*it);
      if (!got) continue;
      const double e = relative(*expected, *got);
      if (e > worst.value_or(0))
        where = fmt::format("{}: {}: expected {}, got {}", column.name, m.phase, *expected, *got);
      worst = std::max(worst.value_or(0), e);
    }
    checks.*column.error = worst;
    if (worst.value_or(0) > 0) differ.out.push_back(where);
  }
  // The same mark is the last one passed, and the same phase fails.
  const bool expected = seen.memory.back().oom, got = sim.memory.back().oom;
  checks.oom = expected == got && (!expected || seen.memory.size() == sim.memory.size());
  if (!*checks.oom)
    differ.out.push_back(
        fmt::format("oom: expected {}, got {}",
                    expected ? fmt::format("after {} marks", seen.memory.size() - 1) : "none",
                    got ? fmt::format("after {} marks", sim.memory.size() - 1) : "none"));
}

bool shapes(const RunRecord& seen, const RunRecord& sim, Differ& differ) {
  const auto text = [](const auto& entry) {
    return fmt::format("{} [{}]", entry.first, fmt::join(entry.second, ", "));
  };
  for (const auto& e : seen.shapes)
    if (!sim.shapes.count(e)) {
      differ.out.push_back("shapes: expected " + text(e) + ", which is not simulated");
      return false;
    }
  if (sim.some_shapes) return true;
  for (const auto& e : sim.shapes)
    if (!seen.shapes.count(e)) {
      differ.out.push_back("shapes: got " + text(e) + ", which was not recorded");
      return false;
    }
  return true;
}

CallKind kind_of(const Work& w) {
  switch (w.kind) {
    case WorkKind::Gemm: return CallKind::gemm;
    case WorkKind::Kernel: return CallKind::kernel;
    case WorkKind::AllGather: return CallKind::all_gather;
    case WorkKind::ReduceScatter: return CallKind::reduce_scatter;
    case WorkKind::AllReduce: return CallKind::all_reduce;
    case WorkKind::Broadcast: return CallKind::broadcast;
    case WorkKind::Reduce: return CallKind::reduce;
    default: return CallKind::copy;
  }
}

}  // namespace

// By group: whether its parameters were unsharded where memory ran out.
std::vector<bool> unsharded_at_failure(const Simulation& s) {
  std::vector<int> live(s.plan.groups.size(), 0);
  LiveWalk walk;
  for (size_t k = 0; k <= s.trace.peak_segment; ++k) {
    const Segment& segment = s.schedule.segments[k];
    const uint32_t end = k == s.trace.peak_segment ? s.trace.peak_instr : segment.end;
    for (uint32_t i = segment.begin; i < end; ++i) {
      const int change = walk.change(s.schedule.code[i]);
      if (change == 0) continue;
      const Buffer& b = s.schedule.buffers[segment.buffer(s.schedule.code[i]).v];
      if (b.category == Category::unsharded_parameters && b.group.valid())
        live[b.group.v] += change;
    }
  }
  std::vector<bool> out;
  out.reserve(live.size());
  for (int n : live) out.push_back(n > 0);
  return out;
}

RunRecord simulate_recording(const Scenario& scenario) {
  const Simulation s = simulate(scenario, Until::max_steps);
  RunRecord r;
  const bool fsdp1 = scenario.training.strategy == Strategy::fsdp1;
  const bool failed = scenario.training.strategy == Strategy::fsdp2 && s.trace.out_of_memory;
  const std::vector<bool> unsharded = failed ? unsharded_at_failure(s) : s.unsharded;
  if (fsdp1) r.shapes = fsdp1_shapes(s.model, s.plan, scenario.training);
  const bool zero3 = scenario.training.strategy == Strategy::zero3;
  if (zero3) r.shapes = zero3_shapes(s.model, scenario.training);
  for (size_t i = 0; i < s.model.params.size() && !fsdp1 && !zero3; ++i) {
    const Param& p = s.model.params[i];
    if (p.alias.valid()) continue;
    std::vector<int64_t> dims(p.shape.dim.begin(), p.shape.dim.begin() + p.shape.rank);
    // A module shows its whole parameters where they are left unsharded.
    const int32_t group = s.plan.group_of_param[i];
    if (!dims.empty() && group >= 0 && !unsharded[static_cast<size_t>(group)]) {
      const Group& g = s.plan.groups[static_cast<size_t>(group)];
      const auto q = std::find_if(g.params.begin(), g.params.end(),
                                  [&](const ShardedParam& x) { return x.id.v == i; });
      int64_t& dim = dims[static_cast<size_t>(q->dim)];
      dim = local_numel(dim, 1, g.ranks, 0);
    }
    r.shapes.emplace(s.model.param_name({static_cast<uint32_t>(i)}), std::move(dims));
  }
  size_t launch = 0, waited = 0, limit = 0;
  bool ended = false;  // for want of memory: what comes behind was not played
  r.sections.emplace_back();
  s.schedule.for_each([&](const Instr& in, const Segment& segment) {
    ended = ended || (in.kind == Kind::Launch && launch == s.trace.start.size());
    if (ended) return;
    Call c;
    c.stream = in.stream;
    switch (in.kind) {
      case Kind::Launch: {
        const Work& w = s.schedule.works[in.a];
        c.kind = kind_of(w);
        c.bytes = w.bytes;
        if (is_collective(w.kind)) c.ranks = s.schedule.comms[w.comm.v].size;
        if (c.kind == CallKind::gemm) c.gemm = {w.m, w.n, w.k, w.batch};
        if (c.kind == CallKind::kernel)
          c.shape_kind = w.kernel == KernelClass::copy_out    ? 1
                         : w.kernel == KernelClass::chunk_cat ? 2
                         : w.kernel == KernelClass::cat       ? 3
                                                              : 0;
        c.anchor = is_collective(c.kind) || c.kind == CallKind::gemm || c.shape_kind != 0;
        c.start = s.trace.start[launch];
        c.end = s.trace.end[launch];
        c.timed = true;
        ++launch;
        break;
      }
      case Kind::Record:
        c.kind = CallKind::record;
        c.event = segment.event(in).v;
        break;
      case Kind::Wait:
      case Kind::WaitUnlessDone:
        if (in.looked != 0 && s.trace.left_out[waited++]) return;
        c.kind = CallKind::wait;
        c.event = segment.event(in).v;
        break;
      case Kind::HostWait:
        c.kind = CallKind::event_sync;
        c.event = in.a;
        break;
      case Kind::EventLimit: {
        const uint32_t event = s.trace.limited[limit++];
        if (event == Trace::kNoEvent) return;
        c.kind = CallKind::event_sync;
        c.event = event;
        break;
      }
      case Kind::StreamSync: c.kind = CallKind::stream_sync; break;
      case Kind::DeviceSync: c.kind = CallKind::device_sync; break;
      case Kind::Mark:
        r.sections.back().until = s.schedule.marks[in.a].name;
        r.sections.emplace_back();
        return;
      default: return;
    }
    r.sections.back().calls.push_back(c);
  });
  r.sections.pop_back();
  const bool blocks = scenario.options.memory == MemoryLevel::blocks;
  for (const MarkRow& row : s.trace.marks) {
    MemoryMark& m = r.memory.emplace_back();
    m.phase = s.schedule.marks[row.mark].name;
    m.allocated = row.allocated;
    m.allocated_peak = row.allocated_peak;
    if (!blocks) continue;
    m.active_peak = row.active_peak;
    m.reserved_peak = row.reserved_peak;
  }
  if (s.trace.out_of_memory) {
    MemoryMark& m = r.memory.emplace_back();
    const MarkRow& row = s.trace.out_of_memory->unwound;
    m.phase = "oom";
    m.oom = true;
    m.allocated = row.allocated;
    m.allocated_peak = row.allocated_peak;
    m.active_peak = row.active_peak;
    m.reserved_peak = row.reserved_peak;
  }
  return r;
}

Checks compare(const RunRecord& seen, const RunRecord& simulated, bool verbose, bool bytes) {
  Checks checks;
  Differ differ{verbose, checks.differences};
  if (!seen.shapes.empty()) checks.shapes = shapes(seen, simulated, differ);
  if (!compared(seen, seen).empty()) {
    checks.order = order(seen, simulated, differ);
    const auto to = match_streams(seen, simulated, differ);
    checks.streams = to.has_value();
    checks.waits = to && waits(seen, simulated, *to, differ);
    checks.host_waits = host_waits(seen, simulated, differ);
    checks.timeline_error = timeline(seen, simulated, differ);
  }
  memory(seen, simulated, bytes, checks, differ);
  return checks;
}

Conformance conform(const Recording& recording, bool verbose) {
  Conformance c;
  c.file = recording.file;
  const RecordedProgram p =
      recorded_program(recording.program, recording.environment, recording.torch);
  c.skipped = p.skipped;
  if (!c.skipped.empty()) return c;
  try {
    RunRecord simulated = simulate_recording(p.scenario);
    simulated.some_shapes = simulated.shapes.size() > p.most_shapes;
    // Recordings of DDP with the legacy backend hold a bucket that is no longer used.
    const Training& t = p.scenario.training;
    const bool stale = t.legacy_nccl && reduces_buckets(t.strategy);
    c.checks = compare(recording.seen, simulated, verbose, !stale);
  } catch (const std::exception& e) {
    // An accepted program that cannot be played is a failure, not a skip.
    c.checks.shapes = c.checks.order = c.checks.streams = c.checks.waits = c.checks.host_waits =
        false;
    c.checks.differences = {std::string("simulation failed: ") + e.what()};
  }
  return c;
}

Conformance conform_file(const std::string& path, bool verbose) {
  Conformance c;
  c.file = path;
  try {
    const nlohmann::json file = read_json(path);
    const bool script = file.is_object() && file.contains("script");
    // A history of allocations has an empty case.
    c.foreign = !script && !(file.is_object() && file.contains("case") && !file["case"].empty());
    if (!script) return conform(read_recording(file, path), verbose);
    const AllocatorConformance a = conform_allocator_script(file);
    c.skipped = a.skipped;
    c.checks.allocator = a.allocator;
    c.checks.allocated_error = a.allocated_error;
    c.checks.peak_error = a.peak_error;
    c.checks.active_error = a.active_error;
    c.checks.reserved_error = a.reserved_error;
    c.checks.differences = a.differences;
  } catch (const Error& e) {
    c.error = e.what();
  }
  return c;
}

}  // namespace shardsim
