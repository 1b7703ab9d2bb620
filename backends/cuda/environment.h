// What a measurement was made on: the GPU, the versions of driver, runtime, cuBLASLt and NCCL, and the
// variables that change how NCCL and CUDA behave.
#pragma once

#include "backends/replay/device.h"

namespace shardsim {

// Of the calling thread's current GPU.
Environment cuda_environment();

}  // namespace shardsim
