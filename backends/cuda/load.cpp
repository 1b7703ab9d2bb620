#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "backends/cuda/module.h"

namespace shardsim {

namespace {

// Beside the program, or where it is installed to.
std::filesystem::path module_path() {
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path beside = folder / "libshardsim_cuda.so";
  return std::filesystem::exists(beside, error) ? beside
                                                : folder / SHARDSIM_MODULES / "libshardsim_cuda.so";
}

const CudaModule& loaded() {
  static const CudaModule* const entry = [] {
    // Never closed: its threads and the devices that it made live as long as the program.
    void* const module = ::dlopen(module_path().c_str(), RTLD_NOW | RTLD_LOCAL);
    const void* const found = module == nullptr ? nullptr : ::dlsym(module, kCudaModuleEntry);
    if (found == nullptr)
      throw NoDevice(fmt::format("the CUDA backend cannot be loaded: {}", ::dlerror()), {},
                     "CUDA's libraries and NCCL must be where the loader looks: LD_LIBRARY_PATH");
    return static_cast<const CudaModule*>(found);
  }();
  return *entry;
}

}  // namespace

void require_gpu() { loaded().require_gpu(); }
std::unique_ptr<Device> cuda_device(Meeting& meeting, const CudaOptions& options) {
  return loaded().cuda_device(meeting, options);
}

}  // namespace shardsim
