// What a sweep keeps of one scenario: figures, or why there are none.
//
// Memory is what the scenario's memory level knows: peak_bytes is reserved bytes at level blocks, else
// allocated ones. Cost is of 10^9 tokens, the budget's figures of training.token_budget, both as
// report/planning.h has them.
// Worked number: 8 GPUs at 2 an hour, 7,851 tokens a second each: 10^9 tokens take 15,921 s, so 70.76.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "sim/base/error.h"
#include "sim/plan/scenario.h"
#include "sim/study/simulate.h"

namespace shardsim {

struct SweepRow {
  std::string key;    // Study::key, shortened (sweep_store.h)
  std::string error;  // empty: the figures hold
  double step_time_s = 0, tokens_per_s = 0, tokens_per_s_per_gpu = 0, mfu = 0;
  double exposed_comm_s = 0, overlap_fraction = 0;
  Bytes peak_bytes = 0, headroom_bytes = 0;
  bool fits = false;
  int64_t gpus = 0, params = 0;
  std::optional<double> cost;  // no price is stated: none
  // No budget is stated: none.
  std::optional<double> budget_hours, budget_gpu_hours, budget_cost;

  bool operator==(const SweepRow&) const = default;
};

// `s` is memory that is used again. Where the run ends out of memory the row has no step time.
SweepRow sweep_row(const Scenario& scenario, Simulation& s);

// The same of the scenario that `make` gives, whatever that and the simulation throw: a row with `say`
// of the Error, or with what else there is to say.
SweepRow row_or_error(const std::function<Scenario()>& make, Simulation& s,
                      const std::function<std::string(const Error&)>& say);

}  // namespace shardsim
