#include "backends/cuda/products.h"

#include <fmt/format.h>

#include "backends/replay/device.h"

namespace shardsim {

namespace {

cudaDataType_t type_of(DType t) {
  switch (t) {
    case DType::fp32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::fp16: return CUDA_R_16F;
    default: break;
  }
  throw Stopped(Stopped::Why::fault,
                fmt::format("products of {} are not played: bf16, fp16 and fp32 are", name_of(t)));
}

cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t batch) {
  cublasLtMatrixLayout_t out = nullptr;
  call("cublasLtMatrixLayoutCreate",
       cublasLtMatrixLayoutCreate(&out, type, static_cast<uint64_t>(rows),
                                  static_cast<uint64_t>(columns), rows));
  if (batch == 1) return out;
  const auto count = static_cast<int32_t>(batch);
  const int64_t stride = rows * columns;
  call("cublasLtMatrixLayoutSetAttribute",
       cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                        sizeof count));
  call("cublasLtMatrixLayoutSetAttribute",
       cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                        sizeof stride));
  return out;
}

}  // namespace

Products::Products() { call("cublasLtCreate", cublasLtCreate(&handle_)); }

Products::~Products() {
  for (auto& [shape, p] : products_) {
    for (cublasLtMatrixLayout_t l : {p.a, p.b, p.c})
      if (l != nullptr) cublasLtMatrixLayoutDestroy(l);
    if (p.operation != nullptr) cublasLtMatmulDescDestroy(p.operation);
  }
  cublasLtDestroy(handle_);
}

Bytes Products::bytes_of_operand(const Work& w, int which) {
  const int64_t elements = which == 0 ? w.m * w.k : which == 1 ? w.k * w.n : w.m * w.n;
  return elements * w.batch * bytes_of(w.dtype);
}

const Products::Product& Products::product(const Shape& s) {
  const auto [at, made] = products_.try_emplace(s);
  Product& p = at->second;
  if (!made) return p;
  try {
    const cudaDataType_t type = type_of(s.dtype);
    call("cublasLtMatmulDescCreate",
         cublasLtMatmulDescCreate(&p.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    call("cublasLtMatmulDescSetAttribute",
         cublasLtMatmulDescSetAttribute(p.operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                        sizeof transposed));
    p.a = layout(type, s.k, s.m, s.batch);
    p.b = layout(type, s.k, s.n, s.batch);
    p.c = layout(type, s.m, s.n, s.batch);
    cublasLtMatmulPreference_t preference = nullptr;
    call("cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&preference));
    const auto workspace = static_cast<size_t>(kCublasWorkspace);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    cublasStatus_t code = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    if (code == CUBLAS_STATUS_SUCCESS)
      code = cublasLtMatmulAlgoGetHeuristic(handle_, p.operation, p.a, p.b, p.c, p.c, preference, 1,
                                            &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    call("cublasLtMatmulAlgoGetHeuristic", code);
    if (count == 0)
      throw Stopped(Stopped::Why::fault,
                    fmt::format("cublasLt has no algorithm for {} x {} x {} (batch {}) in {}", s.m,
                                s.n, s.k, s.batch, name_of(s.dtype)));
    p.algorithm = found.algo;
  } catch (const Stopped&) {
    products_.erase(at);
    throw;
  }
  return p;
}

void Products::run(const Work& w, const void* a, const void* b, void* c, void* workspace,
                   cudaStream_t stream) {
  const Product& p = product({w.m, w.n, w.k, w.batch, w.dtype});
  const float one = 1, zero = 0;
  call("cublasLtMatmul",
       cublasLtMatmul(handle_, p.operation, &one, a, p.a, b, p.b, &zero, c, p.c, c, p.c,
                      &p.algorithm, workspace, static_cast<size_t>(kCublasWorkspace), stream));
}

}  // namespace shardsim
