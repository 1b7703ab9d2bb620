#include "sim/schedule/deepspeed.h"

#include <algorithm>

#include "sim/model/operators.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/works.h"

namespace shardsim {

namespace {

// Tensors that one launch of torch.cat takes (CAT_ARRAY_BATCH_SIZE in aten's Shape.cu).
constexpr size_t kCatBatch = 128;
constexpr int64_t kTimerStart = 2;  // ThroughputTimer's start_step

}  // namespace

DeepSpeedEngine::DeepSpeedEngine(Host& host, const Model& model, const Plan& plan,
                                 const Training& training, int sms)
    : host_(host),
      model_(model),
      plan_(plan),
      training_(training),
      options_(training.zero),
      sms_(sms),
      ranks_(training.mesh.shard),
      comm_(host.communicator(ranks_, 1, "data parallel")) {}

BufferId DeepSpeedEngine::make(Bytes bytes, StreamId pool, Category category, GroupId group) {
  std::vector<BufferId>& idle = idle_[{bytes, pool, static_cast<int>(category), group.v}];
  BufferId b;
  if (idle.empty()) {
    b = host_.buffer(bytes, pool, category, group);
  } else {
    b = idle.back();
    idle.pop_back();
  }
  host_.alloc(b);
  return b;
}

void DeepSpeedEngine::drop(BufferId b) {
  host_.free(b);
  const Buffer& x = host_.schedule().buffers[b.v];
  idle_[{x.bytes, x.pool, static_cast<int>(x.category), x.group.v}].push_back(b);
}

WorkId DeepSpeedEngine::kernel(const char* name, KernelClass cls, Bytes bytes, GroupId group) {
  const auto [at, made] = works_.try_emplace(
      {static_cast<int>(WorkKind::Kernel), static_cast<int>(cls), name, bytes, group.v, 0});
  if (made) at->second = host_.work(kernel_work(name, cls, bytes, DType::bf16, group));
  return at->second;
}

WorkId DeepSpeedEngine::copy(WorkKind kind, const char* name, Bytes bytes, GroupId group) {
  const auto [at, made] = works_.try_emplace({static_cast<int>(kind), 0, name, bytes, group.v, 0});
  if (made) at->second = host_.work(copy_work(kind, bytes, group, name));
  return at->second;
}

WorkId DeepSpeedEngine::collective(WorkKind kind, const char* name, Bytes bytes, DType type,
                                   GroupId group, uint32_t tensors, int32_t root) {
  const auto [at, made] = works_.try_emplace(
      {static_cast<int>(kind), static_cast<int>(tensors), name, bytes, group.v, root});
  const ReduceOp op =
      kind == WorkKind::AllGather || kind == WorkKind::Broadcast ? ReduceOp::none : ReduceOp::sum;
  if (made) {
    Work w = collective_work(kind, bytes, type, comm_, group, op, name);
    w.tensors = tensors;
    w.root = root;
    at->second = host_.work(w);
  }
  return at->second;
}

void DeepSpeedEngine::zeros(Bytes bytes, StreamId stream) {
  host_.launch(stream, copy(host_.behaviour().zeros_by_kernel ? WorkKind::Kernel : WorkKind::Memset,
                            "zeros", bytes));
}

void DeepSpeedEngine::item(Bytes bytes) {
  if (std::find(pinned_.begin(), pinned_.end(), bytes) == pinned_.end()) {
    pinned_.push_back(bytes);
    host_.pinned_alloc(bytes);
  }
  host_.launch(kCompute, copy(WorkKind::CopyD2H, "item", bytes));
  host_.stream_sync(kCompute);
}

void DeepSpeedEngine::full_reduction(const char* name, int64_t numel, Bytes bytes, Bytes element) {
  const Bytes staging = full_reduction_staging(numel, sms_) / 4 * element;
  BufferId scratch, semaphore;
  if (staging > 0) {
    scratch = make(staging, kCompute, Category::optimizer);
    semaphore = make(4, kCompute, Category::optimizer);
    host_.launch(kCompute, copy(WorkKind::Memset, "semaphore", 4));
  }
  host_.launch(kCompute, kernel(name, KernelClass::reduction, bytes));
  if (staging > 0) {
    drop(semaphore);
    drop(scratch);
  }
}

bool DeepSpeedEngine::cat(StreamId stream, size_t tensors, Bytes bytes, const char* name) {
  if (tensors < 2) return false;
  const size_t launches = (tensors + kCatBatch - 1) / kCatBatch;
  for (size_t i = 0; i < launches; ++i)
    host_.launch(stream, kernel(name, KernelClass::cat, 2 * bytes / static_cast<Bytes>(launches)));
  return true;
}

std::vector<BufferId> DeepSpeedEngine::cast_and_broadcast() {
  std::vector<BufferId> made(model_.params.size());
  const auto each = [&](auto&& f) {
    for (uint32_t i = 0; i < model_.params.size(); ++i)
      if (!model_.params[i].alias.valid()) f(i, model_.params[i].shape.numel());
  };
  const auto group = [&](uint32_t i) {
    return GroupId{static_cast<uint32_t>(std::max(plan_.group_of_param[i], 0))};
  };
  const Bytes before = bytes_of(options_.made_in);
  each([&](uint32_t i, int64_t numel) {
    made[i] = make(numel * before, kCompute, Category::parameters, group(i));
  });
  if (options_.made_in != DType::bf16)
    each([&](uint32_t i, int64_t numel) {
      const BufferId low = make(2 * numel, kCompute, Category::parameters, group(i));
      pointwise("cast", (before + 2) * numel);
      drop(made[i]);
      made[i] = low;
    });
  each([&](uint32_t i, int64_t numel) {
    host_.collective(kCompute,
                     collective(WorkKind::Broadcast, "broadcast", 2 * numel, DType::bf16, group(i)),
                     {made[i]});
  });
  return made;
}

void DeepSpeedEngine::forward_prologue() {
  timing_ = timing_ || global_steps_ >= kTimerStart;
  if (timing_) host_.device_sync();
}

// loss / gradient_accumulation_steps, and its product with the loss scale.
void DeepSpeedEngine::scale_loss() {
  for (const char* name : {"div", "mul"}) {
    losses_.push_back(make(4, kCompute, Category::activations));
    pointwise(name, 8);
  }
}

BufferId DeepSpeedEngine::scaled_gradient(BufferId) {
  const BufferId product = make(4, kCompute, Category::backward);
  pointwise("mul", 8);
  const BufferId quotient = make(4, kCompute, Category::backward);
  pointwise("div", 8);
  drop(product);
  return quotient;
}

void DeepSpeedEngine::end_of_loss() {
  for (auto b = losses_.rbegin(); b != losses_.rend(); ++b) drop(*b);
  losses_.clear();
}

void DeepSpeedEngine::engine_step() {
  if (boundary_) {
    optimizer_step();
    // _global_grad_norm stays until the next one is there.
    if (!global_grad_norm_.valid())
      global_grad_norm_ = make(4, kCompute, Category::optimizer_state);
    ++global_steps_;
  }
  if (timing_) host_.device_sync();
}

}  // namespace shardsim
