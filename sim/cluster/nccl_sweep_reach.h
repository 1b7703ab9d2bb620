// How far a user's nccl-tests sweeps reach: above its largest message a time is in proportion to bytes.
// Worked example: a sweep of 1 KiB to 1 MiB prices a gather of 436 MB as 416 of its last point.
#pragma once

#include <optional>
#include <string_view>

#include "sim/cluster/nccl_table.h"

namespace shardsim {

// The largest message that NcclTable::us rests on; none where that has no answer.
std::optional<Bytes> largest_swept(const NcclTable& table, std::string_view collective,
                                   int64_t ranks, int64_t nodes);

}  // namespace shardsim
