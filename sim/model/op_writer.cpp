#include "sim/model/op_writer.h"

#include <algorithm>

namespace shardsim {

int pieces(Bytes operand) {
  int n = 1;
  while (operand >= (int64_t{1} << 31)) {
    operand = (operand + 1) / 2;
    n *= 2;
  }
  return n;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  return bytes_of(a) > bytes_of(b) ? a : bytes_of(b) > bytes_of(a) ? b : DType::fp32;
}

Weight weight_of(const OpContext& x, int i) {
  const auto at = static_cast<size_t>(i) + 1;
  if (x.has_in[at]) return {x.in[at], x.in_grad[at], true, static_cast<uint8_t>(at)};
  return {x.param, x.param_grad, false, static_cast<uint8_t>(kParamGrad + i)};
}

void full_sum(Writer& w, int64_t n, Bytes bytes, uint8_t scratch, int sms) {
  const auto semaphore = static_cast<uint8_t>(scratch + 1);
  const Bytes staging = full_reduction_staging(n, sms);
  if (staging > 0) {
    w.alloc(scratch, staging);
    w.alloc(semaphore, 4);
    w.memset(4);
  }
  w.kernel("sum", KernelClass::reduction, bytes, n);
  if (staging > 0) {
    w.free(semaphore);
    w.free(scratch);
  }
}

Bytes full_reduction_staging(int64_t n, int sms) {
  const int64_t values = ceil_div(n, 512);
  if (values < 256) return 0;
  return 4 * std::max(std::min<int64_t>(4 * sms, ceil_div(values, 16)), ceil_div(values, 256));
}

namespace {

int64_t last_pow2(int64_t n) {
  int64_t p = 1;
  while (2 * p <= n) p *= 2;
  return p;
}

}  // namespace

void column_sum(Writer& w, const char* name, int64_t rows, int64_t columns, int64_t element,
                int sms, uint8_t scratch) {
  const auto semaphores = static_cast<uint8_t>(scratch + 1);
  const int64_t vector = columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 1;
  const int64_t threads = 512 / vector, outputs = columns / vector;
  const int64_t x = outputs < threads ? last_pow2(outputs) : threads;
  const int64_t y = rows < threads ? last_pow2(rows) : threads;
  int64_t width = std::min<int64_t>(x, 32);
  const int64_t height = std::min(y, threads / width);
  width = std::min(x, threads / height);
  const bool splits_rows = rows >= height * 16 || rows >= 256;
  const int64_t values = splits_rows ? ceil_div(rows, height) : rows;
  const int64_t grid = ceil_div(outputs, width);
  const int64_t target = sms * (2048 / (width * height));
  if (splits_rows && values >= 256 && grid <= target) {
    const int64_t blocks =
        std::max(std::min(ceil_div(target, grid), ceil_div(values, 16)), ceil_div(values, 256));
    if (blocks > 1) {
      w.alloc(scratch, 4 * columns * blocks * width * vector);
      w.alloc(semaphores, 4 * grid);
      w.memset(4 * grid);
      w.kernel(name, KernelClass::reduction, element * rows * columns, rows * columns);
      w.free(semaphores);
      w.free(scratch);
      return;
    }
  }
  w.kernel(name, KernelClass::reduction, element * rows * columns, rows * columns);
}

}  // namespace shardsim
