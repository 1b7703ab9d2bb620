// What else of a scenario decides a price, beside sim/cost/assumptions.h: how the model is written, what
// is compiled, whose calls are played, the GPU's power class, what the constants rest on, ranks that are
// not alike. What the scenario's text does not say is marked as assumed.
// Worked example: llama-3-8b alone as the model of an H100 of 700 W gives "norm fused (assumed), rope
// complex (assumed), K and V not expanded (assumed), compile none (assumed), calls of PyTorch 2.15
// (assumed), power class 700 W".
#pragma once

#include "sim/plan/scenario.h"
#include "sim/report/step_report.h"

namespace shardsim {

// Completes report.priced_with, and adds a note where two things count the same twice. Nothing with
// flat costs.
void add_form(const Scenario& scenario, StepReport& report);

}  // namespace shardsim
