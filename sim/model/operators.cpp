#include "sim/model/operators.h"

#include "sim/base/error.h"

namespace shardsim {

namespace {

// TensorIterator halves a pointwise kernel until every operand can be indexed with 32 bits: one with
// an operand of 2^31 bytes or more runs as two, four, ... (kernel-sequence.md 2).
int pieces(Bytes operand) {
  int n = 1;
  while (operand >= (int64_t{1} << 31)) {
    operand = (operand + 1) / 2;
    n *= 2;
  }
  return n;
}

// Writes the steps of one pass.
class Writer {
 public:
  explicit Writer(std::vector<OpAction>& out) : out_(out) {}

  void alloc(uint8_t slot, Bytes bytes) { push(Act::alloc, slot).bytes = bytes; }
  void free(uint8_t slot) { push(Act::free, slot); }
  void release(uint8_t saved) { push(Act::release, saved); }
  void release_unpacked(uint8_t saved) { push(Act::release_unpacked, saved); }
  void take_gradient() { push(Act::take_gradient, 0); }
  void free_unsaved(uint8_t slot) { push(Act::free_unsaved, slot); }

  void kernel(const char* name, KernelClass cls, Bytes bytes, int64_t flops = 0) {
    OpAction& m = push(Act::kernel, 0);
    m.name = name;
    m.kernel = cls;
    m.bytes = bytes;
    m.flops = flops;
  }
  // m queries, n keys, k head dimension, batch sequences x heads.
  void attention(const char* name, DType t, const OpShape& s, Bytes bytes, int64_t flops) {
    kernel(name, KernelClass::attention, bytes, flops);
    OpAction& a = out_.back();
    a.dtype = t;
    a.m = a.n = s.seq;
    a.k = s.head_dim;
    a.batch = s.batch * s.heads;
  }
  // A pointwise kernel whose largest operand has `operand` bytes.
  void pointwise(const char* name, Bytes bytes, Bytes operand,
                 KernelClass cls = KernelClass::pointwise) {
    const int n = pieces(operand);
    for (int i = 0; i < n; ++i) kernel(name, cls, bytes / n);
  }
  void memset(Bytes bytes) { push(Act::memset, 0).bytes = bytes; }
  // at::zeros.
  void zeros(const OpContext& x, Bytes bytes) {
    if (x.behaviour->zeros_by_kernel)
      pointwise("fill", bytes, bytes);
    else
      memset(bytes);
  }
  void copy(Bytes bytes) { push(Act::copy_d2d, 0).bytes = bytes; }

  // A product with its workspace around it, in cuBLAS's column-major sizes.
  void gemm(const OpContext& x, const char* name, int64_t m, int64_t n, int64_t k,
            bool adds_bias = false, int64_t batch = 1) {
    const DType t = x.param;
    const bool kept = x.behaviour->cached_workspaces;
    const bool taken = adds_bias || !kept;
    if (taken) {
      OpAction& a = push(Act::alloc, kMaxSlots - 1);
      a.workspace = true;
      a.bytes = adds_bias ? kCublasLtWorkspace : kCublasWorkspace;
    }
    if (kept) push(Act::keep_workspace, 0);
    OpAction& g = push(Act::gemm, 0);
    g.name = name;
    g.dtype = t;
    g.m = m;
    g.n = n;
    g.k = k;
    g.batch = batch;
    g.flops = 2 * m * n * k * batch;
    g.bytes = bytes_of(t) * (m * k + k * n + m * n) * batch;
    if (taken) push(Act::free, kMaxSlots - 1).workspace = true;
  }

