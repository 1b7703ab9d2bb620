// What a scenario says of attention, for its price: whether scaled_dot_product_attention is called,
// whose kernels are chosen, and in which type.
// Worked example: T5 writes its attention out; DDP with autocast bf16 computes it in bf16.
#pragma once

#include "sim/plan/plan.h"
#include "sim/plan/scenario.h"

namespace shardsim {

// Otherwise there is no attention, or the model writes it out.
inline bool calls_sdpa(const Architecture& a) {
  return takes_tokens(a.family) && a.family != Family::t5 && a.attention == AttentionForm::sdpa;
}

// Of products and attention: autocast's, where it is on.
inline DType product_dtype(const Precision& p) { return p.autocast.value_or(compute_dtype(p)); }

}  // namespace shardsim
