#include "sim/study/source_factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/config/reader.h"
#include "sim/study/shipped_factors.h"

namespace shardsim {

SourceFactors SourceFactors::parse(std::string_view text, const std::string& file) {
  const Value root(std::make_shared<const Document>(parse_yaml(text, file)));
  const Map map(root, {"shardsim_sources", "units"});
  const Value version = map.at("shardsim_sources", "the first line of such a file");
  if (!version.is_word("1")) version.fail_expected("1, the only version there is");
  SourceFactors out;
  for (const Value& v : map.at("units").list("units of rows")) {
    const Map m(v, {"unit", "factor", "rows"});
    SourceFactor f;
    f.factor = m.at("factor").decimal(.01, 100, "of the predicted time");
    f.rows = static_cast<int>(m.at("rows").whole(1, 1'000'000, "that it was learned from"));
    const std::string unit = m.at("unit").text();
    if (!out.units_.emplace(unit, f).second) m.at("unit").fail("this unit is there twice");
  }
  return out;
}

SourceFactors SourceFactors::shipped() {
  return parse(kShippedFactors, "analysis/validation/sources.yaml");
}

void SourceFactors::learn(const std::string& unit, std::vector<double> ratios,
                          const FitOptions& noise) {
  if (ratios.empty()) return;
  std::sort(ratios.begin(), ratios.end());
  const size_t half = ratios.size() / 2;
  const double median =
      ratios.size() % 2 == 1 ? ratios[half] : (ratios[half - 1] + ratios[half]) / 2;
  const auto n = static_cast<double>(ratios.size());
  const double shared = n * noise.shared_error * noise.shared_error;
  const double weight = shared / (shared + noise.row_error * noise.row_error);
  units_[unit] = {std::exp(weight * median), static_cast<int>(ratios.size())};
}

const SourceFactor* SourceFactors::find(const std::string& unit) const {
  const auto found = units_.find(unit);
  return found == units_.end() ? nullptr : &found->second;
}

std::string SourceFactors::yaml() const {
  std::string out =
      "# Predicted over measured time, shrunk, of each unit of published rows (source, GPU, "
      "compiled or "
      "not),\n"
      "# by `shardsim validate TABLE --learn FILE`: sim/study/source_factors.h says how.\n"
      "shardsim_sources: 1\n";
  out += units_.empty() ? "units: []\n" : "units:\n";
  for (const auto& [unit, f] : units_)
    out += fmt::format("  - {{unit: {}, factor: {:.4f}, rows: {}}}\n", yaml_text(unit), f.factor,
                       f.rows);
  return out;
}

}  // namespace shardsim