 private:
  OpAction& push(Act act, uint8_t slot) {
    out_.emplace_back();
    out_.back().act = act;
    out_.back().slot = slot;
    return out_.back();
  }
  std::vector<OpAction>& out_;
};

constexpr uint8_t input(int i) { return static_cast<uint8_t>(i); }
constexpr uint8_t kept(int slot) { return static_cast<uint8_t>(kSavedSlot + slot); }
constexpr uint8_t temp(int i) { return static_cast<uint8_t>(kBackwardTemp + i); }
constexpr uint8_t extra(int i) { return static_cast<uint8_t>(kExtra + i); }

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

int64_t last_pow2(int64_t n) {
  int64_t p = 1;
  while (2 * p <= n) p *= 2;
  return p;
}

// The sum over the rows of a [rows, columns] matrix, as setReduceConfig in aten's Reduce.cuh lays it
// out: where a thread would add 256 rows or more, several blocks share a column and meet in a
// staging buffer, counted by semaphores that a memset clears. 2048 rows of 128 columns stage
// 2,097,152 B with one semaphore (seen).
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

void embedding(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.param), row = s.out * e;
  c.out = x.param;
  Writer f(c.forward);
  f.alloc(0, s.rows * row);
  f.kernel("embedding", KernelClass::embedding, 2 * s.rows * row + 8 * s.rows);
  if (!x.param_grad) return;
  c.saved = {input(0)};
  Writer b(c.backward);
  if (s.rows <= 3072) {
    b.alloc(kParamGrad, s.in * row);
    b.zeros(x, s.in * row);
    b.kernel("embedding_backward", KernelClass::embedding, 3 * s.rows * row);
    return;
  }
  // Sorted path: cub sorts the ids in p passes of 8 bits, one tile of 4096 ids at a time, then
  // partial sums of up to ten rows are made and added (EmbeddingBackwardKernel.cu). Sizes seen at 4096
  // and 6000 tokens, 5000 and 70000 rows; a tile of 4096 also fits 8192.
  int bits = 0;
  while ((int64_t{1} << bits) < s.in) ++bits;
  const int p = x.behaviour->sorts_whole_ids ? 8 : (bits + 7) / 8;
  const Bytes tiles = 1024 * ceil_div(s.rows, 4096), ids = 8 * s.rows;
  const auto aligned = [](Bytes n) { return ceil_div(n, 256) * 256; };
  const int64_t segments = s.rows / 10 + std::min(s.rows, s.in);
  for (int i = 0; i < 3; ++i) b.alloc(temp(i), ids);
  b.kernel("arange", KernelClass::pointwise, ids);
  b.alloc(temp(3), 255 + aligned(2048 * p) + aligned(tiles) + 2 * aligned(ids) + 256);
  b.memset(4 * p);
  b.memset(2048 * p);
  b.kernel("radix_histogram", KernelClass::pointwise, ids);
  b.kernel("radix_scan", KernelClass::pointwise, 2048 * p);
  for (int i = 0; i < p; ++i) {
    b.memset(tiles);
    b.kernel("radix_sort", KernelClass::pointwise, 4 * ids);
  }
  b.free(temp(3));
  b.free(temp(2));
  b.alloc(kParamGrad, s.in * row);
  b.zeros(x, s.in * row);
  const Bytes scan = 1279;  // of cub, the same at both sizes
  b.alloc(temp(4), ids);
  b.alloc(temp(5), 8);
  b.alloc(temp(6), ids);
  b.alloc(temp(7), scan);
  b.kernel("unique_scan", KernelClass::pointwise, ids);
  b.kernel("unique_by_key", KernelClass::pointwise, 3 * ids);
  b.free(temp(7));
  b.free(temp(6));
  b.alloc(temp(8), ids);
  b.kernel("partials_per_segment", KernelClass::pointwise, 2 * ids);
  b.alloc(temp(9), ids);
  b.alloc(temp(10), scan);
  b.kernel("scan", KernelClass::pointwise, ids);
  b.kernel("scan", KernelClass::pointwise, 2 * ids);
  b.free(temp(10));
  b.alloc(temp(11), 8);
  b.kernel("num_of_partial_segments", KernelClass::pointwise, 16);
  b.alloc(temp(12), 8 * segments);
  b.kernel("partial_segment_offset", KernelClass::pointwise, 2 * ids);
  b.alloc(temp(13), 4 * segments * s.out);
  b.kernel("embedding_partial_sums", KernelClass::embedding,
           s.rows * row + 4 * std::min(segments, s.rows) * s.out);
  b.kernel("embedding_sums", KernelClass::embedding,
           4 * std::min(segments, s.rows) * s.out + std::min(s.rows, s.in) * row);
  for (int i : {13, 12, 11, 9, 8, 5, 4, 1, 0}) b.free(temp(i));
}

void positions(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.param);
  const Bytes looked_up = s.seq * s.out * e, all = s.rows * s.out * e;
  c.out = x.in[0];
  Writer f(c.forward);
  f.alloc(extra(0), 8 * s.seq);
  f.kernel("arange", KernelClass::pointwise, 8 * s.seq);
  f.alloc(extra(1), looked_up);
  f.kernel("embedding", KernelClass::embedding, 2 * looked_up);
  f.alloc(0, all);
  f.pointwise("add", 3 * all, all, KernelClass::strided);
  f.free(extra(1));
  c.saved = {kept(extra(0))};
  Writer b(c.backward);
  if (x.param_grad) {
    b.alloc(temp(0), looked_up);
    b.kernel("sum", KernelClass::reduction, all + looked_up);
    b.alloc(kParamGrad, s.in * s.out * e);
    b.zeros(x, s.in * s.out * e);
    b.kernel("embedding_backward", KernelClass::embedding, 3 * looked_up);
    b.free(temp(0));
  }
  c.passes_gradient = true;
}

void add_rows(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]);
  const Bytes row = s.seq * s.out * e, all = s.rows * s.out * e;
  c.out = x.in[0];
  Writer f(c.forward);
  f.alloc(0, all);
  f.pointwise("add", 2 * all + row, all, KernelClass::strided);
  c.passes_gradient = true;
  if (!x.in_grad[1]) return;
  Writer b(c.backward);
  b.alloc(1, row);
  b.kernel("sum", KernelClass::reduction, all + row);
}

