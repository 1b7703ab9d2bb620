// A scenario to start from: a model, a GPU and a number of nodes, and for the rest what a framework does
// where nobody says otherwise, each key with where that is from.
//
// Sources (read in November 2026):
//   torchtitan   torchtitan/config/job_config.py (mixed_precision_param bfloat16, mixed_precision_reduce
//                float32, max_norm 1.0, AdamW fused, fsdp_reshard_after_forward default, no compile),
//                models/llama3/infra/parallelize.py (which modules fully_shard wraps) and
//                models/llama3/train_configs/llama3_8b.py (1 sequence of 8192, selective checkpoints of
//                operators)
//   accelerate   1.15: commands/config/cluster.py (what `accelerate config` proposes: version 2, reshard
//                after forward, transformer-based wrap, no checkpoints), utils/dataclasses.py
//                (FullyShardedDataParallelPlugin), utils/fsdp_utils.py (fsdp2_prepare_model)
// Worked example: llama-3-8b on one node of h100-sxm5-80gb, style torchtitan, is
// scenarios/llama3-8b-fsdp2-h100x8.yaml with gradients clipped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardsim {

struct StarterRequest {
  std::string model;  // a name of `shardsim list models`, or the path of a Hugging Face config.json
  std::string gpu;
  std::string style = "torchtitan";
  int64_t nodes = 1;
  int64_t gpus_per_node = 0;  // 0: as systems with this GPU have
  std::string file;           // the scenario's; empty: one in the current folder
};

// torchtitan, accelerate, accelerate-fsdp1.
const std::vector<std::string>& starter_styles();

// The text, which is a scenario that can be played. Throws Error at a model, GPU or style that is not
// known, and where the three make no scenario.
std::string starter_scenario(const StarterRequest& request);

}  // namespace shardsim
