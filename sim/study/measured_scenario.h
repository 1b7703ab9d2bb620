// The scenario that a measured row states, as text, with what was assumed where the row is silent.
// What decides is the row's own columns and the defaults of its framework at its date; never the row's
// id or its measured figure. A row without a date takes the newest ones, as a scenario that names no
// software does.
//
//   torchtitan   fully_shard on each block, complex RoPE, repeated K and V, RMSNorm written out until
//                2025-07 (PyTorch has one kernel for it from August on), foreach AdamW until 2025-02 and fused from then on,
//                clip 1.0, loss compiled with the blocks from 2025-03. Before 2025-07-28 the last block
//                stays unsharded and embedding, norm and head are the root's; after, the embedding has
//                a group of its own and (norm, head) stays unsharded. cuDNN attention on Hopper from
//                2025-03, FlashAttention-2 before
//   Composer     FSDP1, GPT-2's block with biases and learned positions, Triton attention, AdamW tensor
//                by tensor, clip 1.0; fp32 gathers under autocast (2022), bf16 gathers and reductions
//                (until 2023-10), bf16 gathers with fp32 reductions
//                and fused cross-entropy on 16-bit logits from 2023-03 on, torch's before
//   fms-fsdp     FSDP1, bf16 gathers and reductions, rotate_half RoPE, FlashAttention-2
//   others       FSDP1, fully_shard, DDP or DeepSpeed by name, PyTorch's defaults
// A row that has of its model the name alone, one of `shardsim list models`, is of that model.
// Worked example: ttG-001 gives strategy fsdp2, seq_len 8192, micro_batch 1, selective_op, foreach
// AdamW, reshard_after_forward true with the last block kept, on 8 h100-sxm5-96gb.
#pragma once

#include <string>
#include <vector>

#include "sim/study/measured_row.h"

namespace shardsim {

struct ExpressedRow {
  std::string left_out;  // why it is none, or empty
  std::string yaml;
  std::vector<std::string> assumed;
  // A last micro-batch that is not full counts for this part of one; 1: all are full.
  double last_micro_batch = 1;
};

ExpressedRow express(const MeasuredRow& row);

}  // namespace shardsim
