#include "sim/config/requirements.h"

namespace shardsim {

namespace {

enum class Unit : uint8_t { none, seconds, bytes };
struct Figure {
  std::string_view name;
  Unit unit;
};
constexpr Figure kFigures[] = {{"step_time_s", Unit::seconds},
                               {"tokens_per_s", Unit::none},
                               {"tokens_per_s_per_gpu", Unit::none},
                               {"mfu", Unit::none},
                               {"exposed_comm_s", Unit::seconds},
                               {"overlap_fraction", Unit::none},
                               {"peak_bytes", Unit::bytes},
                               {"headroom_bytes", Unit::bytes},
                               {"gpus", Unit::none},
                               {"params", Unit::none},
                               {"cost_per_1e9_tokens", Unit::none},
                               {"budget_hours", Unit::none},
                               {"budget_gpu_hours", Unit::none},
                               {"budget_cost", Unit::none}};

double number(const Value& v, Unit unit) {
  constexpr double kMost = 1e18;
  constexpr Bytes kMostBytes = Bytes{1} << 52;
  switch (unit) {
    case Unit::none: return v.decimal(-kMost, kMost);
    case Unit::bytes: return static_cast<double>(v.bytes(-kMostBytes, kMostBytes));
    case Unit::seconds: break;
  }
  // A bare number is in the seconds that the figure's name says.
  constexpr double kSecond = 1e6;
  const Parsed<double> us = parse_quantity(v.word(), Dimension::time, kSecond);
  if (!us.ok()) v.fail_expected("a time", "2 s, 800 ms", us.problem);
  return us.value / kSecond;
}

}  // namespace

Requirements read_requirements(const Value& value) {
  Requirements out;
  std::vector<std::string_view> known{"fits"};
  for (const Figure& f : kFigures) known.push_back(f.name);
  const Map map(value, known);
  if (const std::optional<Value> v = map.find("fits"))
    out.fits = v->choice<bool>({{"true", true}, {"any", false}});
  for (const Figure& f : kFigures) {
    const std::optional<Value> v = map.find(f.name);
    if (!v) continue;
    if (!v->is_map()) v->fail_expected("{at_most: ...}, {at_least: ...} or both");
    const Map bounds(*v, {"at_most", "at_least"});
    if (bounds.empty()) v->fail_expected("{at_most: ...}, {at_least: ...} or both");
    for (const bool at_most : {false, true})
      if (const std::optional<Value> b = bounds.find(at_most ? "at_most" : "at_least"))
        out.bounds.push_back(
            {std::string(f.name), at_most, number(*b, f.unit), std::string(b->word())});
  }
  return out;
}

}  // namespace shardsim
