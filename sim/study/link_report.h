// What the collectives of the reported step are and what they use of the links: NCCL's choice for each
// row of the report, and for each kind of link the part of the step in which it is full, as one GPU
// sees it. With a user's sweeps: how much they priced, and a note on what they lack.
//   utilisation of a link = sum over the step's collectives (and, of PCIe, host copies) of
//                           load x time at full speed / step time
// Worked number: 60 gathers of 1,121.2 us that take .962 of NVLink, in a step of 1 s, are 6.5 %.
#pragma once

#include "sim/report/step_report.h"
#include "sim/study/simulate.h"

namespace shardsim {

// Nothing with flat costs, which know no links.
void add_links(const Scenario& scenario, const Simulation& simulation, StepReport& report);

}  // namespace shardsim
