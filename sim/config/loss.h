// The section `loss` of a scenario's training: how a decoder's loss is computed, and where.
// Worked example: {kind: fused, chunks: 8} makes head and loss of 8 chunks of tokens, their gradients
// with them, inside the model's forward.
#pragma once

#include "sim/config/reader.h"
#include "sim/plan/scenario.h"

namespace shardsim {

// After seq_len, micro_batch and precision have been read.
void read_loss(const Value& value, const Architecture& model, Training& training);

}  // namespace shardsim
