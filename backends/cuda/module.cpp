#include "backends/cuda/module.h"

extern "C" {
extern const shardsim::CudaModule shardsim_cuda_module;
const shardsim::CudaModule shardsim_cuda_module{shardsim::require_gpu, shardsim::cuda_device};
}