void linear(OpCode& c, const OpShape& s, const OpContext& x, bool bias) {
  const DType t = x.param;
  if (x.in[0] != t)
    throw Error("precision: a linear's weight is " + std::string(name_of(t)) + " and its input " +
                    std::string(name_of(x.in[0])),
                {},
                "PyTorch raises RuntimeError (mat1 and mat2 must have the same dtype); see "
                "precision.keep, fsdp2.ignored_params and precision.cast_forward_inputs");
  const int64_t e = bytes_of(t);
  c.out = t;
  Writer f(c.forward);
  f.alloc(0, e * s.rows * s.out);
  f.gemm(x, "linear", s.out, s.rows, s.in, bias);
  if (x.param_grad) c.saved = {input(0)};
  c.gradient_is_view = !s.matrix_input;
  Writer b(c.backward);
  // An expanded gradient is made dense before each product that reads it.
  const auto dense = [&](auto&& product) {
    if (x.expanded_grad) {
      b.alloc(temp(0), e * s.rows * s.out);
      b.pointwise("copy", 2 * e * s.rows * s.out, e * s.rows * s.out, KernelClass::strided);
    }
    product();
    if (x.expanded_grad) b.free(temp(0));
  };
  const auto weight_gradient = [&] {
    if (!x.param_grad) return;
    b.alloc(kParamGrad, e * s.in * s.out);
    dense([&] {
      if (s.conv1d)
        b.gemm(x, "linear_dw", s.out, s.in, s.rows);
      else
        b.gemm(x, "linear_dw", s.in, s.out, s.rows);
    });
  };
  const auto input_gradient = [&] {
    if (!x.in_grad[0]) return;
    b.alloc(0, e * s.rows * s.in);
    dense([&] { b.gemm(x, "linear_dx", s.in, s.rows, s.out); });
  };
  if (!bias) {
    weight_gradient();
    input_gradient();
    return;
  }
  input_gradient();
  weight_gradient();
  if (!x.param_grad) return;
  b.alloc(kParamGrad + 1, e * s.out);
  if (x.expanded_grad)
    b.kernel("bias_grad", KernelClass::reduction, e * s.rows * s.out, s.rows * s.out);
  else
    column_sum(b, "bias_grad", s.rows, s.out, e, x.sms, temp(1));
}

// F.rms_norm as a chain of operators in fp32, each with its own backward: recorded with 2.7.1, in
// bf16, fp16, fp32 and with a frozen weight; with 2.15 for an fp32 weight on a narrow input.
//   x.to(fp32); * rsqrt(pow(2).mean(-1).add_(eps)); * weight; type_as(x)
void composed_rms_norm(OpCode& c, const OpShape& s, const OpContext& x) {
  const DType in = x.in[0];
  const int64_t e = bytes_of(in), p = bytes_of(x.param), n = s.rows * s.in;
  const bool narrow = e < 4;
  const Bytes wide = 4 * n, row = 4 * s.rows;
  c.out = in;
  Writer f(c.forward), b(c.backward);
  const uint8_t x32 = extra(0), root = extra(1), normed = extra(2), square = extra(3),
                mean = extra(4), scaled = narrow ? extra(5) : uint8_t{0};
  if (narrow) {
    f.alloc(x32, wide);
    f.pointwise("cast", e * n + wide, wide);
  }
  f.alloc(square, wide);
  f.pointwise("pow", 2 * wide, wide);
  f.alloc(mean, row);
  f.kernel("mean", KernelClass::reduction, wide, n);
  f.kernel("add", KernelClass::pointwise, 2 * row);
  f.alloc(root, row);
  f.kernel("rsqrt", KernelClass::pointwise, 2 * row);
  f.free(mean);
  f.free(square);
  f.alloc(normed, wide);
  f.pointwise("mul", 2 * wide, wide, KernelClass::strided);
  f.alloc(scaled, wide);
  f.pointwise("mul", 2 * wide, wide, KernelClass::strided);
  // What no node keeps goes before the result is cast.
  const auto leave = [&](uint8_t slot, bool saved) {
    if (saved)
      f.free_unsaved(slot);
    else
      f.free(slot);
  };
  leave(normed, x.param_grad);
  leave(root, x.in_grad[0]);
  if (narrow) leave(x32, x.in_grad[0]);
  if (narrow) {
    f.alloc(0, e * n);
    f.pointwise("cast", e * n + wide, wide);
    f.free(scaled);
  }
  uint8_t saved_normed = 0, saved_x = 0, saved_root = 0;
  const auto save = [&](uint8_t what) {
    c.saved.push_back(what);
    return static_cast<uint8_t>(c.saved.size() - 1);
  };
  if (x.param_grad) saved_normed = save(kept(normed));
  if (x.in_grad[0]) {
    saved_x = save(narrow ? kept(x32) : input(0));
    saved_root = save(kept(root));
  }

  // type_as, then the product with the weight.
  const uint8_t grad = temp(0), by_weight = temp(2);
  if (narrow) {
    b.alloc(grad, wide);
    b.pointwise("cast", e * n + wide, wide);
    b.take_gradient();
  }
  if (x.param_grad) {
    b.alloc(temp(1), wide);
    b.pointwise("mul", 3 * wide, wide);
  }
  if (x.in_grad[0]) {
    b.alloc(by_weight, wide);
    b.pointwise("mul", 2 * wide, wide, KernelClass::strided);
  }
  if (x.param_grad) {
    b.release_unpacked(saved_normed);
    const uint8_t sum = p < 4 ? temp(3) : kParamGrad;
    b.alloc(sum, 4 * s.in);
    column_sum(b, "sum", s.rows, s.in, 4, x.sms, temp(4));
    b.free(temp(1));
    if (p < 4) {
      b.alloc(kParamGrad, p * s.in);
      b.kernel("cast", KernelClass::pointwise, (4 + p) * s.in);
      b.free(sum);
    }
  }
  if (narrow)
    b.free(grad);
  else
    b.take_gradient();
  if (x.param_grad) b.release(saved_normed);
  if (!x.in_grad[0]) return;
  // The product with the root: the root's gradient is reduced, the input's waits for the other.
  const uint8_t by_root = narrow ? temp(4) : uint8_t{0}, root_grad = temp(5);
  b.alloc(temp(1), wide);
  b.pointwise("mul", 3 * wide, wide);
  b.alloc(by_root, wide);
  b.pointwise("mul", 2 * wide, wide, KernelClass::strided);
  b.alloc(root_grad, row);
  b.kernel("sum", KernelClass::reduction, wide, n);
  b.free(temp(1));
  b.free(by_weight);
  // rsqrt: -0.5 * grad * root^3.
  b.alloc(temp(6), row);
  b.kernel("pow", KernelClass::pointwise, 2 * row);
  b.alloc(temp(7), row);
  b.kernel("mul", KernelClass::pointwise, 2 * row);
  b.alloc(temp(8), row);
  b.kernel("mul", KernelClass::pointwise, 3 * row);
  b.free(temp(7));
  b.free(temp(6));
  b.release_unpacked(saved_root);
  b.free(root_grad);
  b.release(saved_root);
  // mean, then pow: grad * (2 * x^1).
  b.alloc(temp(1), wide);
  b.pointwise("div", row + wide, wide, KernelClass::strided);
  b.free(temp(8));
  b.alloc(temp(0), wide);
  b.copy(wide);
  b.alloc(temp(2), wide);
  b.pointwise("mul", 2 * wide, wide);
  b.alloc(temp(3), wide);
  b.pointwise("mul", 3 * wide, wide);
  b.free(temp(2));
  b.free(temp(0));
  b.release_unpacked(saved_x);
  b.free(temp(1));
  b.release(saved_x);
  b.pointwise("add", 3 * wide, wide);
  b.free(temp(3));
  if (!narrow) return;
  b.alloc(0, e * n);
  b.pointwise("cast", e * n + wide, wide);
  b.free(by_root);
}

