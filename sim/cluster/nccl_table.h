// A user's own nccl-tests sweeps: times by collective, ranks and bytes, log-log interpolated. Above the
// largest size time grows with bytes, below the smallest it stays. A number of ranks that was not swept
// follows from three or more others on as many nodes. sim/config/nccl_tests.h reads them.
// Worked number: 100 us at 1 MiB and 400 us at 16 MiB give 200 us at 4 MiB.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/units.h"

namespace shardsim {

struct NcclSweep {
  struct Point {
    Bytes bytes = 0;  // of the whole tensor, as in the column size
    double us = 0;
  };
  std::string collective;  // "all_gather", "all_reduce", ...
  int64_t ranks = 0;
  int64_t nodes = 0;          // 0: the file does not say
  std::vector<Point> points;  // ascending

  double us(Bytes bytes) const;
};

struct NcclTable {
  std::string file;
  std::vector<NcclSweep> sweeps;

  // None: no sweep of that collective over so many ranks, on so many nodes where it says. Of several
  // the last.
  std::optional<double> us(std::string_view collective, int64_t ranks, int64_t nodes,
                           Bytes bytes) const;
  // "all_gather over 8 ranks, all_reduce over 16 ranks on 2 nodes", for messages.
  std::string contents() const;
};

}  // namespace shardsim
