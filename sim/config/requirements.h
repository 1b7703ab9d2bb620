// What a study's points must be for its answers to count them: `require` of a study. Rows that are not
// stay in the store.
//
//   require:
//     fits: true                       # the default; any: points that do not fit in memory count too
//     step_time_s: {at_most: 2 s}      # any figure of a row, with a unit where it has one
//     headroom_bytes: {at_least: 4 GiB}
#pragma once

#include <string>
#include <vector>

#include "sim/config/reader.h"

namespace shardsim {

struct Bound {
  std::string figure;  // a column of the sweep's CSV
  bool at_most = true;
  double value = 0;
  std::string text;  // the value as it was written: "4 GiB"
};

struct Requirements {
  bool fits = true;
  std::vector<Bound> bounds;
};

Requirements read_requirements(const Value& value);

}  // namespace shardsim
