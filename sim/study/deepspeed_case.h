// The `deepspeed` key of run_fsdp1_ddp_zero.py's programs: DeepSpeed's own configuration.
#pragma once

#include "sim/study/case_reader.h"

namespace shardsim {

// The strategy that its zero_optimization.stage is.
Strategy deepspeed_strategy(const nlohmann::json& config);

// To be read once grad_accum and storage are known.
void read_deepspeed(const nlohmann::json& config, Training& training);

}  // namespace shardsim
