// What a source's machine and software make of the shipped constants: one factor of time for each unit
// (source, GPU, compiled or not), learned from the unit's published rows. A further row of such a unit
// is predicted by dividing by it. Rows of one unit agree in sign (its clocks, its cuBLAS, what it left unsaid), so
// the factor is worth more than any constant.
//   factor = exp(w median(log predicted/measured)),  w = n u^2 / (n u^2 + e^2)
// over the n rows that contradict nothing, with the errors u of a source and e of a row that the split
// names: with .025 each as shipped one row counts .5, ten .91.
// Worked example: predicted 0.98, 0.97 and 0.99 of measured: median log -0.0202, w .75: factor .985.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/study/fit.h"

namespace shardsim {

struct SourceFactor {
  double factor = 1;  // of the predicted time, which is divided by it
  int rows = 0;
};

class SourceFactors {
 public:
  static SourceFactors parse(std::string_view text, const std::string& file);
  static SourceFactors shipped();

  // The logarithms of predicted over measured of one unit's rows.
  void learn(const std::string& unit, std::vector<double> log_ratios, const FitOptions& noise);
  const SourceFactor* find(const std::string& unit) const;
  // The file's text, in the order of the units.
  std::string yaml() const;

 private:
  std::map<std::string, SourceFactor> units_;
};

}  // namespace shardsim
