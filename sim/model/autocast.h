// torch.autocast on a stage: the class with the casts that PyTorch's autocast lists make around each
// operator (aten's autocast_mode.h). Matrix products and attention take their inputs in the lower
// type, each parameter as a copy that the context's cache keeps until it ends; norms take theirs in
// fp32; all else takes what comes. A cast of a tensor that has the type already is the tensor itself.
// Worked example, linear(x, weight, bias) with fp32 x and parameters in a bf16 context:
//   copy of bias, copy of weight, cast of x, product; backward: product's, then x, weight, bias cast back
#pragma once

#include <functional>

#include "sim/model/program.h"

namespace shardsim {

// What autocast does with an operator's inputs.
enum class AutocastPolicy : uint8_t { none, lower, fp32 };
AutocastPolicy autocast_policy(OpKind op);

// `type_of` says the type of a parameter, numbered as in Step::param.
StageClass under_autocast(const StageClass& stage, DType to,
                          const std::function<DType(int32_t)>& type_of);

}  // namespace shardsim
