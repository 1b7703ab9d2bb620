// libcublasLt: layouts that remember their sizes, and a product that takes time on its stream.
#include <cublasLt.h>

#include <cstring>

#include "tests/standin/machine.h"

using standin::Machine;
using Lock = std::unique_lock<std::mutex>;

namespace {

struct Layout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int32_t batch = 1;
  int64_t bytes() const {
    return static_cast<int64_t>(rows * columns) * batch * (type == CUDA_R_32F ? 4 : 2);
  }
};
const Layout& layout(cublasLtMatrixLayout_t l) { return *reinterpret_cast<const Layout*>(l); }

int begins(const char* call) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  return m.begin(call);
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "an injected fault"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int it = 0;
  *handle = reinterpret_cast<cublasLtHandle_t>(&it);
  return static_cast<cublasStatus_t>(begins("cublasLtCreate"));
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t) {
  *out = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete reinterpret_cast<Layout*>(l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, size_t) {
  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    std::memcpy(&reinterpret_cast<Layout*>(l)->batch, value, sizeof(int32_t));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t,
                                        cudaDataType_t) {
  *out = reinterpret_cast<cublasLtMatmulDesc_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete reinterpret_cast<int*>(d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
                                              const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = reinterpret_cast<cublasLtMatmulPreference_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete reinterpret_cast<int*>(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  *found = {};
  *count = 1;
  return static_cast<cublasStatus_t>(begins("cublasLtMatmulAlgoGetHeuristic"));
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void* a,
                              cublasLtMatrixLayout_t la, const void* b, cublasLtMatrixLayout_t lb,
                              const void*, const void*, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t*,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("cublasLtMatmul")) return static_cast<cublasStatus_t>(code);
  const Layout &x = layout(la), &y = layout(lb), &z = layout(ld);
  if (x.rows != y.rows || x.columns != z.rows || y.columns != z.columns || !m.holds(a, x.bytes()) ||
      !m.holds(b, y.bytes()) || !m.holds(d, z.bytes()) ||
      !m.holds(workspace, static_cast<int64_t>(workspace_bytes)))
    return CUBLAS_STATUS_INVALID_VALUE;
  auto* const s = reinterpret_cast<standin::Stream*>(stream);
  standin::Record& r = m.record("cublasLtMatmul", s);
  r.m = static_cast<int>(z.rows);
  r.n = static_cast<int>(z.columns);
  r.k = static_cast<int>(x.rows);
  r.extra = z.batch;
  standin::Operation o;
  o.duration = 2000 + int64_t{2} * r.m * r.n * r.k * z.batch / 1'000'000;
  m.put(s, std::move(o));
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
