// FullyShardedDataParallel.clip_grad_norm_: the norm of every local gradient, their norm, one
// all-reduce of 4 bytes on the default stream, and the scaling, gradient by gradient. Read off a
// recording, allocations included.
#include "sim/model/operators.h"
#include "sim/schedule/clip.h"
#include "sim/schedule/fsdp1.h"
#include "sim/schedule/host_optimizer.h"
#include "sim/schedule/streams.h"

namespace shardsim {

void Fsdp1::clip_grad_norm(const std::vector<uint32_t>& with_grad) {
  const auto buffer = [&](Bytes bytes) {
    const BufferId b = host_.buffer(bytes, kCompute, Category::optimizer);
    host_.alloc(b);
    return b;
  };
  const auto launch = [&](WorkKind kind, const char* name, Bytes bytes, KernelClass cls) {
    Work w;
    w.kind = kind;
    w.kernel = cls;
    w.bytes = bytes;
    w.name = name;
    host_.launch(kCompute, host_.work(w));
  };
  const auto pointwise = [&](const char* name, Bytes bytes) {
    launch(WorkKind::Kernel, name, bytes, KernelClass::pointwise);
  };
  const auto norm = [&](int64_t numel, Bytes bytes) {
    const BufferId out = buffer(4);
    const Bytes staging = full_reduction_staging(numel, sms_);
    BufferId scratch, semaphore;
    if (staging > 0) {
      scratch = buffer(staging);
      semaphore = buffer(4);
      launch(WorkKind::Memset, "semaphore", 4, KernelClass::pointwise);
    }
    launch(WorkKind::Kernel, "norm", bytes, KernelClass::reduction);
    if (staging > 0) {
      host_.free(semaphore);
      host_.free(scratch);
    }
    return out;
  };
  if (!zero_scalar_.valid()) {
    zero_scalar_ = buffer(4);
    launch(WorkKind::CopyH2D, "zero_scalar", 4, KernelClass::pointwise);
    host_.stream_sync(kCompute);
  }
  const bool offload = options_.cpu_offload;
  // The gradients are on the host, and so is everything but the all-reduce of their norm.
  const auto scan_on_host = [&] {
    HostWork scan;
    scan.name = "CPU gradient clipping";
    for (uint32_t i : with_grad) add_passes(scan, kHostScan, sharded_[i].local, stored_);
    if (scan.elements > 0) host_.work_on_host(host_.host_work(scan));
  };
  if (!shards_ && offload) {
    scan_on_host();
    scan_on_host();
    return;
  }
  if (!shards_) {
    std::vector<int64_t> numels;
    numels.reserve(with_grad.size());
    for (uint32_t i : with_grad) numels.push_back(sharded_[i].local);
    return clip_whole_grads(host_, stored_, numels);
  }
  std::vector<BufferId> norms;
  if (!offload) {
    norms.reserve(with_grad.size());
    for (uint32_t i : with_grad)
      norms.push_back(norm(sharded_[i].local, stored(sharded_[i].local)));
    if (norms.empty()) return;
  }
  BufferId local;
  if (offload) {
    scan_on_host();  // norms
    local = buffer(4);
    launch(WorkKind::CopyH2D, "norm", 4, KernelClass::pointwise);
    host_.stream_sync(kCompute);
  } else {
    const auto n = static_cast<int64_t>(norms.size());
    const BufferId stack = buffer(4 * n);
    launch(n == 1 ? WorkKind::CopyD2D : WorkKind::Kernel, "stack", 4 * n, KernelClass::cat);
    for (auto b = norms.rbegin(); b != norms.rend(); ++b) host_.free(*b);
    local = norm(n, 4 * n);
    host_.free(stack);
  }
  BufferId power = buffer(4);
  pointwise("pow", 8);
  Work reduce;
  reduce.kind = WorkKind::AllReduce;
  reduce.op = ReduceOp::sum;
  reduce.bytes = 4;
  reduce.comm = shard_comm_;
  reduce.name = "clip_grad_norm";
  host_.collective(kCompute, host_.work(reduce), {power});
  const BufferId total = buffer(4);
  pointwise("pow", 8);
  host_.free(power);
  if (offload) {
    launch(WorkKind::CopyD2H, "norm", 4, KernelClass::pointwise);
    host_.stream_sync(kCompute);
    scan_on_host();  // the factor
    host_.free(total);
    host_.free(local);
    return;
  }
  // clip_coef = max_norm / (total + 1e-6), clamped to 1.
  const BufferId sum = buffer(4);
  pointwise("add", 8);
  const BufferId inverse = buffer(4);
  pointwise("reciprocal", 8);
  const BufferId coefficient = buffer(4);
  pointwise("mul", 8);
  host_.free(inverse);
  host_.free(sum);
  const BufferId clamped = buffer(4);
  pointwise("clamp", 8);
  for (uint32_t i : with_grad) {
    BufferId cast;
    if (stored_ != DType::fp32) {
      cast = buffer(bytes_of(stored_));
      pointwise("cast", 8);
    }
    pointwise("mul", 2 * stored(sharded_[i].local));
    if (cast.valid()) host_.free(cast);
  }
  host_.free(local);
  host_.free(coefficient);
  host_.free(clamped);
  host_.free(total);
}

}  // namespace shardsim