void rms_norm(OpCode& c, const OpShape& s, const OpContext& x) {
  if (s.norm == NormForm::fused && x.behaviour->composed_rms_norm)
    return composed_rms_norm(c, s, x);
  const DType in = x.in[0];
  const int64_t e = bytes_of(in), n = s.rows * s.in;
  c.out = in;
  Writer f(c.forward);
  Writer b(c.backward);
  const bool written_out = s.norm == NormForm::hf;
  const bool mixed = in != x.param;
  if (written_out && mixed)
    throw Error(
        "precision: norm: hf multiplies its " + std::string(name_of(in)) +
            " activations with a weight of " + std::string(name_of(x.param)) +
            ", and hands on fp32",
        {},
        "PyTorch's next linear raises RuntimeError (mat1 and mat2 differ in type); use norm: "
        "fused, or leave the norms out of precision.keep and fsdp2.ignored_params");
  if (mixed && e == 2 && x.param == DType::fp32) return composed_rms_norm(c, s, x);
  if (!written_out && !mixed) {
    f.alloc(0, e * n);
    f.alloc(extra(0), 4 * s.rows);
    f.kernel("rms_norm", KernelClass::reduction, 2 * e * n, 4 * n);
    c.saved = {input(0), kept(extra(0))};
    if (x.in_grad[0]) b.alloc(0, e * n);
    if (x.param_grad) b.alloc(kParamGrad, bytes_of(x.param) * s.in);
    if (x.in_grad[0]) b.kernel("rms_norm_backward", KernelClass::reduction, 3 * e * n, 8 * n);
    if (x.param_grad) b.kernel("rms_norm_dw", KernelClass::reduction, 2 * e * n, 2 * n);
    return;
  }
  // Written out in fp32 (transformers' LlamaRMSNorm). memory-model.md B: keeps the fp32 copy, the normalised copy and the reciprocal root.
  const bool narrow = e == 2;
  const Bytes wide = 4 * n;
  const uint8_t x32 = extra(0), normed = extra(1), root = extra(2), square = extra(3);
  if (narrow) {
    f.alloc(x32, wide);
    f.pointwise("cast", e * n + wide, wide);
  }
  f.alloc(square, wide);
  f.pointwise("pow", 2 * wide, wide);
  f.alloc(root, 4 * s.rows);
  f.kernel("mean", KernelClass::reduction, wide, n);
  f.free(square);
  f.kernel("add", KernelClass::pointwise, 8 * s.rows);
  f.kernel("rsqrt", KernelClass::pointwise, 8 * s.rows);
  const uint8_t n32 = extra(4);
  f.alloc(narrow ? n32 : normed, wide);
  f.pointwise("mul", 2 * wide, wide, KernelClass::strided);
  if (narrow) {
    f.alloc(normed, e * n);
    f.pointwise("cast", wide + e * n, wide);
  }
  f.alloc(0, e * n);
  f.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
  if (narrow) f.free(n32);
  c.saved = narrow ? std::vector<uint8_t>{kept(normed), kept(x32), kept(root)}
                   : std::vector<uint8_t>{input(0), kept(normed), kept(root)};
  // Backward: the kernels of kernel-sequence.md 2; three fp32 temporaries at the top.
  if (x.param_grad) {
    b.alloc(temp(0), e * n);
    b.pointwise("mul", 3 * e * n, e * n, KernelClass::strided);
    b.alloc(kParamGrad, bytes_of(x.param) * s.in);
    b.kernel("sum", KernelClass::reduction, e * n, n);
    b.free(temp(0));
  }
  b.alloc(temp(0), e * n);
  b.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
  b.alloc(temp(1), wide);
  if (narrow) b.pointwise("cast", e * n + wide, wide);
  b.free(temp(0));
  b.alloc(temp(2), wide);
  b.pointwise("mul", 2 * wide, wide, KernelClass::strided);
  b.alloc(temp(3), wide);
  b.pointwise("mul", 3 * wide, wide, KernelClass::strided);
  b.kernel("sum", KernelClass::reduction, wide, n);
  b.free(temp(3));
  b.kernel("pow", KernelClass::pointwise, 8 * s.rows);
  b.kernel("mul", KernelClass::pointwise, 8 * s.rows);
  b.kernel("mul", KernelClass::pointwise, 8 * s.rows);
  b.free(temp(1));
  b.alloc(temp(3), wide);
  b.copy(wide);
  b.kernel("div", KernelClass::pointwise, 2 * wide);
  b.pointwise("mul", 2 * wide, wide, KernelClass::strided);
  b.pointwise("add", 3 * wide, wide);
  b.free(temp(3));
  b.alloc(0, e * n);
  if (narrow) b.pointwise("cast", e * n + wide, wide);
  b.free(temp(2));
}

