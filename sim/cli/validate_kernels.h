// `shardsim validate` of a table of kernel benchmarks (sim/study/validate_kernels.h).
#pragma once

#include "sim/cli/command.h"
#include "sim/config/csv.h"

namespace shardsim {

int report_kernels(const CsvTable& table, const Context& context);

}  // namespace shardsim
