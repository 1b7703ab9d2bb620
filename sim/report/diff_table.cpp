#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "sim/base/quantity.h"
#include "sim/report/diff.h"
#include "sim/report/text.h"

namespace shardsim {
namespace {

using Cells = std::vector<std::string>;
constexpr size_t kShown = 12;

std::string signed_text(bool positive, const std::string& text) {
  return positive ? "+" + text : text;
}
std::string change(Time a, Time b) { return a == b ? "" : signed_text(b > a, duration(b - a)); }
std::string bytes(Bytes n) { return n < 0 ? "-" + format_bytes(-n) : format_bytes(n); }
std::string change(Bytes a, Bytes b) { return a == b ? "" : signed_text(b > a, bytes(b - a)); }
std::string bytes(const std::optional<Bytes>& n) { return n ? bytes(*n) : "-"; }
std::string change(const std::optional<Bytes>& a, const std::optional<Bytes>& b) {
  return a && b ? change(*a, *b) : "";
}
std::string count_change(int64_t a, int64_t b) {
  return a == b ? "" : signed_text(b > a, grouped(b - a));
}
std::string share(double a, double b) {
  if (a == 0 || std::abs(b - a) < 0.0005 * std::abs(a)) return "";
  if (b / a >= 10) return fmt::format("{:.0f} x", b / a);
  return fmt::format("{:+.1f} %", 100 * (b - a) / std::abs(a));
}
std::string time_or_none(Time t) { return t.ps == 0 ? "-" : duration(t); }

const Figure* find(const Diff& d, std::string_view key) {
  for (const Figure& f : d.summary)
    if (f.key == key && f.value[0] && f.value[1]) return &f;
  return nullptr;
}

Time as_time(double seconds) { return {std::llround(seconds * 1e12)}; }

// Who runs out of memory, and for want of how much.
std::string out_of_memory(const Diff& d) {
  std::string out;
  const Figure* left = find(d, "headroom_bytes");
  for (size_t i = 0; i < 2; ++i) {
    if (d.timed[i]) continue;
    out += fmt::format("{}{} runs out of memory", out.empty() ? "" : "; ", i == 0 ? "A" : "B");
    if (left != nullptr && left->value[i])
      out += fmt::format(", {} missing", bytes(static_cast<Bytes>(-*left->value[i])));
  }
  return out;
}

// One sentence for who reads no further.
std::string verdict(const Diff& d) {
  std::string out = out_of_memory(d);
  if (!out.empty()) return out + ".";
  const auto say = [&](const std::string& part) { out += (out.empty() ? "" : "; ") + part; };
  if (d.tokens[0] == d.tokens[1]) {
    if (const Figure* f = find(d, "step_time_s")) {
      const Time a = as_time(*f->value[0]), b = as_time(*f->value[1]);
      say(a == b ? "B steps as fast as A"
                 : fmt::format("B steps {} ({:.1f} %) {} than A", duration(b > a ? b - a : a - b),
                               percent(b > a ? b - a : a - b, a), b > a ? "slower" : "faster"));
    }
  } else if (const Figure* f = find(d, "tokens_per_s_per_gpu")) {
    const double a = *f->value[0], b = *f->value[1];
    say(fmt::format("B trains {:.1f} % {} tokens/s on a GPU than A", 100 * std::abs(b - a) / a,
                    b < a ? "fewer" : "more"));
  }
  if (const Figure* f = find(d, "exposed_comm_s")) {
    const Time a = as_time(*f->value[0]), b = as_time(*f->value[1]);
    say(a == b ? "as much communication is exposed"
               : fmt::format("{} {} communication is exposed", duration(b > a ? b - a : a - b),
                             b > a ? "more" : "less"));
  }
  const Figure* peak = find(d, "peak_reserved_bytes");
  const bool reserved = peak != nullptr;
  if (!reserved) peak = find(d, "peak_allocated_bytes");
  if (peak != nullptr) {
    const auto a = static_cast<Bytes>(*peak->value[0]), b = static_cast<Bytes>(*peak->value[1]);
    const std::string what = reserved ? "reserved memory" : "allocated memory";
    say(a == b ? what + " peaks alike"
               : fmt::format("{} peaks {} {}", what, bytes(std::abs(b - a)),
                             b > a ? "higher" : "lower"));
  }
  return out.empty() ? out : out + ".";
}

std::string figure_text(const Figure& f, double x) {
  switch (f.kind) {
    case Figure::Kind::time: return duration(as_time(x));
    case Figure::Kind::bytes: return bytes(static_cast<Bytes>(std::llround(x)));
    case Figure::Kind::count:
    case Figure::Kind::rate: return grouped(std::llround(x));
    case Figure::Kind::fraction: return fmt::format("{:.2f} %", 100 * x);
  }
  return {};
}

void summary(Lines& out, const Diff& d) {
  std::vector<Cells> rows{{"", "A", "B", "change", ""}};
  for (const Figure& f : d.summary) {
    Cells row{f.title};
    for (const auto& value : f.value) row.push_back(value ? figure_text(f, *value) : "-");
    if (f.value[0] && f.value[1] && *f.value[0] != *f.value[1]) {
      const double by = *f.value[1] - *f.value[0];
      // Less than what is shown.
      const std::string text = figure_text(f, by);
      row.push_back(signed_text(by > 0, text));
      row.push_back(f.kind == Figure::Kind::fraction ? "" : share(*f.value[0], *f.value[1]));
    }
    rows.push_back(std::move(row));
  }
  out.text(aligned(rows, "lrrrr"));
}

void collectives(Lines& out, const Diff& d) {
  std::vector<Cells> rows{
      {"phase", "kind", "group", "count A", "B", "change", "bytes A", "B", "change"}};
  int64_t alike = 0;
  for (const CollectiveChange& c : d.collectives) {
    if (!c.changed()) {
      alike += c.count[0];
      continue;
    }
    rows.push_back({std::string(name_of(c.phase)), std::string(name_of(c.kind)),
                    c.unit < 0 ? "-" : unit_name(d, c.unit), grouped(c.count[0]),
                    grouped(c.count[1]), count_change(c.count[0], c.count[1]), bytes(c.bytes[0]),
                    bytes(c.bytes[1]), change(c.bytes[0], c.bytes[1])});
  }
  if (rows.size() == 1) {
    out.add("");
    out.add("collectives of a step: the same {} in both", alike);
    return;
  }
  out.add("");
  out.add("collectives of a step that differ (the other {} are alike)", alike);
  out.text(aligned(rows, "lllrrrrrr"));
}

void phases(Lines& out, const Diff& d) {
  const bool timed = d.timed[0] && d.timed[1];
  if (timed) {
    std::vector<Cells> rows{{"phase", "time A", "B", "change", "exposed A", "B", "change"}};
    for (const PhaseChange& p : d.phases) {
      Cells& row = rows.emplace_back(Cells{std::string(name_of(p.phase))});
      for (const Two<Time>& t : {p.time, p.exposed}) {
        row.push_back(duration(t[0]));
        row.push_back(duration(t[1]));
        row.push_back(change(t[0], t[1]));
      }
    }
    out.add("");
    out.add("time by phase");
    out.text(aligned(rows, "lrrrrrr"));
  }
  const bool blocks = std::any_of(d.phases.begin(), d.phases.end(), [](const PhaseChange& p) {
    return p.peak_reserved[0] || p.peak_reserved[1];
  });
  std::vector<Cells> rows{{"phase", "allocated A", "B", "change"}};
  if (blocks) rows[0].insert(rows[0].end(), {"reserved A", "B", "change"});
  for (const PhaseChange& p : d.phases) {
    Cells& row = rows.emplace_back(Cells{std::string(name_of(p.phase))});
    for (const auto* peak : {&p.peak_allocated, &p.peak_reserved}) {
      if (peak == &p.peak_reserved && !blocks) continue;
      row.push_back(bytes((*peak)[0]));
      row.push_back(bytes((*peak)[1]));
      row.push_back(change((*peak)[0], (*peak)[1]));
    }
  }
  out.add("");
  out.add("peak memory by phase, since the step began");
  out.text(aligned(rows, "lrrrrrr"));
}

void memory(Lines& out, const Diff& d) {
  if (d.memory.empty()) return;
  std::vector<Cells> rows{{"", "A", "B", "change"}};
  for (const auto& [category, n] : d.memory)
    rows.push_back({std::string(name_of(category)), bytes(n[0]), bytes(n[1]), change(n[0], n[1])});
  out.add("");
  const auto moment = [&](size_t i) {
    return d.timed[i] ? "before " + d.peak_phase[i] : "out of memory, " + d.peak_phase[i];
  };
  out.add("allocated memory at the peak, what differs (A: {}, B: {})", moment(0), moment(1));
  out.text(aligned(rows, "lrrr"));
}

// What rows beyond those that are shown amount to.
template <class Rows>
void rest(Lines& out, const Rows& left) {
  if (left.empty()) return;
  Time sum{};
  for (const auto* row : left) sum += row->time[1] - row->time[0];
  out.add("  and {} more, {} together", left.size(),
          sum.ps == 0 ? "0" : signed_text(sum.ps > 0, duration(sum)));
}

void exposed(Lines& out, const Diff& d) {
  std::vector<Cells> rows{{"change", "A", "B", "phase", "compute waits for"}};
  std::vector<std::string> why;
  std::vector<const ExposedChange*> left;
  for (const ExposedChange& x : d.exposed) {
    if (x.time[0] == x.time[1]) continue;
    if (rows.size() > kShown) {
      left.push_back(&x);
      continue;
    }
    rows.push_back({change(x.time[0], x.time[1]), time_or_none(x.time[0]), time_or_none(x.time[1]),
                    std::string(name_of(x.phase)), work_name(d, x.what, x.unit)});
    std::vector<std::string> lines = reasons(d, x);
    if (!x.example.empty()) lines.push_back(x.example);
    why.push_back(fmt::format("      {}\n", fmt::join(lines, "\n      ")));
  }
  if (why.empty()) return;
  out.add("");
  out.add("why exposed communication changes");
  const std::string table = aligned(rows, "rrrll");
  size_t at = 0, row = 0;
  for (size_t end = table.find('\n'); end != std::string::npos; end = table.find('\n', at)) {
    out.add("{}", table.substr(at, end - at));
    if (row > 0) out.text(why[row - 1]);
    ++row;
    at = end + 1;
  }
  rest(out, left);
}

void path(Lines& out, const Diff& d) {
  std::vector<Cells> rows{{"change", "A", "B", "phase", "work", ""}};
  std::vector<const PathChange*> left;
  for (const PathChange& p : d.path) {
    if (p.time[0] == p.time[1]) continue;
    if (rows.size() > kShown) {
      left.push_back(&p);
      continue;
    }
    rows.push_back({change(p.time[0], p.time[1]), time_or_none(p.time[0]), time_or_none(p.time[1]),
                    std::string(name_of(p.phase)), work_name(d, p.what, p.unit),
                    p.time[0].ps == 0   ? "entered"
                    : p.time[1].ps == 0 ? "left"
                                        : ""});
  }
  if (rows.size() == 1) return;
  out.add("");
  out.add("why the step time changes: what the critical path of the step goes through");
  out.text(aligned(rows, "rrrlll"));
  rest(out, left);
}

void settings(Lines& out, const Diff& d) {
  out.add("");
  if (d.settings.empty()) {
    out.add("the scenarios say the same");
    return;
  }
  out.add("what the scenarios say otherwise");
  std::vector<Cells> rows{{"", "A", "B"}};
  const auto shown = [](const std::optional<std::string>& value) {
    constexpr size_t kWidth = 48;
    if (!value) return std::string("-");
    return value->size() > kWidth ? value->substr(0, kWidth - 3) + "..." : *value;
  };
  for (const Diff::Setting& s : d.settings)
    rows.push_back({s.key, shown(s.value[0]), shown(s.value[1])});
  out.text(aligned(rows, "lll"));
}

}  // namespace

std::string diff_table(const Diff& whole) {
  const Diff d = fold(whole);
  Lines out;
  for (size_t i = 0; i < 2; ++i)
    out.add("{}  {}: {}, {} on {} x {}", i == 0 ? "A" : "B",
            d.file[i].empty() ? d.name[i] : d.file[i], d.model[i], d.strategy[i], d.world[i],
            d.gpu[i]);
  out.add("");
  if (const std::string text = verdict(d); !text.empty()) {
    out.add("{}", text);
    out.add("");
  }
  summary(out, d);
  if (!d.notes.empty()) out.add("");
  for (const std::string& n : d.notes) out.add("note: {}", n);
  collectives(out, d);
  phases(out, d);
  memory(out, d);
  exposed(out, d);
  path(out, d);
  settings(out, d);
  return out.take();
}

std::string diff_csv(const Diff& d) {
  std::string out = "phase,kind,group,count_a,count_b,bytes_a,bytes_b\n";
  for (const CollectiveChange& c : d.collectives)
    if (c.changed())
      fmt::format_to(std::back_inserter(out), "{},{},{},{},{},{},{}\n", name_of(c.phase),
                     name_of(c.kind), csv_field(unit_name(d, c.unit)), c.count[0], c.count[1],
                     c.bytes[0], c.bytes[1]);
  return out;
}

}  // namespace shardsim