void layer_norm(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]), n = s.rows * s.in, p = bytes_of(x.param) * s.in;
  c.out = x.in[0];
  Writer f(c.forward);
  f.alloc(0, e * n);
  f.alloc(extra(0), 4 * s.rows);
  f.alloc(extra(1), 4 * s.rows);
  f.kernel("layer_norm", KernelClass::reduction, 2 * e * n, 5 * n);
  c.saved = {input(0), kept(extra(0)), kept(extra(1))};
  Writer b(c.backward);
  b.alloc(0, e * n);
  if (x.param_grad) {
    b.alloc(kParamGrad, p);
    b.alloc(kParamGrad + 1, p);
  }
  b.kernel("layer_norm_backward", KernelClass::reduction, 3 * e * n, 9 * n);
  if (x.param_grad) b.kernel("layer_norm_dw_db", KernelClass::reduction, 2 * e * n, 3 * n);
}

void rope(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]), n = s.rows * s.out;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  const uint8_t t0 = extra(0), t1 = extra(1), t2 = extra(2);
  if (s.rope == RopeForm::complex) {
    if (e == 4) {
      f.alloc(0, 4 * n);
      f.pointwise("complex_mul", 8 * n, 4 * n, KernelClass::strided);
      b.alloc(temp(0), 4 * s.seq * s.head_dim);
      b.kernel("conj", KernelClass::pointwise, 8 * s.seq * s.head_dim);
      b.alloc(0, 4 * n);
      b.pointwise("complex_mul", 8 * n, 4 * n, KernelClass::strided);
      b.free(temp(0));
      return;
    }
    f.alloc(t0, 4 * n);
    f.pointwise("cast", (e + 4) * n, 4 * n);
    f.alloc(t1, 4 * n);
    f.pointwise("complex_mul", 8 * n, 4 * n, KernelClass::strided);
    f.free(t0);
    f.alloc(0, e * n);
    f.pointwise("cast", (e + 4) * n, 4 * n);
    f.free(t1);
    b.alloc(temp(0), 4 * n);
    b.pointwise("cast", (e + 4) * n, 4 * n);
    b.alloc(temp(1), 4 * s.seq * s.head_dim);
    b.kernel("conj", KernelClass::pointwise, 8 * s.seq * s.head_dim);
    b.alloc(temp(2), 4 * n);
    b.pointwise("complex_mul", 8 * n, 4 * n, KernelClass::strided);
    b.free(temp(1));
    b.free(temp(0));
    b.alloc(0, e * n);
    b.pointwise("cast", (e + 4) * n, 4 * n);
    b.free(temp(2));
    return;
  }
  // rotate_half: q * cos + cat(-q2, q1) * sin.
  f.alloc(t0, e * n);
  f.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
  f.alloc(t1, e * n / 2);
  f.pointwise("neg", e * n, e * n / 2);
  f.alloc(t2, e * n);
  f.kernel("cat", KernelClass::pointwise, 2 * e * n);
  f.free(t1);
  f.alloc(extra(3), e * n);
  f.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
  f.free(t2);
  f.alloc(0, e * n);
  f.pointwise("add", 3 * e * n, e * n);
  f.free(t0);
  f.free(extra(3));
  b.alloc(temp(0), e * n);
  b.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
  b.alloc(temp(1), e * n / 2);
  b.pointwise("neg", e * n, e * n / 2);
  b.alloc(temp(2), e * n);
  b.zeros(x, e * n);
  b.pointwise("copy", e * n, e * n / 2);
  b.free(temp(1));
  b.alloc(0, e * n);
  b.zeros(x, e * n);
  b.pointwise("copy", e * n, e * n / 2);
  b.free(temp(0));
  b.pointwise("add", 3 * e * n, e * n);
  b.free(temp(2));
  b.alloc(temp(3), e * n);
  b.pointwise("mul", 2 * e * n, e * n, KernelClass::strided);
  b.pointwise("add", 3 * e * n, e * n);
  b.free(temp(3));
}

