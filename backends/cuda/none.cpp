#include "backends/cuda/replay.h"

namespace shardsim {

namespace {

[[noreturn]] void refuse() {
  throw NoDevice("this build has no CUDA backend", {},
                 "where nvcc and NCCL are: cmake --preset cuda && cmake --build --preset cuda");
}

}  // namespace

void require_gpu() { refuse(); }
std::unique_ptr<Device> cuda_device(Meeting&, const CudaOptions&) { refuse(); }

}  // namespace shardsim
