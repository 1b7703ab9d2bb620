// The output of nccl-tests itself, text or JSON, as the table that `calibrate` takes links from: system
// "this machine", a row for each size of each sweep.
// Worked example: all_gather_perf -g 8 up to 4 GiB gives its rows of 32 MiB and more to links.intra.
#pragma once

#include <string>

#include "sim/config/csv.h"

namespace shardsim {

// A table (CSV), or what nccl-tests wrote as one, by what the file holds: JSON, or nccl-tests' lines of
// comments. Error as sim/config/csv.h and nccl_tests.h.
CsvTable load_measurements(const std::string& path);

}  // namespace shardsim