void repeat_kv(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]);
  const Bytes narrow = e * s.rows * s.kv_heads * s.head_dim,
              wide = e * s.rows * s.heads * s.head_dim;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, wide);
  f.pointwise("copy", narrow + wide, wide, KernelClass::strided);
  b.alloc(0, narrow);
  b.kernel("sum", KernelClass::reduction, narrow + wide);
}

void attention(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.in[0]), d = s.head_dim;
  const Bytes q = e * s.rows * s.heads * d, kv = e * s.rows * s.kv_heads * d;
  const Bytes lse = 4 * s.batch * s.heads * s.seq;
  const bool grouped = s.kv_heads != s.heads;
  // 4*b*n*s^2*d, halved by the causal mask; backward 2.5 times that (cost-model D.2).
  const int64_t flops = 2 * s.batch * s.heads * s.seq * s.seq * d;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  const uint8_t l = extra(0), seed = extra(1), offset = extra(2);
  if (e == 2) {
    f.alloc(0, q);
    f.alloc(l, lse);
    f.alloc(seed, 16);
    f.alloc(offset, 8);
    // Splits the keys where the grid would leave SMs empty (num_splits_heuristic, kernel-sequence 2).
    const int64_t blocks = s.batch * s.heads * ceil_div(s.seq, 64);
    const bool split = 10 * blocks < 8 * x.sms && s.seq > (d > 64 ? 128 : 256);
    f.attention("flash_attention", c.out, s, 2 * q + 2 * kv, flops);
    if (split) f.kernel("flash_combine", KernelClass::reduction, 2 * q);
    c.saved = {input(1), input(0), input(2), kept(l), kept(0), kept(seed), kept(offset)};
    const int64_t rounded = ceil_div(s.seq, 128) * 128;
    b.alloc(0, q);
    b.alloc(1, kv);
    b.alloc(2, kv);
    b.alloc(temp(0), 4 * s.batch * s.heads * rounded);
    b.alloc(temp(1), 4 * s.batch * s.heads * rounded * d);
    if (grouped) {
      b.alloc(temp(2), q);
      b.alloc(temp(3), q);
    }
    b.kernel("flash_attention_dot", KernelClass::reduction, 2 * q);
    b.attention("flash_attention_backward", c.out, s, 4 * q + 4 * kv, 5 * flops / 2);
    b.kernel("flash_attention_convert", KernelClass::pointwise, 3 * q);
    if (grouped) {
      b.kernel("sum", KernelClass::reduction, q + kv);
      b.kernel("sum", KernelClass::reduction, q + kv);
      b.free(temp(3));
      b.free(temp(2));
    }
    b.free(temp(1));
    b.free(temp(0));
  } else {
    f.alloc(seed, 8);
    f.alloc(offset, 8);
    f.alloc(0, q);
    f.alloc(l, 4 * s.batch * s.heads * ceil_div(s.seq, 32) * 32);
    f.zeros(x, 8);
    f.zeros(x, 8);
    f.attention("efficient_attention", c.out, s, 2 * q + 2 * kv, flops);
    c.saved = {input(1), input(0), input(2), kept(l), kept(0), kept(seed), kept(offset)};
    // One tile of dq and a lock for each block of queries, cleared where several blocks of keys meet
    // in it (kernel_backward.h). Seen at 16, 128 and 512 tokens, 4, 12 and 16 heads of 48 and 64; the
    // tile of 128 rows for wider heads is read.
    const int64_t tile = d <= 64 ? 64 : 128;
    const Bytes workspace =
        s.batch * s.heads * ceil_div(s.seq, tile) * ceil_div(d, 64) * (16 + 4 * tile * 64);
    b.alloc(0, q);
    b.alloc(1, grouped ? kv : q);
    b.alloc(2, grouped ? kv : q);
    if (grouped) {
      b.alloc(temp(2), q);
      b.alloc(temp(3), q);
    }
    b.alloc(temp(4), q);
    b.kernel("mul", KernelClass::pointwise, 3 * q);
    b.alloc(temp(5), lse);
    b.kernel("sum", KernelClass::reduction, q);
    b.alloc(temp(0), lse);
    b.kernel("copy", KernelClass::pointwise, 2 * lse);
    b.free(temp(5));
    b.free(temp(4));
    b.alloc(temp(1), workspace);
    if (s.seq > 64) b.zeros(x, workspace);
    b.attention("efficient_attention_backward", c.out, s, 4 * q + 4 * kv, 5 * flops / 2);
    if (grouped) {
      b.kernel("sum", KernelClass::reduction, q + kv);
      b.kernel("sum", KernelClass::reduction, q + kv);
    }
    b.free(temp(0));
    b.free(temp(1));
    if (grouped) {
      b.free(temp(3));
      b.free(temp(2));
    }
  }
}

