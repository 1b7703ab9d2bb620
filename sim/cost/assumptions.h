// What a scenario leaves open and what decides a price as much as the hardware does, with what stands
// for it: which attention kernels run, how old the software is, which power class the GPU is of.
// price() uses it, and every report shows it.
//
//   attention   FlashAttention-2 on Ampere and by software before 2025-03; cuDNN on Hopper and newer
//               from 2025-03 on (torchtitan asks for it first since then; its rows of that time fit
//               it, the earlier ones do not). What the scenario's other keys decide goes first:
//               model.sdpa, and fp32, which runs memory-efficient attention. cuDNN's kernels that are
//               faster than FlashAttention-2 are for Hopper and newer: on Ampere it counts as that (assumed)
//   software    of 2022 (torch 1.12, 1.13) and of 2023 (2.0, 2.1): products at gemm_2022 and gemm_2023
//               of the rate; newer or not stated: as calibrated
// Worked number: software "2022-12" on an A100 multiplies gemm_efficiency by gemm_2022.
#pragma once

#include <string>
#include <vector>

#include "sim/cluster/calibration.h"
#include "sim/plan/scenario.h"

namespace shardsim {

AttentionBackend attention_backend(const Scenario& scenario);
const char* name_of(AttentionBackend backend);

// The constants that the scenario gives, or else its GPU's.
Calibration own_calibration(const Scenario& scenario);
// Those with the scenario's choices in them: not to be given back to a scenario, which would choose twice.
Calibration effective_calibration(const Scenario& scenario);

// One thing that a price hangs on: {"attention", "cuDNN", assumed}.
struct PricedWith {
  std::string what, value;
  bool assumed = false;  // the scenario does not say
};
// None with flat costs.
std::vector<PricedWith> priced_with(const Scenario& scenario);

// What of it is assumed, in sentences.
std::vector<std::string> assumptions(const Scenario& scenario);

}  // namespace shardsim
