#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/report/diff.h"

namespace shardsim {
namespace {

using Json = nlohmann::ordered_json;

double seconds(Time t) { return static_cast<double>(t.ps) / 1e12; }

template <class T>
Json two(const T& a, const T& b) {
  return {{"a", a}, {"b", b}, {"change", b - a}};
}
// The change is divided once, so that it has no more digits than it needs.
Json two(Time a, Time b) {
  return {{"a", seconds(a)}, {"b", seconds(b)}, {"change", seconds(b - a)}};
}

Json two(const std::optional<Bytes>& a, const std::optional<Bytes>& b) {
  return {{"a", a ? Json(*a) : Json(nullptr)},
          {"b", b ? Json(*b) : Json(nullptr)},
          {"change", a && b ? Json(*b - *a) : Json(nullptr)}};
}

Json figure(const Figure& f) {
  const auto shown = [&](const std::optional<double>& x) {
    if (!x) return Json(nullptr);
    switch (f.kind) {
      case Figure::Kind::bytes:
      case Figure::Kind::count: return Json(std::llround(*x));
      case Figure::Kind::rate: return Json(std::round(*x * 1e3) / 1e3);
      case Figure::Kind::fraction: return Json(std::round(*x * 1e6) / 1e6);
      case Figure::Kind::time: return Json(std::round(*x * 1e12) / 1e12);
    }
    return Json(nullptr);
  };
  std::optional<double> change;
  if (f.value[0] && f.value[1]) change = *f.value[1] - *f.value[0];
  return {{"a", shown(f.value[0])}, {"b", shown(f.value[1])}, {"change", shown(change)}};
}

Json unit(const Diff& d, int u) { return u < 0 ? Json(nullptr) : Json(unit_name(d, u)); }

Json hold(const Diff& d, const ExposedChange& x, size_t side) {
  if (x.time[side].ps == 0) return nullptr;
  const Hold& h = x.hold[side];
  return {{"cause", name_of(h.cause)},
          {"held_by", h.why == Why::host ? "host" : work_name(d, h.by, h.by_unit)},
          {"held_through", name_of(h.why)}};
}

}  // namespace

std::string diff_json(const Diff& d) {
  Json j;
  j["schema_version"] = 1;
  constexpr const char* kSides[] = {"a", "b"};
  for (size_t i = 0; i < 2; ++i)
    j[kSides[i]] = {{"file", d.file[i]},
                    {"name", d.name[i]},
                    {"model", d.model[i]},
                    {"strategy", d.strategy[i]},
                    {"world", d.world[i]},
                    {"gpu", d.gpu[i]},
                    {"peak_phase", d.peak_phase[i]}};
  j["notes"] = d.notes;
  j["summary"] = Json::object();
  for (const Figure& f : d.summary) j["summary"][f.key] = figure(f);
  j["collectives"] = Json::array();
  for (const CollectiveChange& c : d.collectives)
    j["collectives"].push_back({{"phase", name_of(c.phase)},
                                {"kind", name_of(c.kind)},
                                {"group", unit(d, c.unit)},
                                {"count", two(c.count[0], c.count[1])},
                                {"bytes", two(c.bytes[0], c.bytes[1])}});
  j["peak_by_category_bytes"] = Json::object();
  for (const auto& [category, bytes] : d.memory)
    j["peak_by_category_bytes"][std::string(name_of(category))] = two(bytes[0], bytes[1]);
  j["phases"] = Json::array();
  const bool timed = d.timed[0] && d.timed[1];
  for (const PhaseChange& p : d.phases)
    j["phases"].push_back(
        {{"phase", name_of(p.phase)},
         {"time_s", timed ? two(p.time[0], p.time[1]) : Json(nullptr)},
         {"exposed_comm_s", timed ? two(p.exposed[0], p.exposed[1]) : Json(nullptr)},
         {"peak_allocated_bytes", two(p.peak_allocated[0], p.peak_allocated[1])},
         {"peak_reserved_bytes", two(p.peak_reserved[0], p.peak_reserved[1])}});
  j["exposed_reasons"] = Json::array();
  for (const ExposedChange& x : d.exposed)
    j["exposed_reasons"].push_back({{"phase", name_of(x.phase)},
                                    {"waiting_on", x.what},
                                    {"group", unit(d, x.unit)},
                                    {"exposed_s", two(x.time[0], x.time[1])},
                                    {"issued", {{"a", x.issued[0]}, {"b", x.issued[1]}}},
                                    {"a", hold(d, x, 0)},
                                    {"b", hold(d, x, 1)},
                                    {"reasons", reasons(d, x)}});
  j["critical_path"] = Json::array();
  for (const PathChange& p : d.path)
    j["critical_path"].push_back({{"phase", name_of(p.phase)},
                                  {"work", p.what},
                                  {"group", unit(d, p.unit)},
                                  {"time_s", two(p.time[0], p.time[1])}});
  j["groups"] = Json::array();
  for (const DiffUnit& u : d.units)
    j["groups"].push_back(
        {{"name", u.name}, {"count", {{"a", u.groups[0].size()}, {"b", u.groups[1].size()}}}});
  j["settings"] = Json::array();
  for (const Diff::Setting& s : d.settings)
    j["settings"].push_back({{"key", s.key},
                             {"a", s.value[0] ? Json(*s.value[0]) : Json(nullptr)},
                             {"b", s.value[1] ? Json(*s.value[1]) : Json(nullptr)}});
  // A name may hold bytes that are not UTF-8.
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace shardsim
