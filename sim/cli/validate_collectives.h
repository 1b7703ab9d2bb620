// `shardsim validate` of a table of nccl-tests sweeps (sim/study/validate_collectives.h).
#pragma once

#include "sim/cli/command.h"
#include "sim/config/csv.h"

namespace shardsim {

int report_collectives(const CsvTable& table, const Context& context, bool verbose = false);

}  // namespace shardsim
