#include "sim/schedule/clip.h"

#include "sim/schedule/multi_tensor.h"
#include "sim/schedule/streams.h"

namespace shardsim {

void clip_grad_norm(Host& host, CommId shard, DType dtype, const std::vector<int64_t>& numels) {
  const auto n = static_cast<int64_t>(numels.size());
  if (n == 0) return;
  const Bytes element = bytes_of(dtype), all = n * element;
  int64_t chunks = 0, most_chunks = 0, numel = 0;
  ForeachLaunches passes(host.behaviour(), 1);
  for (int64_t x : numels) {
    chunks += chunks_of(x);
    most_chunks = std::max(most_chunks, chunks_of(x));
    numel += x;
    passes.add(x);
  }
  const int64_t launches = passes.count();
  const auto buffer = [&](Bytes bytes) {
    const BufferId b = host.buffer(bytes, kCompute, Category::optimizer);
    host.alloc(b);
    return b;
  };
  const auto kernel = [&](const char* name, Bytes bytes, KernelClass cls = KernelClass::pointwise) {
    Work w;
    w.kernel = cls;
    w.bytes = bytes;
    w.name = name;
    host.launch(kCompute, host.work(w));
  };
  const auto copy = [&](WorkKind kind, Bytes bytes) {
    Work w;
    w.kind = kind;
    w.bytes = bytes;
    w.name = "clip_grad_norm";
    return host.work(w);
  };
  const auto scale = [&] {
    for (int64_t l = 0; l < launches; ++l)
      kernel("foreach_mul", 2 * element * numel / launches, KernelClass::foreach_op);
  };
  Work reduce;
  reduce.kind = WorkKind::AllReduce;
  reduce.op = ReduceOp::sum;
  reduce.bytes = all;
  reduce.dtype = dtype;
  reduce.comm = shard;
  reduce.name = "clip_grad_norm";
  std::vector<BufferId> norms;
  if (host.behaviour().clips_in_one_number) {
    // Partial norms: as many places for each tensor as the largest has chunks.
    const BufferId partial = buffer(4 * n * most_chunks);
    kernel("fill", 4 * n * most_chunks);
    for (int64_t i = 0; i < n; ++i) norms.push_back(buffer(element));
    for (int64_t l = 0; l < launches; ++l)
      kernel("foreach_norm", element * numel / launches, KernelClass::foreach_op);
    constexpr int64_t kTensorsPerCleanup = 400;
    for (int64_t l = 0; l < ceil_div(n, kTensorsPerCleanup); ++l)
      kernel("lpnorm_cleanup", 4 * n * most_chunks);
    host.free(partial);
    const BufferId stacked = buffer(all);
    kernel("stack", 2 * all, KernelClass::cat);
    const BufferId total = buffer(element);
    kernel("norm", all, KernelClass::reduction);
    host.free(stacked);
    for (BufferId b : norms) host.free(b);
    const BufferId sum = buffer(element);
    kernel("add", 2 * element);
    const BufferId powered = buffer(element);
    kernel("pow", 2 * element);
    const BufferId reduced = buffer(element);
    host.launch(kCompute, copy(WorkKind::CopyD2D, element));
    reduce.bytes = element;
    host.collective(kCompute, host.work(reduce), {reduced});
    const BufferId rooted = buffer(element);
    kernel("sqrt", 2 * element);
    host.free(powered);
    host.free(reduced);
    const BufferId inverse = buffer(element);
    kernel("reciprocal", 2 * element);
    host.free(rooted);
    const BufferId coefficient = buffer(element);
    kernel("mul", 2 * element);
    host.free(inverse);
    host.free(sum);
    const BufferId clamped = buffer(element);
    kernel("clamp", 2 * element);
    host.free(coefficient);
    scale();
    host.free(clamped);
    host.free(total);
    return;
  }
  // Norms: one partial result a chunk, then one a tensor.
  const BufferId table = buffer(8 * (n + 1)), partial = buffer(4 * chunks);
  for (int64_t i = 0; i < n; ++i) norms.push_back(buffer(element));
  host.pinned_copy(kCompute, copy(WorkKind::CopyH2D, 8 * (n + 1)));
  for (int64_t l = 0; l < launches; ++l)
    kernel("foreach_norm", element * numel / launches, KernelClass::foreach_op);
  kernel("lpnorm_cleanup", 4 * chunks);
  host.free(partial);
  host.free(table);
  const BufferId stacked = buffer(all);
  kernel("stack", 2 * all, KernelClass::cat);
  const BufferId powered = buffer(all);
  kernel("pow", 2 * all);
  const BufferId reduced = buffer(all);
  host.launch(kCompute, copy(WorkKind::CopyD2D, all));
  const StreamId internal = host.internal_stream(shard);
  host.wait_stream(internal, kCompute);
  host.record(internal);
  host.launch(internal, host.work(reduce));
  host.wait_stream(kCompute, internal);
  const BufferId rooted = buffer(all);
  kernel("pow", 2 * all);
  host.free(reduced);
  host.free(powered);
  const BufferId total = buffer(element);
  kernel("sum", all, KernelClass::reduction);
  host.free(rooted);
  host.free(stacked);
  for (BufferId b : norms) host.free(b);
  // clip_coef = max_norm / (total + 1e-6), clamped to 1; then the gradients are scaled.
  const BufferId sum = buffer(element);
  kernel("add", 2 * element);
  const BufferId inverse = buffer(element);
  kernel("reciprocal", 2 * element);
  const BufferId coefficient = buffer(element);
  kernel("mul", 2 * element);
  host.free(inverse);
  host.free(sum);
  const BufferId clamped = buffer(element);
  kernel("clamp", 2 * element);
  scale();
  host.free(clamped);
  host.free(coefficient);
  host.free(total);
}

void clip_whole_grads(Host& host, DType dtype, const std::vector<int64_t>& numels) {
  const auto n = static_cast<int64_t>(numels.size());
  if (n == 0) return;
  const auto buffer = [&](Bytes bytes) {
    const BufferId b = host.buffer(bytes, kCompute, Category::optimizer);
    host.alloc(b);
    return b;
  };
  const auto kernel = [&](const char* name, Bytes bytes, KernelClass cls) {
    Work w;
    w.kernel = cls;
    w.bytes = bytes;
    w.name = name;
    host.launch(kCompute, host.work(w));
  };
  const Bytes element = bytes_of(dtype);
  int64_t chunks = 0, numel = 0;
  ForeachLaunches passes(host.behaviour(), 1);
  for (int64_t x : numels) {
    chunks += chunks_of(x);
    numel += x;
    passes.add(x);
  }
  const int64_t launches = passes.count();
  const BufferId table = buffer(8 * n), partial = buffer(4 * chunks);
  std::vector<BufferId> norms;
  norms.reserve(numels.size());
  for (int64_t i = 0; i < n; ++i) norms.push_back(buffer(element));
  Work h2d;
  h2d.kind = WorkKind::CopyH2D;
  h2d.bytes = 8 * n;
  h2d.name = "clip_grad_norm";
  host.pinned_copy(kCompute, host.work(h2d));
  for (int64_t l = 0; l < launches; ++l)
    kernel("foreach_norm", element * numel / launches, KernelClass::foreach_op);
  kernel("lpnorm_cleanup", 4 * chunks, KernelClass::pointwise);
  host.free(partial);
  host.free(table);
  const BufferId stack = buffer(element * n);
  kernel("stack", element * n, KernelClass::cat);
  const BufferId total = buffer(element);
  kernel("norm", element * n, KernelClass::reduction);
  host.free(stack);
  for (BufferId b : norms) host.free(b);
  const BufferId sum = buffer(element);
  kernel("add", 2 * element, KernelClass::pointwise);
  const BufferId inverse = buffer(element);
  kernel("reciprocal", 2 * element, KernelClass::pointwise);
  const BufferId coefficient = buffer(element);
  kernel("mul", 2 * element, KernelClass::pointwise);
  host.free(inverse);
  host.free(sum);
  const BufferId clamped = buffer(element);
  kernel("clamp", 2 * element, KernelClass::pointwise);
  for (int64_t l = 0; l < launches; ++l)
    kernel("foreach_mul", 2 * element * numel / launches, KernelClass::foreach_op);
  host.free(clamped);
  host.free(coefficient);
  host.free(total);
}

}  // namespace shardsim
