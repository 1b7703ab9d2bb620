// The CUDA backend is a module of its own, libshardsim_cuda.so, which the program loads where a replay
// asks for it: CUDA's libraries take 0.1 s and 220 MB to load, which no other command has to pay, and the
// program runs where they are not. The module takes what else it needs of shardsim from the program.
#pragma once

#include "backends/cuda/replay.h"

namespace shardsim {

// What the module has under the name kCudaModuleEntry.
struct CudaModule {
  void (*require_gpu)();
  std::unique_ptr<Device> (*cuda_device)(Meeting& meeting, const CudaOptions& options);
};
inline constexpr const char* kCudaModuleEntry = "shardsim_cuda_module";

}  // namespace shardsim
