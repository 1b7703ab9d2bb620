#include "sim/report/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "sim/report/chain.h"

namespace shardsim {
namespace {

constexpr const char *kComputeWork = "compute", *kCopyWork = "copies", *kFsdpWork = "fsdp copies",
                     *kHostWork = "host";

constexpr std::array kCollectives{WorkKind::AllGather, WorkKind::ReduceScatter, WorkKind::AllReduce,
                                  WorkKind::Broadcast, WorkKind::Reduce};

// Unit of each group of one side; -1 where there is none.
using UnitOf = std::vector<int>;

int unit_of(const UnitOf& units, GroupId group) {
  return group.v < units.size() ? units[group.v] : -1;
}

// The work without its group, as a class of works.
std::string what_of(const Schedule& s, const Vertex& v) {
  const Work& w = s.works[v.work.v];
  if (is_collective(w.kind)) return std::string(name_of(w.kind));
  // The runtime's own works name their group; the model's take it from their segment.
  if (w.group.valid()) return kFsdpWork;
  return is_compute(w.kind) ? kComputeWork : kCopyWork;
}

// One side's steady step, taken apart.
class StepParts {
 public:
  StepParts(const DiffSide& side, const UnitOf& units)
      : schedule_(*side.schedule),
        trace_(*side.trace),
        units_(units),
        graph_(build_graph(schedule_)),
        chain_(trace_, graph_),
        step_(side.report->steady),
        windows_(phase_windows(schedule_, trace_, step_)) {}

  const std::vector<PhaseWindow>& windows() const { return windows_; }

  struct Key {
    Phase phase = Phase::forward;
    std::string what;
    int unit = -1;
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads a defaulted comparison
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  Key key_of(uint32_t vertex, Time at) const {
    if (vertex == 0) return {phase_at(at), kHostWork, -1};
    const Vertex& v = graph_.vertices[vertex];
    if (v.kind == Vertex::Kind::host_work)
      return {phase_at(at), schedule_.host_works[v.host_work].name, -1};
    return {phase_of(v.launch), what_of(schedule_, v), unit_of(units_, v.group)};
  }

  std::map<Key, Time> path() const {
    std::map<Key, Time> out;
    uint32_t last = UINT32_MAX;
    for (uint32_t l = step_.first_launch; l < step_.end_launch; ++l)
      if (last == UINT32_MAX || trace_.end[l] > trace_.end[last]) last = l;
    if (last == UINT32_MAX) return out;
    // What ends the step: a launch, or a work of the host itself.
    uint32_t v = graph_.of_launch[last];
    Time start = std::max(step_.start, trace_.start[last]);
    for (uint32_t k = step_.first_worked; k < step_.end_worked; ++k) {
      const Trace::Worked& w = trace_.worked[k];
      if (w.end != step_.end || w.end == w.start || w.end <= trace_.end[last]) continue;
      v = graph_.of_worked[k];
      start = std::max(step_.start, w.start);
    }
    std::vector<Stretch> stretches{{start, step_.end, v, Why::stream, false}};
    chain_.back(v, step_.start, start, stretches);
    for (const Stretch& s : stretches) {
      if (s.vertex != 0) {
        out[key_of(s.vertex, s.start)] += s.end - s.start;
        continue;
      }
      // A host that is behind may be so through several phases.
      for (const PhaseWindow& w : windows_) {
        const Time from = std::max(s.start, w.start), to = std::min(s.end, w.end);
        if (from < to) out[key_of(0, from)] += to - from;
      }
    }
    return out;
  }

  Hold hold_of(const Exposed& e) const {
    Hold h;
    h.cause = e.cause;
    h.why = Why::host;
    if (e.vertex == 0) return h;
    if (graph_.vertices[e.vertex].kind == Vertex::Kind::host_work) {
      h.by = key_of(e.vertex, step_.start + e.start).what;
      return h;
    }
    const Edge* edge = chain_.held_by(e.vertex);
    if (edge == nullptr || edge->why == Why::host) return h;
    const Vertex& from = graph_.vertices[edge->from];
    h.why = edge->why;
    h.by_unit = unit_of(units_, from.group);
    const Work& w = schedule_.works[from.work.v];
    h.by = is_collective(w.kind) ? std::string(name_of(w.kind))
           : *w.name             ? w.name
                                 : what_of(schedule_, from);
    return h;
  }

