// The CUDA backend as the rest of the program sees it: no header of CUDA's is needed for this one.
//
// One process plays one rank on one GPU: streams with their priorities, events, cuBLASLt products,
// kernels of the scheduled bytes and FLOPs (kernels.h), NCCL collectives. With `single_gpu` one process plays rank 0 of a
// world of any size alone: a collective is then a wait on its stream for as long as the cost model
// says, and the environment says so.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/replay/device.h"
#include "backends/replay/meeting.h"

namespace shardsim {

struct CudaOptions {
  std::optional<int> local_rank;  // which of the node's GPUs; none: rank modulo their number
  Limits limits;
  Bytes memory_limit = 0;  // of what is reserved; 0: what the GPU has
  bool single_gpu = false;
  int64_t single_gpu_world = 1;
  std::function<Time(const Work&)> collective_time;  // single_gpu: what a collective takes
  std::vector<std::string> groups;                   // by GroupId, for NVTX ranges
};

// Throws NoDevice where there is no GPU, or the build has no CUDA.
void require_gpu();
// `meeting` outlives the device; with single_gpu it is one of a single rank. Throws as
// require_gpu() does, and Error where the rank asks for a GPU that is not there.
std::unique_ptr<Device> cuda_device(Meeting& meeting, const CudaOptions& options);

}  // namespace shardsim
