// Local shapes under DeepSpeed's stage 3, as named_parameters() shows them behind a step: whole for a
// parameter that persists, [0] for one that is partitioned.
#pragma once

#include "sim/model/model.h"
#include "sim/plan/scenario.h"
#include "sim/study/run_record.h"

namespace shardsim {

LocalShapes zero3_shapes(const Model& model, const Training& training);

}  // namespace shardsim
