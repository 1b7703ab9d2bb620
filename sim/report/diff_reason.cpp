#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/report/diff.h"
#include "sim/report/text.h"

namespace shardsim {
namespace {

std::string held_text(const Diff& d, const Hold& h) {
  const std::string by = work_name(d, h.by, h.by_unit);
  switch (h.why) {
    case Why::host: return "it starts when the host issues it";
    case Why::event: return "it starts after " + by + " (event)";
    case Why::stream: return "it runs behind " + by + " on its stream";
    case Why::communicator: return "it waits for " + by + " on the same communicator";
  }
  return {};
}

std::string hold_text(const Diff& d, const ExposedChange& x, const Hold& h) {
  if (x.what == "host") return "the host has not issued compute's next work";
  if (h.why == Why::host && h.by == x.what) return "the host does it itself and issues nothing";
  std::string out;
  switch (h.cause) {
    case Cause::event: out = "compute waits for its event"; break;
    case Cause::communicator: out = "it holds up the next collective of its communicator"; break;
    case Cause::host: out = "the host waits for it"; break;
    case Cause::end_of_step: out = "no compute follows it in the step"; break;
  }
  return out + "; " + held_text(d, h);
}

std::string example_of(const Diff& d, const ExposedChange& x) {
  const Time change = x.time[1] - x.time[0];
  if (change.ps == 0) return {};
  const size_t side = x.time[0] > x.time[1] ? 0 : 1;
  return fmt::format("most at {}, {}{} ({}: {})", unit_name(d, x.unit), change.ps > 0 ? "+" : "",
                     duration(change), side == 0 ? "A" : "B", held_text(d, x.hold[side]));
}

template <class Row, class Key, class Merge>
void merge_rows(std::vector<Row>& rows, Key key, Merge merge) {
  std::vector<Row> out;
  std::map<decltype(key(rows[0])), size_t> index;
  for (Row& row : rows) {
    const auto [it, fresh] = index.emplace(key(row), out.size());
    if (fresh)
      out.push_back(std::move(row));
    else
      merge(out[it->second], row);
  }
  rows = std::move(out);
}

template <class Row>
void by_change(std::vector<Row>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& x, const Row& y) {
    return std::abs((x.time[1] - x.time[0]).ps) > std::abs((y.time[1] - y.time[0]).ps);
  });
}

}  // namespace

std::string unit_name(const Diff& d, int unit) {
  return unit < 0 ? "" : d.units[static_cast<size_t>(unit)].name;
}

std::string work_name(const Diff& d, std::string_view what, int unit) {
  std::string out(what);
  if (unit >= 0) out += " " + unit_name(d, unit);
  return out;
}

std::vector<std::string> reasons(const Diff& d, const ExposedChange& x) {
  const bool a = x.time[0].ps > 0, b = x.time[1].ps > 0;
  Two<std::string> text;
  for (size_t i = 0; i < 2; ++i)
    text[i] = x.time[i].ps > 0 ? hold_text(d, x, x.hold[i]) : x.issued[i] ? "hidden" : "not issued";
  if (a && b && text[0] == text[1]) return {text[0]};
  return {"A: " + text[0], "B: " + text[1]};
}

Diff fold(const Diff& d) {
  Diff out = d;
  // A pattern with one name keeps it.
  std::map<std::string, std::vector<int>> patterns;
  for (size_t u = 0; u < d.units.size(); ++u)
    patterns[folded_name(d.units[u].name)].push_back(static_cast<int>(u));
  std::vector<int> to(d.units.size());
  out.units.clear();
  for (size_t u = 0; u < d.units.size(); ++u) {
    const std::string pattern = folded_name(d.units[u].name);
    const std::vector<int>& members = patterns[pattern];
    if (members.front() != static_cast<int>(u)) {
      to[u] = to[static_cast<size_t>(members.front())];
      continue;
    }
    to[u] = static_cast<int>(out.units.size());
    DiffUnit& unit = out.units.emplace_back();
    unit.name = members.size() == 1 ? d.units[u].name : pattern;
    for (const int m : members)
      for (size_t i = 0; i < 2; ++i) {
        const auto& groups = d.units[static_cast<size_t>(m)].groups[i];
        unit.groups[i].insert(unit.groups[i].end(), groups.begin(), groups.end());
      }
  }
  const auto moved = [&](int unit) { return unit < 0 ? -1 : to[static_cast<size_t>(unit)]; };
  for (CollectiveChange& c : out.collectives) c.unit = moved(c.unit);
  for (PathChange& p : out.path) p.unit = moved(p.unit);
  for (ExposedChange& x : out.exposed) {
    x.unit = moved(x.unit);
    for (Hold& h : x.hold) h.by_unit = moved(h.by_unit);
  }

  merge_rows(
      out.collectives,
      [](const CollectiveChange& c) { return std::tuple(c.phase, c.kind, c.unit); },
      [](CollectiveChange& c, const CollectiveChange& o) {
        for (size_t i = 0; i < 2; ++i) {
          c.count[i] += o.count[i];
          c.bytes[i] += o.bytes[i];
        }
      });
  merge_rows(
      out.path, [](const PathChange& p) { return std::tuple(p.phase, p.what, p.unit); },
      [](PathChange& p, const PathChange& o) {
        for (size_t i = 0; i < 2; ++i) p.time[i] += o.time[i];
      });
  using Key = std::tuple<Phase, std::string, int>;
  const auto key = [](const ExposedChange& x) { return Key(x.phase, x.what, x.unit); };
  std::map<Key, Two<std::map<Hold, Time>>> holds;
  std::map<Key, const ExposedChange*> largest;  // they come by size
  for (size_t n = 0; n < out.exposed.size(); ++n) {
    const ExposedChange& x = out.exposed[n];
    for (size_t i = 0; i < 2; ++i)
      if (x.time[i].ps > 0) holds[key(x)][i][x.hold[i]] += x.time[i];
    largest.emplace(key(x), &d.exposed[n]);
  }
  merge_rows(out.exposed, key, [](ExposedChange& x, const ExposedChange& o) {
    for (size_t i = 0; i < 2; ++i) {
      x.time[i] += o.time[i];
      x.issued[i] = x.issued[i] || o.issued[i];
    }
    x.rows += o.rows;
  });
  for (ExposedChange& x : out.exposed)
    for (size_t i = 0; i < 2; ++i) {
      const auto& by = holds[key(x)][i];
      const auto most = std::max_element(
          by.begin(), by.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
      if (most != by.end()) x.hold[i] = most->first;
      if (i == 0 && x.rows > 1) x.example = example_of(d, *largest[key(x)]);
    }
  by_change(out.exposed);
  by_change(out.path);
  return out;
}

}  // namespace shardsim
