// named_parameters() of an FSDP1 model as rank 0 sees it after a run: flat parameters, or the
// original ones with what this rank holds of each.
// Worked number: a unit layers.0 of two 1024 x 1024 linears on 8 ranks is "layers.0._flat_param"
// [262144]; with use_orig_params "layers.0.0.weight" [262144] and "layers.0.1.weight" [0].
#pragma once

#include "sim/plan/plan.h"
#include "sim/study/run_record.h"

namespace shardsim {

LocalShapes fsdp1_shapes(const Model& model, const Plan& plan, const Training& training);

}  // namespace shardsim
