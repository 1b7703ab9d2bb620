// Matrix products by cuBLASLt, of a schedule's shapes and types: column-major, first operand
// transposed, as a linear layer's forward has it; fp32 sums. fp32 operands are multiplied in fp32, not
// TF32, which is PyTorch's default. The algorithm is the first that cuBLASLt's heuristic names for
// kCublasWorkspace, asked for once a shape.
// Worked number: 4096 x 8192 x 1024 in bf16: operands of 8 and 16 MiB, a result of 64 MiB.
#pragma once

#include <map>
#include <tuple>

#include "backends/cuda/codes.h"
#include "sim/schedule/instruction.h"

namespace shardsim {

class Products {
 public:
  Products();
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // Of the two operands and the result.
  static Bytes bytes_of_operand(const Work& w, int which);
  void run(const Work& w, const void* a, const void* b, void* c, void* workspace,
           cudaStream_t stream);

 private:
  struct Shape {
    int64_t m = 0, n = 0, k = 0, batch = 1;
    DType dtype = DType::bf16;
    auto key() const { return std::tuple(m, n, k, batch, dtype); }
    friend bool operator<(const Shape& x, const Shape& y) { return x.key() < y.key(); }
  };
  struct Product {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };
  const Product& product(const Shape& shape);

  cublasLtHandle_t handle_ = nullptr;
  std::map<Shape, Product> products_;
};

}  // namespace shardsim
