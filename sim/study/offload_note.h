// What an offloaded optimizer costs a step beyond what it must, and the way out: one pass in place of
// an operator at a time, and more threads than the one that torchrun leaves a rank.
// Worked number: GPT-2 XL on 8 V100 (tests/cases/offload_v100.yaml) takes 2.60 s a step, 2.18 of them
// AdamW's loop on the CPU, and 1.13 s with the fused one: there the memory binds, not the thread.
#pragma once

#include <string>

#include "sim/plan/scenario.h"
#include "sim/report/step_report.h"

namespace shardsim {

// Empty where the host works less than a tenth of the step, or nothing is to be had. Plays the scenario
// again, three times at most.
std::string offload_note(const Scenario& scenario, const StepReport& report);

}  // namespace shardsim
