// The scenario that a recording's program describes: its `case`, `environment` and `torch`, and
// nothing else of the file. A key or value that this build has no way to express makes it skipped,
// with that key and value as the reason. Sizes are bounded as a scenario's are (sim/config), each by
// itself and together.
#pragma once

#include <string>

#include "sim/plan/scenario.h"
#include "sim/study/recording.h"

namespace shardsim {

struct RecordedProgram {
  std::string skipped;  // "clip_grad = true"; empty: accepted
  Scenario scenario;
  size_t most_shapes = SIZE_MAX;  // with more parameters the recorder keeps some shapes only
  int64_t steps = 2;
};

RecordedProgram recorded_program(const nlohmann::json& program, const nlohmann::json& environment,
                                 const std::string& torch);

}  // namespace shardsim
