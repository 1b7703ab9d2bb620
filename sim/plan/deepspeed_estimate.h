// What DeepSpeed's own estimators say a model needs (estimate_zero2_model_states_mem_needs of
// deepspeed/runtime/zero/stage_1_and_2.py, estimate_zero3_... of stage3.py; DeepSpeed 0.19), byte for
// byte. They count states only: 2 bytes of parameters and 18 of gradients, fp32 gradients, master
// and moments a parameter (ZeRO-2 and 3 without offload), and what the host stages, times 1.5. A
// largest layer is the most parameters that one module owns itself.
// Worked number: ZeRO-2 of 7e9 parameters on one node of 8 GPUs is 29,750,000,000 B a GPU and 336e9 B
// of host memory; ZeRO-3 with a largest layer of 5e8 is 17,750,000,000 B and 24e9 B.
#pragma once

#include <string_view>
#include <vector>

#include "sim/base/units.h"
#include "sim/model/model.h"

namespace shardsim {

struct DeepSpeedSetup {
  int64_t params = 0;
  int64_t largest_layer = 0;  // 0: not known, and nothing is said of stage 3
  int64_t gpus_per_node = 1;
  int64_t nodes = 1;
};

struct DeepSpeedEstimate {
  std::string_view stage, offload;  // "zero3", "optimizer and parameters"
  bool zero_init = false;           // stage 3: parameters are sharded as they are made
  Bytes gpu = 0, cpu = 0;           // of a GPU, of a node's host
};

// Stage 2 with the optimizer offloaded and without; stage 3 with both offloaded, the optimizer, and
// without, each made sharded (zero_init) or not. In the order in which DeepSpeed prints them.
std::vector<DeepSpeedEstimate> deepspeed_estimates(const DeepSpeedSetup& setup);

// The most parameters that a module owns itself, tied ones counted in each (model_to_params).
int64_t largest_layer(const Model& model);

}  // namespace shardsim
