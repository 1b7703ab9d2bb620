// Reads a sweep of NVIDIA's nccl-tests, as text or as JSON.
//   text    what all_gather_perf and its siblings print: lines of numbers under the line of columns
//           (size, count, type, redop, root, then time, algbw, busbw, #wrong out of place and in
//           place), "# Rank ..." lines, which say how many ranks on how many hosts; the collective by
//           "# Collective test starting: all_gather_perf", and where that is missing by redop, root
//           and busbw/algbw: below 1 a gather or scatter, otherwise an all-reduce; with a root a
//           broadcast or reduce. Several sweeps may stand in one file, each with its own heading.
//   JSON    of `-J FILE`: args[0] is the program, config.devices the processes (their first GPU each),
//           so that ranks are devices x nthreads x ngpus; results[] {size, redop, root, out_of_place
//           {time, alg_bw, bus_bw}, in_place}
// (NVIDIA/nccl-tests src/util.cu, JSON version 3.) Out-of-place times are taken, in-place ones where
// there are no others. Lines of NCCL's own log are passed over.
// Worked example: "1048576 262144 float none -1 26.1 40.2 35.2 0 ..." under 8 ranks is a gather or
// scatter: 35.2/40.2 is 7/8, and without redop a gather.
#pragma once

#include <string>
#include <string_view>

#include "sim/cluster/nccl_table.h"

namespace shardsim {

// `file` is for messages only. Throws Error with the line that cannot be read.
NcclTable parse_nccl_tests(std::string_view text, const std::string& file);
NcclTable load_nccl_tests(const std::string& path);

}  // namespace shardsim
