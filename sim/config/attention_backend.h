// Refuses an attention_backend that cannot run: with attention that the model writes out, beside
// another choice of model.sdpa, on 32-bit types, on a GPU without it, before it was published.
//   fa3     Hopper alone; published 2024-07 (arXiv 2407.08608)
//   cudnn   from Ampere on (PyTorch's check: compute capability 8.0); in PyTorch's sources from 2024-01 on
//   fa2, fa3, cudnn, triton   take bf16 and fp16; fp32 runs memory-efficient attention
// Worked example: attention_backend: fa3 on an A100 is an error at training.attention_backend.
#pragma once

#include "sim/config/reader.h"
#include "sim/plan/scenario.h"

namespace shardsim {

// `training` is that section; the rest of the scenario is read already.
void check_attention_backend(const Value& training, const Scenario& scenario);

}  // namespace shardsim
