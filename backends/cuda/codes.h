// Return codes of CUDA, cuBLASLt and NCCL, each checked at its call: it becomes a Stopped with the
// call's name, the library's own text and the number.
// Worked example: call("cudaEventRecord", cudaEventRecord(e, s)) throws
//   "cudaEventRecord: an illegal memory access was encountered (cudaErrorIllegalAddress, 700)".
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

namespace shardsim {

void call(const char* function, cudaError_t code);
void call(const char* function, cublasStatus_t code);
// Of a query: false for cudaErrorNotReady, which is also forgotten: the next kernel's launch would
// report it.
bool ready(const char* function, cudaError_t code);

// NCCL's non-blocking calls return ncclInProgress, which is none of an error. `comm` may be null:
// it has the text of what went wrong.
void call(const char* function, ncclResult_t code, ncclComm_t comm);

}  // namespace shardsim