// One kernel forward and one backward; keeps its input.
void activation(OpCode& c, const OpShape& s, const OpContext& x, const char* name,
                const char* backward) {
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.out;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.pointwise(name, 2 * all, all);
  c.saved = {input(0)};
  b.alloc(0, all);
  b.pointwise(backward, 3 * all, all);
}

void mul(OpCode& c, const OpShape& s, const OpContext& x) {
  const Bytes all = bytes_of(x.in[0]) * s.rows * s.out;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.pointwise("mul", 3 * all, all);
  c.saved = {input(1), input(0)};
  b.alloc(1, all);
  b.pointwise("mul", 3 * all, all);
  b.alloc(0, all);
  b.pointwise("mul", 3 * all, all);
}

void cross_entropy(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.rows * s.in, e = bytes_of(x.in[0]);
  const bool cast = s.to == DType::fp32 && x.in[0] != DType::fp32;
  const int64_t w = cast ? 4 : e;
  c.out = cast ? DType::fp32 : x.in[0];
  Writer f(c.forward), b(c.backward);
  const uint8_t wide = extra(0), lsm = extra(1), total = extra(2);
  if (cast) {
    f.alloc(wide, 4 * n);
    f.pointwise("cast", (e + 4) * n, 4 * n);
  }
  f.alloc(lsm, w * n);
  f.kernel("log_softmax", KernelClass::softmax, 2 * w * n, 5 * n);
  f.alloc(0, w);
  f.alloc(total, w);
  f.kernel("nll_loss", KernelClass::reduction, 12 * s.rows);
  if (cast) f.free(wide);
  c.saved = {kept(lsm), kept(total)};
  const uint8_t nll = temp(0), grad = cast ? temp(1) : uint8_t{0};
  b.alloc(nll, w * n);
  b.zeros(x, w * n);
  b.kernel("nll_loss_backward", KernelClass::pointwise, 12 * s.rows);
  b.release(1);
  b.alloc(grad, w * n);
  b.kernel("log_softmax_backward", KernelClass::softmax, 3 * w * n, 4 * n);
  b.free(nll);
  b.release(0);
  if (cast) {
    b.alloc(0, e * n);
    b.pointwise("cast", (e + 4) * n, 4 * n);
    b.free(temp(1));
  }
}

void sum(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.rows * s.in, e = bytes_of(x.in[0]);
  const bool cast = s.to == DType::fp32 && x.in[0] != DType::fp32;
  c.out = cast ? DType::fp32 : x.in[0];
  Writer f(c.forward), b(c.backward);
  const uint8_t wide = extra(0);
  if (cast) {
    f.alloc(wide, 4 * n);
    f.pointwise("cast", (e + 4) * n, 4 * n);
  }
  f.alloc(0, bytes_of(c.out));
  full_sum(f, n, bytes_of(c.out) * n, extra(1), x.sms);
  if (cast) {
    f.free(wide);
    b.alloc(0, e * n);
    b.pointwise("cast", (e + 4) * n, e * n, KernelClass::strided);
  } else {
    c.passes_gradient = true;
    c.gradient_is_expanded = true;
  }
}

void bag(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.out, e = bytes_of(x.param), rows = s.rows * s.in;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  const uint8_t doubled = extra(0), scalar = extra(1);
  if (s.scale) {
    f.alloc(doubled, e * n);
    f.pointwise("mul", 2 * e * n, e * n);
  }
  f.alloc(scalar, e);
  full_sum(f, n, e * n, extra(2), x.sms);
  if (s.scale) f.free(doubled);
  f.alloc(0, bytes_of(c.out) * rows);
  f.pointwise("add", 2 * bytes_of(c.out) * rows, bytes_of(c.out) * rows, KernelClass::strided);
  f.free(scalar);
  c.passes_gradient = true;
  if (!x.param_grad) return;
  const uint8_t summed = s.scale ? temp(0) : kParamGrad;
  if (x.in[0] == x.param) {
    b.alloc(summed, e);
    b.kernel("sum", KernelClass::reduction, bytes_of(c.out) * rows, rows);
  } else {
    // The sum is of the input's type, and is cast to the parameter's.
    b.alloc(temp(1), bytes_of(c.out));
    b.kernel("sum", KernelClass::reduction, bytes_of(c.out) * rows, rows);
    b.alloc(summed, e);
    b.kernel("cast", KernelClass::pointwise, bytes_of(c.out) + e);
    b.free(temp(1));
  }
  if (s.scale) {
    b.alloc(kParamGrad, e * n);
    b.pointwise("mul", e * n, e * n, KernelClass::strided);
  }
}

