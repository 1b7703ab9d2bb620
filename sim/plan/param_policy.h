// What fully_shard's per-parameter arguments say of each parameter: ignored_params,
// shard_placement_fn (a dimension, or a mesh of its own) and MixedPrecisionPolicy's
// param_dtype_override_fn.
// Worked example: shard_placement {parameter: "*.w", dim: 1} on 8 ranks makes (64, 512) local (64, 64).
#pragma once

#include <vector>

#include "sim/model/model.h"
#include "sim/plan/scenario.h"

namespace shardsim {

struct ParamPolicy {
  bool ignored = false;
  bool second_mesh = false;
  bool keeps_dtype = false;
  int dim = 0;             // that is sharded
  int32_t placement = -1;  // the entry of shard_placement that says so
};

// By parameter; a tied name has the policy of the parameter it shares. Throws Error where a pattern
// matches nothing, and with PyTorch's words where it refuses.
std::vector<ParamPolicy> param_policies(const Model& model, const Training& training);

// A rank's padded elements of a parameter that is sharded on `dim`, and those rank k really holds.
int64_t padded_shard(const Shape& shape, int dim, int64_t ranks);
int64_t local_shard(const Shape& shape, int dim, int64_t ranks, int64_t k);

}  // namespace shardsim
