// Upper bounds of what a scenario makes anything downstream compute, from its sizes alone. Whole
// numbers are bytes, FLOPs and picoseconds in int64 (9.2e18), so a scenario that could reach 2^62 of
// any of them is refused here, before a schedule is laid out.
//   parameters     exact, or at most a few bias terms above
//   activation     tokens x the widest tensors of a block x layers, 64 bytes an element
//   FLOPs          8 x parameters x tokens + 16 x layers x tokens x seq x heads x head_dim (forward,
//                  backward, recomputation)
//   instructions   blocks x passes x steps
//   time           all kernels, products and collectives one after another, at a quarter of the
//                  GPU's rates and of the slowest link's
// Worked number: Llama-3-8B, seq 8192, micro_batch 1 is 5.3e14 + 5.5e14 FLOPs: accepted with a wide
// margin. seq 2^24 is refused.
#pragma once

#include <string>

#include "sim/plan/scenario.h"

namespace shardsim {

// Why the scenario is too large, or nothing.
std::string too_large(const Scenario& scenario);

}  // namespace shardsim
