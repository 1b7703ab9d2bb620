// The `cluster` map of a scenario: a system of the catalogue, or GPUs and links written out.
//   {preset: dgx-h100, nodes: 2}
//   {gpu: h100-sxm5-80gb, gpus_per_node: 8, nodes: 1, links: {intra: {alpha: 5 us, bus: 354 GB/s}}}
// `gpu` may also be a map: a GPU of the catalogue under `preset` with some figures replaced, or all
// figures written out.
#pragma once

#include "sim/cluster/cluster.h"
#include "sim/config/reader.h"

namespace shardsim {

inline constexpr int64_t kMostRanks = 1 << 20;

Cluster read_cluster(const Value& value);

}  // namespace shardsim
