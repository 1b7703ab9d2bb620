// What a point's scenario is put together from, so that a store can give the scenario of any of its
// points without the study's files: the scenario that is varied, once, and what each place of each axis
// sets (config/overlay.h has the rule).
//
// As JSON: {file, base, axes: [{name, places: [{label, settings: [[path, value], ...]}]}]}. A value is a
// string (a plain scalar, as it stands in the file), {"q": text} (a quoted one), null, a list, or
// {"m": [[key, value], ...]} (a map, in the file's order).
// Worked example: {micro_batch: 2, name: "x"} is {"m": [["micro_batch", "2"], ["name", {"q": "x"}]]}.
#pragma once

#include <string>

#include "sim/config/study.h"

namespace shardsim {

std::string scenario_parts(const Study& study);

}  // namespace shardsim