// Of a vector parameter, to one element.
void mean(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t e = bytes_of(x.param);
  c.out = x.param;
  Writer f(c.forward), b(c.backward);
  f.alloc(0, e);
  full_sum(f, s.in, e * s.in, extra(0), x.sms);
  if (!x.param_grad) return;
  b.alloc(kParamGrad, e * s.in);
  b.kernel("div", KernelClass::strided, e * s.in);
}

void scale(OpCode& c, const OpShape& s, const OpContext& x) {
  const int64_t n = s.rows * s.in;
  const Bytes all = bytes_of(x.in[0]) * n;
  c.out = x.in[0];
  Writer f(c.forward), b(c.backward);
  f.alloc(0, all);
  f.pointwise("mul", 2 * all, all, KernelClass::strided);
  if (x.in_grad[0]) {
    c.saved.push_back(input(1));
    b.alloc(0, all);
    b.pointwise("mul", 2 * all, all, KernelClass::strided);
  }
  if (x.in_grad[1]) {
    c.saved.push_back(input(0));
    b.alloc(temp(0), all);
    b.pointwise("mul", 3 * all, all);
    b.alloc(1, bytes_of(x.in[1]));
    full_sum(b, n, all, temp(1), x.sms);
    b.free(temp(0));
  }
}

}  // namespace

Bytes full_reduction_staging(int64_t n, int sms) {
  const int64_t values = ceil_div(n, 512);
  if (values < 256) return 0;
  return 4 * std::max(std::min<int64_t>(4 * sms, ceil_div(values, 16)), ceil_div(values, 256));
}

OpCode op_code(OpKind kind, const OpShape& s, const OpContext& x) {
  OpCode c;
  switch (kind) {
    case OpKind::input: {
      c.out = s.to;
      Writer f(c.forward);
      const Bytes all = bytes_of(s.to) * s.rows * s.in;
      f.alloc(0, all);
      f.zeros(x, all);
      break;
    }
    case OpKind::embedding: embedding(c, s, x); break;
    case OpKind::positions: positions(c, s, x); break;
    case OpKind::arange: {
      c.out = DType::i64;
      Writer f(c.forward);
      f.alloc(0, 8 * s.seq);
      f.kernel("arange", KernelClass::pointwise, 8 * s.seq);
      break;
    }
    case OpKind::add_rows: add_rows(c, s, x); break;
    case OpKind::linear: linear(c, s, x, s.bias); break;
    case OpKind::rms_norm: rms_norm(c, s, x); break;
    case OpKind::layer_norm: layer_norm(c, s, x); break;
    case OpKind::rope: rope(c, s, x); break;
    case OpKind::repeat_kv: repeat_kv(c, s, x); break;
    case OpKind::attention: attention(c, s, x); break;
    case OpKind::silu: activation(c, s, x, "silu", "silu_backward"); break;
    case OpKind::gelu: activation(c, s, x, "gelu", "gelu_backward"); break;
    case OpKind::mul: mul(c, s, x); break;
    case OpKind::add: {
      const Bytes all = bytes_of(x.in[0]) * s.rows * s.out;
      c.out = x.in[0];
      Writer f(c.forward);
      f.alloc(0, all);
      f.pointwise("add", 3 * all, all);
      c.passes_gradient = true;
      break;
    }
    case OpKind::split_qkv: {
      c.out = x.in[0];
      c.outputs = 3;
      c.aliases_input = true;
      c.split_gradient = true;
      const Bytes all = bytes_of(x.in[0]) * s.rows * s.in;
      Writer b(c.backward);
      b.alloc(0, all);
      b.kernel("cat", KernelClass::cat, 2 * all);
      break;
    }
    case OpKind::cast: {
      const int64_t n = s.rows * s.in, from = bytes_of(x.in[0]), to = bytes_of(s.to);
      c.out = s.to;
      Writer f(c.forward), b(c.backward);
      f.alloc(0, to * n);
      f.pointwise("cast", (from + to) * n, std::max(from, to) * n);
      b.alloc(0, from * n);
      b.pointwise("cast", (from + to) * n, std::max(from, to) * n);
      break;
    }
    case OpKind::cross_entropy: cross_entropy(c, s, x); break;
    case OpKind::sum: sum(c, s, x); break;
    case OpKind::bag: bag(c, s, x); break;
    case OpKind::mean: mean(c, s, x); break;
    case OpKind::scale: scale(c, s, x); break;
  }
  return c;
}

}  // namespace shardsim
