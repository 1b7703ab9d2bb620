// DeepSpeed's partitions (deepspeed/runtime/zero: stage_1_and_2.py, partition_parameters.py,
// partitioned_param_coordinator.py), as plain functions of sizes.
//
// Stages 1 and 2: the trainable parameters stand one behind the other in one flat buffer, padded at
// its end to a multiple of 2 N; a rank owns one of N equal parts of it, wherever a part begins.
// Stage 3: each parameter is cut into N parts of ceil(numel / N) elements; a parameter that is small
// enough persists: it is gathered again behind every step and stays whole until the next.
// Worked number: 1003 elements on 4 ranks are a buffer of 1008, parts of 252 and 5 elements of padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/model/model.h"
#include "sim/plan/plan.h"
#include "sim/plan/scenario.h"

namespace shardsim {

// build_plan's part for strategies zero1, zero2 and zero3. Stages 1 and 2: one group, with the buffer's
// length in `flat`. Stage 3: one group for each module that owns parameters, and a state for each
// module, whose hooks fetch.
Plan build_plan_zero(const Model& model, const Training& training);

// Stage 3: the parameters that a module's hooks gather and release: its own, and those of the
// ParameterLists right below it, which have no forward: a use inside the module's makes them external
// parameters of it (register_external_parameter, ZeROOrderedDict.__getitem__).
std::vector<ParamId> fetched_with(const Model& model, ModuleId m);

struct ZeroFlat {
  std::vector<uint32_t> order;   // places in the buffer: which parameter stands there
  std::vector<int64_t> offsets;  // by parameter
  int64_t length = 0;            // with the padding
  int64_t partition = 0;         // of one rank
  int64_t padding = 0;
};
ZeroFlat zero_flat(std::span<const int64_t> numels, int64_t ranks, bool round_robin);

// _round_robin_reorder: parameters i, i + N, i + 2 N, ... for i = 0, 1, ...
std::vector<uint32_t> round_robin_order(uint32_t count, int64_t ranks);

// Stages 1 and 2: the bucket that fills with gradients as they become ready.
struct ReduceBucket {
  int64_t limit = 0;     // reduce_bucket_size
  int64_t elements = 0;  // so far
  // Whether what is in the bucket is reduced before a gradient of this size comes in.
  bool full_for(int64_t numel) const { return elements + numel > limit; }
  // A gradient that is larger than the bucket is reduced by itself, where it is.
  bool too_large(int64_t numel) const { return numel > limit; }
};

// Stage 3: which of the parameters, in registration order, persist (mark_persistent_parameters).
std::vector<bool> persistent_parameters(std::span<const int64_t> numels, int64_t param_threshold,
                                        int64_t model_threshold);

// Stage 3: how many of the next parameters of the trace are fetched ahead; those that are there
// already count 0 elements. The last may overshoot.
size_t prefetched(std::span<const int64_t> next, int64_t bucket, int64_t max_live,
                  int64_t available);

}  // namespace shardsim