 private:
  Phase phase_of(uint32_t launch) const {
    for (const PhaseWindow& w : windows_)
      if (launch < w.end_launch) return w.phase;
    return Phase::optimizer;
  }
  Phase phase_at(Time at) const {
    for (const PhaseWindow& w : windows_)
      if (at < w.end) return w.phase;
    return Phase::optimizer;
  }

  const Schedule& schedule_;
  const Trace& trace_;
  const UnitOf& units_;
  ScheduleGraph graph_;
  Chain chain_;
  const StepTimes& step_;
  std::vector<PhaseWindow> windows_;
};

Time magnitude(Time t) { return t.ps < 0 ? Time{-t.ps} : t; }

// The largest change first.
template <class Row>
void by_change(std::vector<Row>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& x, const Row& y) {
    return magnitude(x.time[1] - x.time[0]) > magnitude(y.time[1] - y.time[0]);
  });
}

void add_collectives(Diff& d, const Two<const DiffSide*>& sides, const Two<UnitOf>& units) {
  // The section that a launch is in ends with the next mark.
  struct Seen {
    WorkKind kind;
    int unit;
    Bytes bytes;
  };
  for (size_t i = 0; i < 2; ++i) {
    const Schedule& s = *sides[i]->schedule;
    std::vector<Seen> open;
    s.for_each_of_last_step([&](const Instr& in, const Segment&) {
      if (in.kind == Kind::Launch && is_collective(s.works[in.a].kind)) {
        const Work& w = s.works[in.a];
        open.push_back({w.kind, unit_of(units[i], w.group), w.bytes});
      }
      if (in.kind != Kind::Mark) return;
      const Phase phase = phase_before(s.marks[in.a].name);
      for (const Seen& c : open) {
        auto it = std::find_if(d.collectives.begin(), d.collectives.end(), [&](const auto& x) {
          return x.kind == c.kind && x.phase == phase && x.unit == c.unit;
        });
        if (it == d.collectives.end()) {
          d.collectives.push_back({c.kind, phase, c.unit, {}, {}});
          it = d.collectives.end() - 1;
        }
        ++it->count[i];
        it->bytes[i] += c.bytes;
      }
      open.clear();
    });
  }
  std::stable_sort(d.collectives.begin(), d.collectives.end(), [](const auto& x, const auto& y) {
    return std::tie(x.phase, x.kind, x.unit) < std::tie(y.phase, y.kind, y.unit);
  });
}

void add_reasons(Diff& d, const Two<const DiffSide*>& sides, const Two<UnitOf>& units) {
  using Key = StepParts::Key;
  struct Held {
    Two<Time> time;
    Two<std::map<Hold, Time>> by;
  };
  std::map<Key, Held> exposed;
  std::map<Key, Two<Time>> path;
  for (size_t i = 0; i < 2; ++i) {
    if (!d.timed[i]) continue;
    const StepParts parts(*sides[i], units[i]);
    const StepReport& r = *sides[i]->report;
    for (const PhaseWindow& w : parts.windows())
      d.phases[static_cast<size_t>(w.phase)].time[i] += w.end - w.start;
    for (const Exposed& e : r.exposed) {
      const Key key = parts.key_of(e.vertex, r.steady.start + e.start);
      d.phases[static_cast<size_t>(key.phase)].exposed[i] += e.duration;
      Held& h = exposed[key];
      h.time[i] += e.duration;
      h.by[i][parts.hold_of(e)] += e.duration;
    }
    for (const auto& [key, time] : parts.path()) path[key][i] += time;
  }
  for (const auto& [key, h] : exposed) {
    ExposedChange& x = d.exposed.emplace_back();
    x.phase = key.phase;
    x.what = key.what;
    x.unit = key.unit;
    x.time = h.time;
    const bool collective = std::any_of(kCollectives.begin(), kCollectives.end(),
                                        [&](WorkKind k) { return name_of(k) == x.what; });
    for (size_t i = 0; i < 2; ++i) {
      const auto most =
          std::max_element(h.by[i].begin(), h.by[i].end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      if (most != h.by[i].end()) x.hold[i] = most->first;
      x.issued[i] =
          h.time[i].ps > 0 ||
          (!collective && (x.unit < 0 || !d.units[static_cast<size_t>(x.unit)].groups[i].empty()));
      for (const CollectiveChange& c : d.collectives)
        if (name_of(c.kind) == x.what && c.unit == x.unit && c.phase == x.phase && c.count[i] > 0)
          x.issued[i] = true;
    }
  }
  for (const auto& [key, time] : path) d.path.push_back({key.phase, key.what, key.unit, time});
  // A step that never ended explains nothing.
  if (!d.timed[0] || !d.timed[1]) {
    d.exposed.clear();
    d.path.clear();
  }
  by_change(d.exposed);
  by_change(d.path);
}

void add_memory(Diff& d, const Two<const DiffSide*>& sides) {
  const Two<const MemoryReport*> m{&sides[0]->report->memory, &sides[1]->report->memory};
  for (size_t c = 0; c < kCategories; ++c)
    if (m[0]->by_category[c] != m[1]->by_category[c])
      d.memory.push_back({static_cast<Category>(c), {m[0]->by_category[c], m[1]->by_category[c]}});
  std::stable_sort(d.memory.begin(), d.memory.end(), [](const auto& x, const auto& y) {
    return std::abs(x.second[1] - x.second[0]) > std::abs(y.second[1] - y.second[0]);
  });
  for (size_t i = 0; i < 2; ++i) {
    d.peak_phase[i] = m[i]->peak_phase;
    const int last = m[i]->last_step();
    for (const MemoryRow& row : m[i]->rows) {
      if (row.step != last || last < 0) continue;
      PhaseChange& p = d.phases[static_cast<size_t>(phase_before(row.name))];
      p.peak_allocated[i] = std::max(p.peak_allocated[i].value_or(0), row.allocated_peak);
      if (row.reserved_peak)
        p.peak_reserved[i] = std::max(p.peak_reserved[i].value_or(0), *row.reserved_peak);
    }
  }
}

void add_summary(Diff& d, const Two<const DiffSide*>& sides) {
  using K = Figure::Kind;
  const auto add = [&](K kind, const char* key, const char* title, auto&& value) {
    Figure f{kind, key, title, {}};
    for (size_t i = 0; i < 2; ++i) f.value[i] = value(i);
    if (f.value[0] || f.value[1]) d.summary.push_back(std::move(f));
  };
  using Value = std::optional<double>;
  const auto timed = [&](auto&& get) {
    return [&d, &sides, get](size_t i) {
      return d.timed[i] ? Value(get(*sides[i]->report)) : Value();
    };
  };
  const auto seconds = [](Time t) { return static_cast<double>(t.ps) / 1e12; };
  const auto bytes = [](const std::optional<Bytes>& b) {
    return b ? Value(static_cast<double>(*b)) : Value();
  };
  const auto memory = [&](size_t i) -> const MemoryReport& { return sides[i]->report->memory; };
  add(K::time, "step_time_s", "step time",
      timed([&](const StepReport& r) { return seconds(r.steady.length()); }));
  add(K::rate, "tokens_per_s_per_gpu", "tokens/s/GPU",
      timed([](const StepReport& r) { return r.tokens_per_s_per_gpu(); }));
  add(K::fraction, "mfu", "MFU", timed([](const StepReport& r) { return r.mfu(); }));
  add(K::time, "compute_busy_s", "compute busy",
      timed([&](const StepReport& r) { return seconds(r.steady.compute_busy); }));
  add(K::time, "comm_busy_s", "communication busy",
      timed([&](const StepReport& r) { return seconds(r.steady.comm_busy); }));
  add(K::time, "exposed_comm_s", "exposed comm",
      timed([&](const StepReport& r) { return seconds(r.steady.exposed_comm); }));
  if (std::any_of(sides.begin(), sides.end(),
                  [](const DiffSide* s) { return s->report->steady.slowed.ps > 0; }))
    add(K::time, "interference_s", "interference",
        timed([&](const StepReport& r) { return seconds(r.steady.slowed); }));
  add(K::count, "collectives", "collectives", [&](size_t i) {
    double n = 0;
    for (const CollectiveChange& c : d.collectives) n += static_cast<double>(c.count[i]);
    return Value(n);
  });
  add(K::bytes, "collective_bytes", "their whole bytes", [&](size_t i) {
    double n = 0;
    for (const CollectiveChange& c : d.collectives) n += static_cast<double>(c.bytes[i]);
    return Value(n);
  });
  add(K::count, "padding_elements", "padding elements", [&](size_t i) {
    double n = 0;
    for (const GroupRow& g : sides[i]->report->groups)
      n += static_cast<double>(g.padded_numel - g.numel);
    return Value(n);
  });
  add(K::bytes, "peak_allocated_bytes", "peak allocated",
      [&](size_t i) { return Value(static_cast<double>(memory(i).peak_allocated)); });
  add(K::bytes, "peak_active_bytes", "peak active",
      [&](size_t i) { return bytes(memory(i).peak_active); });
  add(K::bytes, "peak_reserved_bytes", "peak reserved",
      [&](size_t i) { return bytes(memory(i).peak_reserved); });
  add(K::bytes, "headroom_bytes", "left on the device",
      [&](size_t i) { return Value(static_cast<double>(memory(i).headroom())); });
}

void add_settings(Diff& d, const DiffSide& a, const DiffSide& b) {
  std::map<std::string, std::string> of_b(b.settings.begin(), b.settings.end());
  for (const auto& [key, value] : a.settings) {
    const auto it = of_b.find(key);
    if (it == of_b.end()) {
      d.settings.push_back({key, {value, std::nullopt}});
      continue;
    }
    if (it->second != value) d.settings.push_back({key, {value, it->second}});
    of_b.erase(it);
  }
  // In the order of B's file.
  for (const auto& [key, value] : b.settings)
    if (of_b.count(key) > 0) d.settings.push_back({key, {std::nullopt, value}});
}

void add_notes(Diff& d, const Two<const DiffSide*>& sides) {
  const auto note = [&](std::string text) { d.notes.push_back(std::move(text)); };
  if (d.model[0] != d.model[1])
    note(fmt::format("A trains {}, B {}: groups are paired where parameters have the same names",
                     d.model[0], d.model[1]));
  for (size_t i = 0; i < 2; ++i) {
    std::vector<std::string> alone;
    for (const DiffUnit& u : d.units)
      if (u.groups[1 - i].empty()) alone.push_back(u.name);
    if (alone.empty()) continue;
    constexpr size_t kShown = 4;
    std::string names = fmt::format(
        "{}", fmt::join(alone.begin(),
                        alone.begin() + static_cast<long>(std::min(alone.size(), kShown)), ", "));
    if (alone.size() > kShown) names += fmt::format(" and {} more", alone.size() - kShown);
    note(fmt::format("only {} has the parameters of {}: their works have no counterpart",
                     i == 0 ? "A" : "B", names));
  }
  if (d.world[0] != d.world[1])
    note(fmt::format("A runs on {} ranks, B on {}: bytes are of whole tensors, memory of one rank",
                     d.world[0], d.world[1]));
  if (d.gpu[0] != d.gpu[1]) note(fmt::format("A runs on {}, B on {}", d.gpu[0], d.gpu[1]));
  if (d.tokens[0] != d.tokens[1])
    note(fmt::format(
        "a step of A has {} tokens a GPU, one of B {}: compare tokens/s, not step times",
        d.tokens[0], d.tokens[1]));
  if (sides[0]->report->memory.peak_reserved.has_value() !=
      sides[1]->report->memory.peak_reserved.has_value())
    note(fmt::format(
        "only {} plays the allocator (options: {{memory: blocks}}): what is left on the "
        "device is of reserved bytes there and of allocated bytes in the other",
        sides[0]->report->memory.peak_reserved ? "A" : "B"));
  for (size_t i = 0; i < 2; ++i)
    if (!d.timed[i])
      note(fmt::format("{} runs out of memory {}: it has no step to compare; {}",
                       i == 0 ? "A" : "B", d.peak_phase[i],
                       sides[i]->report->memory.failure->message));
}

}  // namespace

std::vector<DiffUnit> pair_groups(const DiffSide& a, const DiffSide& b) {
  const Two<const DiffSide*> sides{&a, &b};
  const size_t first_b = a.parameters.size();
  std::vector<size_t> root(first_b + b.parameters.size());
  std::iota(root.begin(), root.end(), size_t{0});
  const auto find = [&](size_t x) {
    while (root[x] != x) x = root[x] = root[root[x]];
    return x;
  };
  std::unordered_map<std::string, size_t> owner;
  for (size_t side = 0; side < 2; ++side)
    for (size_t g = 0; g < sides[side]->parameters.size(); ++g) {
      const size_t node = g + (side == 0 ? 0 : first_b);
      for (const std::string& p : sides[side]->parameters[g]) {
        const auto [it, fresh] = owner.emplace(p, node);
        if (!fresh) {
          const size_t x = find(it->second), y = find(node);
          root[std::max(x, y)] = std::min(x, y);
        }
      }
    }
  std::vector<DiffUnit> units;
  std::vector<int> index(root.size(), -1);
  for (size_t node = 0; node < root.size(); ++node) {
    int& at = index[find(node)];
    if (at < 0) {
      at = static_cast<int>(units.size());
      units.emplace_back();
    }
    const size_t side = node < first_b ? 0 : 1;
    units[static_cast<size_t>(at)].groups[side].push_back(
        static_cast<uint32_t>(side == 0 ? node : node - first_b));
  }
  for (DiffUnit& u : units) {
    const size_t side = u.groups[0].empty()                       ? 1
                        : u.groups[1].empty()                     ? 0
                        : u.groups[1].size() < u.groups[0].size() ? 1
                                                                  : 0;
    // One flat buffer beside many groups: a work may be any one's of these.
    if (u.groups[side].size() == 1 && u.groups[1 - side].size() > 1 &&
        sides[side]->report->groups[u.groups[side][0]].name.empty()) {
      u.name = fmt::format("all {} groups", u.groups[1 - side].size());
      continue;
    }
    std::vector<std::string> names;
    for (const uint32_t g : u.groups[side])
      names.push_back(group_label(sides[side]->report->groups, GroupId{g}));
    u.name = fmt::format("{}", fmt::join(names, " + "));
  }
  return units;
}

Diff diff(const DiffSide& a, const DiffSide& b) {
  const Two<const DiffSide*> sides{&a, &b};
  Diff d;
  d.units = pair_groups(a, b);
  Two<UnitOf> units;
  for (size_t i = 0; i < 2; ++i) {
    const StepReport& r = *sides[i]->report;
    d.file[i] = sides[i]->file;
    d.name[i] = r.run.name;
    d.model[i] = r.model.name;
    d.strategy[i] = r.run.strategy;
    d.world[i] = r.run.world;
    d.tokens[i] = r.run.tokens_per_step;
    d.gpu[i] = r.run.cluster.gpu.name;
    d.timed[i] = !r.memory.failure;
    units[i].assign(r.groups.size(), -1);
    for (size_t u = 0; u < d.units.size(); ++u)
      for (const uint32_t g : d.units[u].groups[i]) units[i][g] = static_cast<int>(u);
  }
  for (int p = 0; p < kPhases; ++p) d.phases.emplace_back().phase = static_cast<Phase>(p);
  add_collectives(d, sides, units);
  add_memory(d, sides);
  add_summary(d, sides);
  add_reasons(d, sides, units);
  add_settings(d, a, b);
  add_notes(d, sides);
  return d;
}

}  // namespace shardsim
