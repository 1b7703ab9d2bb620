#include "backends/cuda/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "backends/cuda/codes.h"

namespace shardsim {

namespace {

std::string cuda_version(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

}  // namespace

Environment cuda_environment() {
  int gpu = 0, driver = 0, runtime = 0, nccl = 0;
  cudaDeviceProp properties{};
  call("cudaGetDevice", cudaGetDevice(&gpu));
  call("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, gpu));
  call("cudaDriverGetVersion", cudaDriverGetVersion(&driver));
  call("cudaRuntimeGetVersion", cudaRuntimeGetVersion(&runtime));
  call("ncclGetVersion", ncclGetVersion(&nccl), nullptr);
  Environment out{
      {"backend", "cuda"},
      {"gpu", properties.name},
      {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
      {"sms", std::to_string(properties.multiProcessorCount)},
      {"memory", fmt::format("{} bytes", properties.totalGlobalMem)},
      {"driver", cuda_version(driver)},
      {"runtime", cuda_version(runtime)},
      {"cublaslt", std::to_string(cublasLtGetVersion())},
      {"nccl", fmt::format("{}.{}.{}", nccl / 10000, nccl / 100 % 100, nccl % 100)},
  };
  const auto fixed = static_cast<std::ptrdiff_t>(out.size());
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string_view text = *v;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    for (const std::string_view prefix : {"NCCL_", "CUDA_", "CUBLAS"})
      if (text.substr(0, prefix.size()) == prefix)
        out.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::sort(out.begin() + fixed, out.end());
  return out;
}

}  // namespace shardsim
