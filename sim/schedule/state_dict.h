// State dicts of sharded parameters: get_model_state_dict and get_optimizer_state_dict with
// full_state_dict (torch/distributed/_state_dict_utils.py, _gather_state_dict). Each tensor is gathered
// whole on the process group's own stream, which the compute stream waits for; with cpu_offload it is
// copied to the host, which waits, and freed before the next.
// Worked example: a (2048, 512) fp32 parameter on 8 ranks is one all-gather of 4,194,304 B.
#pragma once

#include <vector>

#include "sim/schedule/host.h"

namespace shardsim {

struct StateTensor {
  Bytes local = 0;        // this rank's, padded
  Bytes whole = 0;        // as it is gathered; 0: nothing shards it
  Bytes numel_bytes = 0;  // without padding
  CommId comm;
  GroupId group;
  bool on_host = false;    // it is brought to the device first
  bool other_dim = false;  // sharded on another dimension than 0: put together by a cat
};

// Gathers them in order; without cpu_offload the whole tensors stay.
void full_state_dict(Host& host, const std::vector<StateTensor>& tensors, bool cpu_offload);

}  // namespace shardsim
