// The links of one system from a table of nccl-tests: columns gpu, system, nodes, gpus, collective, bytes
// and time_us (or algbw_GBs, busbw_GBs). By least squares of the relative error,
//   t = steps x alpha + share x S / (1000 B)
// steps n-1 and share (n-1)/n for an all-gather or a reduce-scatter, twice both for an all-reduce
// (sim/cluster/cluster.h). S are the whole bytes. Which link a row is of: one node intra; nodes with one
// GPU each rail; the most GPUs a node that the system's rows have inter, fewer are left out.
// All-gathers and reduce-scatters are used, and where a link has none all-reduces, which NCCL does not
// run as rings everywhere. Messages below 32 MiB are left out: NCCL moves them by other protocols.
// Worked number, by hand: an all-gather over 8 ranks of 354,000,000 bytes takes 7 alpha + 875 us at
// 354 GB/s, 910 us with alpha 5; one of 708,000,000 bytes 1,785 us; from both alpha 5 and 354 GB/s.
#pragma once

#include <string>

#include "sim/config/calibration.h"
#include "sim/config/csv.h"

namespace shardsim {

inline constexpr int64_t kLeastMessage = int64_t{32} << 20;

// system: empty: the only one of the table. The result has links and data alone.
CalibrationFile fit_links(const CsvTable& table, const std::string& system);

}  // namespace shardsim
