// The streams of one rank, by their role in PyTorch's FSDP2. s0 is the default (compute) stream; the
// gather and reduce-scatter streams have high priority, the all-reduce stream the default one.
#pragma once

#include "sim/schedule/instruction.h"

namespace shardsim {

inline constexpr StreamId kCompute = 0;
inline constexpr StreamId kCopyIn = 1;
inline constexpr StreamId kAllGather = 2;
inline constexpr StreamId kReduceScatter = 3;
inline constexpr StreamId kAllReduce = 4;
// Process groups' own, in the order of their first use (Host::internal_stream); in 2.15 only
// asynchronous collectives, gradient clipping and state dicts run there.
inline constexpr StreamId kInternal = 5;
inline constexpr int kStreams = 6;

}  // namespace shardsim
