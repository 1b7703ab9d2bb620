// A scenario's ledger: its steps are played, at memory level live and without what may follow them
// (evaluation, state dicts), and set beside the account on paper (sim/report/ledger.h).
#pragma once

#include "sim/plan/scenario.h"
#include "sim/report/ledger.h"

namespace shardsim {

// The scenario as it is accounted for: at the level live, steps only, as few as make them steady.
Scenario ledger_scenario(Scenario scenario);
Ledger scenario_ledger(Scenario scenario);

}  // namespace shardsim
