// What a process that compiles for the first time calls on the device besides compiling: constants that
// Inductor's pattern matcher makes (26 of 4 and 2 bytes, each copied to the device, waited for and
// copied there), and small tensors that are read back: five with a compiled loss, one with a model as
// one graph (seen once). In every recording with compiled parts, at the first call of the first part;
// once in a process.
// Worked number: 26 host waits, 52 copies.
#pragma once

#include "sim/schedule/host.h"

namespace shardsim {

void first_compilation(Host& host);
void first_model_compilation(Host& host);
void first_loss_compilation(Host& host);
// What Inductor calls before a pointwise kernel's first call where it times its two candidates
// (triton_heuristics.py, benchmarker): of each 106 calls, 105 of them behind a buffer of the L2 cache's size
// that is cleared; what the kernel writes over is copied for each.
void time_candidates(Host& host, const Work& kernel, Bytes overwritten);

}  // namespace shardsim
