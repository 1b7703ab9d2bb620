// Compares what the simulator does with what real PyTorch was recorded doing, exactly as
// spec/conform.md defines the checks. A check that a recording does not hold is null and never
// fails.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/study/recording.h"
#include "sim/study/run_record.h"

namespace shardsim {

struct Checks {
  std::optional<bool> shapes, order, streams, waits, host_waits, oom, allocator;
  std::optional<double> timeline_error, allocated_error, peak_error, active_error, reserved_error;
  std::vector<std::string> differences;  // the first of each failing check
};

struct Conformance {
  std::string file;
  std::string skipped;   // the reason
  std::string error;     // why the file cannot be read; both empty: compared
  bool foreign = false;  // with error: JSON of another kind, with neither a program nor a script
  bool compared() const { return skipped.empty() && error.empty(); }
  Checks checks;
};

Conformance conform(const Recording& recording, bool verbose);
// A file: a recorded program, or a script on the caching allocator. One that cannot be read is a
// result too.
Conformance conform_file(const std::string& path, bool verbose);

// The parts, for tests.
RunRecord simulate_recording(const Scenario& scenario);
// bytes: the columns of memory too.
Checks compare(const RunRecord& seen, const RunRecord& simulated, bool verbose, bool bytes = true);

}  // namespace shardsim
