// Which model prices collectives, as a scenario's `cost` says; sim/cost/collectives.h plays it.
#pragma once

#include <cstdint>
#include <memory>

#include "sim/cluster/nccl_table.h"

namespace shardsim {

enum class NcclVersion : uint8_t { v2_28, v2_30 };

struct CollectiveModel {
  enum class Backend : uint8_t {
    automatic,  // NCCL's choice, at the time that was measured of it
    ring,       // alpha and bus bandwidth of the link, whatever NCCL would choose
    tuner,      // NCCL's choice, at the time that its tuner expects
    two_level,  // inside each node, and between nodes on all rails at once: what if
    table,      // the user's sweep alone
  };
  Backend backend = Backend::automatic;
  NcclVersion nccl = NcclVersion::v2_28;
  // With `automatic`, the sweeps that it has; other collectives as without it.
  std::shared_ptr<const NcclTable> table;
  bool pad_to_16 = false;  // what if each rank's part were padded to 16 bytes
};

}  // namespace shardsim
