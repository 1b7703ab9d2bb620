// How many launches a foreach kernel over many tensors takes: it works on chunks of 65,536 elements
// and takes up to a fixed number of chunks a launch, in 2.15 between 2209 and 2429 (kernel-sequence
// 6 and 9: seen on both sides; 2300 is fitted in between).
// Worked number: AdamW on 1.0e9 local elements is 7 launches a kernel, 56 in all.
#pragma once

#include <cstdint>

#include "sim/base/units.h"

namespace shardsim {

inline constexpr int64_t kChunkElements = 65'536;
inline constexpr int64_t kChunksPerLaunch = 2300;

constexpr int64_t chunks_of(int64_t elements) { return ceil_div(elements, kChunkElements); }
constexpr int64_t launches_of(int64_t chunks) { return ceil_div(chunks, kChunksPerLaunch); }

}  // namespace shardsim
