// torch.distributed.fsdp.wrap.size_based_auto_wrap_policy, run by _recursive_wrap: the modules that
// become units, children before parents, never the root.
// Worked number: root(own 5){blk(10){A 60, B 50}, C 120} with 100 wraps blk (120 elements) and C.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/model.h"

namespace shardsim {

std::vector<ModuleId> size_based_auto_wrap(const Model& model, int64_t min_num_params);

}  // namespace shardsim
