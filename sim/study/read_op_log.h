// Op logs (sim/report/op_log.h) from files and from scenarios.
//
// A file is read without tolerance: what is no JSON, another schema_version, an unknown or missing key,
// a value of another kind or out of its range, a stream that the log does not name and a launch that is
// there twice is an Error with file, line, column and key. A log has at least one op.
// Worked example: of {"ops": [..., {"launch": 8, "stream": 9, ...}]} with two streams it says
//   log.json:21:40: error: ops[1].stream: expected a whole number from 0 to 1, got '9'
#pragma once

#include <string>
#include <string_view>

#include "sim/plan/scenario.h"
#include "sim/report/op_log.h"
#include "sim/study/simulate.h"

namespace shardsim {

OpLog parse_op_log(std::string_view text, const std::string& file);
OpLog read_op_log(const std::string& path);

// The prediction.
OpLog op_log_of(const Scenario& scenario, const Simulation& simulation);

// What `compare` takes: an op log where the file is JSON, else a scenario, which is simulated.
OpLog load_or_simulate_ops(const std::string& path);

}  // namespace shardsim
