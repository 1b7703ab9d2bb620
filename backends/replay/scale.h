// A schedule with smaller sizes, for devices that are slower than those it was written for: bytes of
// buffers and works, and FLOPs, divided by one factor that every report of the run states. Order,
// streams, events, counts and communicators stay as they are.
//
// A collective keeps whole elements for every rank: a part of less than 16 bytes stays as it was.
// Worked number, scale 1024, 4 ranks: an all-gather of 436,224,000 bytes has parts of 109,056,000,
// scaled 106,500, of which 16 divide 106,496: it moves 425,984 bytes.
#pragma once

#include "sim/schedule/schedule.h"

namespace shardsim {

// scale >= 1; 1 changes nothing. `world`: ranks of the run.
Schedule scaled(const Schedule& schedule, int64_t scale, int64_t world);

// The least power of two with which the last step moves at most `bytes` and computes at most `flops`
// on one rank.
int64_t scale_for(const Schedule& schedule, Bytes bytes, int64_t flops);

}  // namespace shardsim
