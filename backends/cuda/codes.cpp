#include "backends/cuda/codes.h"

#include <fmt/format.h>

#include "backends/replay/device.h"

namespace shardsim {

void call(const char* function, cudaError_t code) {
  if (code == cudaSuccess) return;
  throw Stopped(
      code == cudaErrorMemoryAllocation ? Stopped::Why::out_of_memory : Stopped::Why::fault,
      fmt::format("{}: {} ({}, {})", function, cudaGetErrorString(code), cudaGetErrorName(code),
                  static_cast<int>(code)));
}

bool ready(const char* function, cudaError_t code) {
  if (code == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  call(function, code);
  return true;
}

void call(const char* function, cublasStatus_t code) {
  if (code == CUBLAS_STATUS_SUCCESS) return;
  throw Stopped(
      Stopped::Why::fault,
      fmt::format("{}: {} ({})", function, cublasLtGetStatusString(code), static_cast<int>(code)));
}

void call(const char* function, ncclResult_t code, ncclComm_t comm) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  std::string text =
      fmt::format("{}: {} ({})", function, ncclGetErrorString(code), static_cast<int>(code));
  if (const char* const more = ncclGetLastError(comm); more != nullptr && *more != '\0')
    text += fmt::format(": {}", more);
  throw Stopped(code == ncclRemoteError ? Stopped::Why::other_rank : Stopped::Why::fault, text);
}

}  // namespace shardsim
