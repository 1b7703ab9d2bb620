// The price of a schedule: one duration per work, and what a host call costs. This is the seam
// between what runs and how long it takes: a cost model fills the table, the machine only reads it,
// and a test may write one by hand.
#pragma once

#include <vector>

#include "sim/base/units.h"

namespace shardsim {

struct CostTable {
  std::vector<Time> work;  // by WorkId
  Time host_call;          // charged after each host call's own start has been computed
  Time device_malloc;      // the same for a cudaMalloc, used by memory level blocks
};

}  // namespace shardsim
