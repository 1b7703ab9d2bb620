#include "sim/schedule/ddp.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/schedule/multi_tensor.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/works.h"

namespace shardsim {

namespace {

constexpr Bytes kBroadcastBucket = 250 * kMiB;
constexpr size_t kMaxInFlight = 2;  // broadcasts of broadcast_coalesced
// Tensors that one launch of torch.cat takes (CAT_ARRAY_BATCH_SIZE in aten's Shape.cu).
constexpr int64_t kCatBatch = 128;

}  // namespace

Ddp::Ddp(Host& host, const Model& model, const Plan& plan, const Training& training)
    : Whole(host, model, plan, training), options_(training.ddp) {
  comm_ = host.communicator(plan.mesh.world(), 1, "world");
  index_.resize(model.params.size());
  for (uint32_t i = 0; i < sharded_.size(); ++i) index_[sharded_[i].id.v] = i;
  view_of_.assign(sharded_.size(), -1);
  bucket_of_.resize(sharded_.size());
  local_used_.assign(sharded_.size(), false);
  hooks_triggered_.assign(sharded_.size(), 0);
}

void Ddp::kernel(const char* name, Bytes bytes, DType type, GroupId group) {
  host_.launch(kCompute, host_.work(kernel_work(name, KernelClass::pointwise, bytes, type, group)));
}

void Ddp::copy(Bytes bytes, const char* name, GroupId group) {
  host_.launch(kCompute, host_.work(copy_work(WorkKind::CopyD2D, bytes, group, name)));
}

std::vector<BucketTensor> Ddp::tensors(const std::vector<uint32_t>& indices) const {
  std::vector<BucketTensor> out;
  out.reserve(indices.size());
  for (uint32_t i : indices) out.push_back({i, bytes(id(i)), dtype(id(i))});
  return out;
}

void Ddp::initialize() {
  Whole::initialize();
  if (options_.init_sync) {
    std::vector<Tensor> all;
    for (uint32_t i = 0; i < params_.size(); ++i)
      if (params_[i].valid()) all.push_back({params_[i], bytes({i}), dtype({i})});
    if (options_.broadcast_buffers)
      for (const Tensor& b : module_buffers()) all.push_back(b);
    broadcast_coalesced(all, {});
  }
  std::vector<uint32_t> registered;
  for (uint32_t i = 0; i < sharded_.size(); ++i) registered.push_back(i);
  first_assignment_ = initial_buckets(tensors(registered), options_);
  initialize_buckets(first_assignment_);
  if (options_.find_unused_parameters || options_.static_graph) {
    local_used_map_ =
        host_.buffer(4 * static_cast<Bytes>(sharded_.size()), kCompute, Category::buckets);
    host_.alloc(local_used_map_);
  }
}

std::vector<GradientBucket> Ddp::buckets(bool first_iteration) const {
  std::vector<GradientBucket> out;
  const auto add = [&](const std::vector<uint32_t>& variables) {
    GradientBucket& b = out.emplace_back();
    b.dtype = dtype(id(variables.front()));
    for (uint32_t i : variables) {
      b.params.push_back(id(i));
      b.bytes += bytes(id(i));
    }
  };
  if (first_iteration)
    for (const std::vector<uint32_t>& variables : first_assignment_) add(variables);
  else
    for (const Bucket& b : buckets_) add(b.variables);
  return out;
}

void Ddp::broadcast_coalesced(const std::vector<Tensor>& all, GroupId group) {
  std::vector<BucketTensor> sizes;
  for (uint32_t i = 0; i < all.size(); ++i) sizes.push_back({i, all[i].bytes, all[i].dtype});
  const Bytes limit = kBroadcastBucket;
  Buckets parts = assign_buckets(sizes, {&limit, 1});
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.front() < b.front(); });
  struct InFlight {
    const std::vector<uint32_t>* part;
    BufferId flat;  // none: the tensor itself
    EventId end;
  };
  std::vector<InFlight> in_flight;
  const auto finish = [&](const InFlight& f) {
    host_.wait_for_work(kCompute, f.end);
    if (!f.flat.valid()) return;
    for (uint32_t i : *f.part) copy(all[i].bytes, "broadcast_copy", group);
    host_.free(f.flat);
  };
  size_t finished = 0;
  for (const std::vector<uint32_t>& part : parts) {
    if (in_flight.size() - finished >= kMaxInFlight) finish(in_flight[finished++]);
    InFlight f{&part, {}, {}};
    Bytes total = 0;
    const DType type = all[part.front()].dtype;
    for (uint32_t i : part) total += all[i].bytes;
    if (part.size() > 1) {
      f.flat = host_.buffer(total, kCompute, Category::temporary);
      host_.alloc(f.flat);
      const int64_t launches = ceil_div(static_cast<int64_t>(part.size()), kCatBatch);
      const WorkId cat =
          host_.work(kernel_work("flatten", KernelClass::cat, 2 * total / launches, type, group));
      for (int64_t l = 0; l < launches; ++l) host_.launch(kCompute, cat);
    }
    const WorkId w = host_.work(collective_work(WorkKind::Broadcast, total, type, comm_, group,
                                                ReduceOp::none, "broadcast"));
    f.end =
        host_.async_collective(kCompute, w, {f.flat.valid() ? f.flat : all[part.front()].buffer});
    in_flight.push_back(f);
  }
  while (finished < in_flight.size()) finish(in_flight[finished++]);
}

void Ddp::root_pre_forward(uint32_t state) {
  if (!plan_.states[state].root) return;
  if (grad_enabled_ && sync_) {
    set_runtime_stats_and_log();
    prepare_for_forward();
  }
  if (grad_enabled_) rebuild_buckets();
  if (require_forward_param_sync_ && options_.broadcast_buffers && !module_buffers().empty())
    broadcast_coalesced(module_buffers(), {});
}

// The times of the iteration before, from four pairs of events.
void Ddp::set_runtime_stats_and_log() {
  if (!collects_runtime_stats()) return;
  const auto measure = [&](EventId start, EventId end) {
    if (!start.valid() || !end.valid()) return;
    host_.host_wait(start);
    host_.host_wait(end);
  };
  measure(events_.forward_start, events_.backward_compute_start);
  measure(events_.backward_compute_start, events_.backward_compute_end);
  measure(events_.backward_comm_start, events_.backward_comm_end);
  measure(events_.backward_comm_start, events_.backward_compute_end);
}

void Ddp::prepare_for_forward() {
  ++iterations_;
  if (collects_runtime_stats()) events_.forward_start = host_.record(kCompute);
}

bool Ddp::post_forward(uint32_t state, ModuleId, bool) {
  if (!plan_.states[state].root || !grad_enabled_) return false;
  require_forward_param_sync_ = sync_;
  if (sync_) prepare_for_backward();
  return false;
}

void Ddp::prepare_for_backward() {
  if (collects_runtime_stats()) events_.backward_compute_start = host_.record(kCompute);
  expect_autograd_hooks_ = true;
  first_autograd_hook_called_ = false;
  has_marked_unused_ = false;
  next_bucket_ = 0;
  for (Bucket& b : buckets_) b.pending = b.variables.size();
  hooks_left_ = hooks_triggered_;
  if (!dynamic_graph_find_unused()) return;
  unused_.clear();
  // The graph's leaves stand in a hash table by address: the last one registered comes first (seen
  // with two).
  for (uint32_t i = static_cast<uint32_t>(sharded_.size()); i-- > 0;)
    if (!used(id(i))) unused_.push_back(i);
}

bool Ddp::clones_output() const {
  return grad_enabled_ &&
         (dynamic_graph_find_unused() || (options_.static_graph && !delay_all_reduce_queued_));
}

void Ddp::output_gradient() {
  if (options_.static_graph && !delay_all_reduce_queued_) delay_all_reduce_queued_ = true;
}

void Ddp::rebuild_buckets() {
  if (require_finalize_)
    throw Error::at(
        "training.ddp", "parameters that took no part in the loss",
        "PyTorch raises RuntimeError in the next forward: \"Expected to have finished "
        "reduction in the prior iteration before starting a new one. This error indicates "
        "that your module has parameters that were not used in producing loss.\"; set "
        "find_unused_parameters: true, or freeze them");
  if (!should_rebuild_buckets() || rebuilt_order_.empty()) return;
  const Buckets assignment = rebuilt_buckets(tensors(rebuilt_order_), options_);
  sync_bucket_indices(assignment.size());
  rebuilt_ = true;
  rebuilt_order_.clear();
  // The work of the legacy backend holds what it reduced until the watchdog, which looks ten times a
  // second, has seen it end: the new buckets cannot lie where the old ones were.
  std::vector<size_t> held;
  if (training_.legacy_nccl && !host_.behaviour().internal_streams)
    for (const Bucket& b : buckets_)
      if (b.allocated) {
        ++storages_[b.storage].references;
        held.push_back(b.storage);
      }
  initialize_buckets(assignment);
  for (size_t storage : held) release(storage);
}

// Rank 0's assignment: every index and the number of buckets, then their sizes.
void Ddp::sync_bucket_indices(size_t buckets) {
  std::vector<BufferId> made;
  for (const Bytes n :
       {4 * static_cast<Bytes>(sharded_.size() + 1), 4 * static_cast<Bytes>(buckets)}) {
    made.push_back(host_.buffer(n, kCompute, Category::temporary));
    host_.alloc(made.back());
    host_.launch(kCompute, host_.work(copy_work(WorkKind::CopyH2D, n, {}, "bucket_indices")));
    const WorkId w = host_.work(collective_work(WorkKind::Broadcast, n, DType::fp32, comm_, {},
                                                ReduceOp::none, "broadcast_bucket_indices"));
    host_.wait_for_work(kCompute, host_.async_collective(kCompute, w, {made.back()}));
    host_.launch(kCompute, host_.work(copy_work(WorkKind::CopyD2H, n, {}, "bucket_indices")));
    host_.stream_sync(kCompute);
  }
  for (auto b = made.rbegin(); b != made.rend(); ++b) host_.free(*b);
}

void Ddp::release(size_t storage) {
  Storage& s = storages_[storage];
  if (--s.references == 0) host_.free(s.buffer);
}

void Ddp::initialize_buckets(const Buckets& assignment) {
  for (const Bucket& b : buckets_)
    if (b.allocated) release(b.storage);
  buckets_.clear();
  for (const std::vector<uint32_t>& variables : assignment) {
    const size_t number = buckets_.size();
    Bucket& b = buckets_.emplace_back();
    b.variables = variables;
    b.dtype = dtype(id(variables.front()));
    b.group = group(id(variables.back()));
    int64_t numel = 0;
    for (uint32_t i : variables) {
      bucket_of_[i] = number;
      numel += sharded_[i].local;
    }
    const int64_t element = bytes_of(b.dtype);
    b.bytes = numel * element;
    b.storage = storages_.size();
    storages_.push_back({host_.buffer(b.bytes, kCompute, Category::buckets, b.group), 0});
    const auto pointwise = [&](const char* name, Bytes bytes, DType type) {
      return host_.work(kernel_work(name, KernelClass::pointwise, bytes, type, b.group));
    };
    using CommHook = DdpOptions::CommHook;
    const bool compresses =
        options_.comm_hook != CommHook::none && options_.comm_hook != CommHook::allreduce;
    const DType sent = !compresses                                     ? b.dtype
                       : options_.comm_hook == CommHook::bf16_compress ? DType::bf16
                                                                       : DType::fp16;
    b.divide = pointwise("div", 2 * b.bytes, b.dtype);
    if (compresses) {
      const Bytes small = numel * bytes_of(sent);
      b.compressed = host_.buffer(small, kCompute, Category::buckets, b.group);
      b.compress = pointwise("compress", b.bytes + small, sent);
      b.divide_compressed = pointwise("div", 2 * small, sent);
      b.decompress = pointwise("decompress", b.bytes + small, b.dtype);
    }
    b.all_reduce = host_.work(collective_work(WorkKind::AllReduce, numel * bytes_of(sent), sent,
                                              comm_, b.group, ReduceOp::sum, "all_reduce"));
    if (!options_.lazy_bucket_allocation) allocate(b);
  }
}

void Ddp::allocate(Bucket& bucket) {
  if (bucket.allocated) return;
  bucket.allocated = true;
  // Lazy buckets: views may still hold the last one.
  if (storages_[bucket.storage].references > 0) {
    bucket.storage = storages_.size();
    storages_.push_back({host_.buffer(bucket.bytes, kCompute, Category::buckets, bucket.group), 0});
  }
  host_.alloc(storages_[bucket.storage].buffer);
  storages_[bucket.storage].references = 1;
  if (!options_.gradient_as_bucket_view) return;
  // initialize_bucket_views: gradients that are there move in.
  for (uint32_t i : bucket.variables) {
    if (!grad(i).valid()) continue;
    copy(bytes(id(i)), "grad_to_bucket", group(id(i)));
    point_at_bucket(i);
  }
}

// .grad becomes the view of the gradient's place in its bucket.
void Ddp::point_at_bucket(uint32_t index) {
  const size_t storage = buckets_[bucket_of_[index]].storage;
  ++storages_[storage].references;
  if (view_of_[index] >= 0)
    release(static_cast<size_t>(view_of_[index]));
  else if (grad(index).valid())
    host_.free(grad(index));
  view_of_[index] = static_cast<int32_t>(storage);
  grad(index) = storages_[storage].buffer;
}

void Ddp::drop_grads() {
  for (uint32_t i = 0; i < sharded_.size(); ++i) {
    if (!grad(i).valid()) continue;
    if (view_of_[i] >= 0)
      release(static_cast<size_t>(view_of_[i]));
    else
      host_.free(grad(i));
    view_of_[i] = -1;
    grad(i) = {};
  }
}

void Ddp::autograd_hook(uint32_t index) {
  if (!first_autograd_hook_called_) {
    first_autograd_hook_called_ = true;
    ++backward_calls_;
  }
  if (!expect_autograd_hooks_) return;
  if (dynamic_graph_find_unused() || static_graph_first_iteration()) local_used_[index] = true;
  if (static_graph_first_iteration()) {
    ++hooks_triggered_[index];
    return;
  }
  if (!has_marked_unused_) {
    has_marked_unused_ = true;
    for (uint32_t i : unused_) mark_variable_ready(i);
  }
  if (static_graph_after_first_iteration() && --hooks_left_[index] != 0) return;
  if (should_rebuild_buckets()) rebuilt_order_.push_back(index);
  mark_variable_ready(index);
}

void Ddp::mark_variable_ready(uint32_t index) {
  require_finalize_ = true;
  Bucket& bucket = buckets_[bucket_of_[index]];
  mark_variable_ready_dense(index);
  if (--bucket.pending == 0) {
    if (options_.batched_grad_copy) copy_grads_to_bucket(bucket);
    mark_bucket_ready(bucket_of_[index]);
  }
  if (next_bucket_ < buckets_.size()) return;
  if (dynamic_graph_find_unused()) all_reduce_local_used_map();
  finalize_queued_ = true;
}

void Ddp::mark_variable_ready_dense(uint32_t index) {
  Bucket& bucket = buckets_[bucket_of_[index]];
  allocate(bucket);
  const ParamId p = id(index);
  const Bytes n = bytes(p);
  if (!grad(index).valid()) {
    host_.launch(kCompute,
                 host_.work(copy_work(
                     host_.behaviour().zeros_by_kernel ? WorkKind::Kernel : WorkKind::Memset, n,
                     group(p), "zero_bucket")));
    return;
  }
  if (options_.batched_grad_copy) return;
  const bool hook = options_.comm_hook != DdpOptions::CommHook::none;
  if (view_of_[index] == static_cast<int32_t>(bucket.storage)) {
    if (!hook) kernel("div", 2 * n, bucket.dtype, group(p));
    return;
  }
  if (hook)
    copy(n, "grad_to_bucket", group(p));
  else
    kernel("grad_to_bucket", 2 * n, bucket.dtype, group(p));
  if (options_.gradient_as_bucket_view) point_at_bucket(index);
}

// batched_grad_copy: one foreach copy of a bucket's gradients, and its division.
void Ddp::copy_grads_to_bucket(Bucket& bucket) {
  ForeachLaunches launches(host_.behaviour(), 2);
  Bytes total = 0;
  for (uint32_t i : bucket.variables) {
    if (!grad(i).valid() || view_of_[i] == static_cast<int32_t>(bucket.storage)) continue;
    launches.add(sharded_[i].local);
    total += bytes(id(i));
  }
  for (int64_t l = 0; l < launches.count(); ++l)
    host_.launch(kCompute,
                 host_.work(kernel_work("foreach_copy", KernelClass::foreach_op,
                                        2 * total / launches.count(), bucket.dtype, bucket.group)));
  if (options_.gradient_as_bucket_view)
    for (uint32_t i : bucket.variables)
      if (grad(i).valid() && view_of_[i] != static_cast<int32_t>(bucket.storage))
        point_at_bucket(i);
  if (options_.comm_hook == DdpOptions::CommHook::none) host_.launch(kCompute, bucket.divide);
}

// Buckets are reduced in their order.
void Ddp::mark_bucket_ready(size_t bucket) {
  if (bucket > next_bucket_) return;
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0; ++next_bucket_) {
    if (next_bucket_ == 0 && collects_runtime_stats())
      events_.backward_comm_start = host_.record(kCompute);
    all_reduce_bucket(buckets_[next_bucket_]);
  }
}

void Ddp::all_reduce_bucket(Bucket& b) {
  using CommHook = DdpOptions::CommHook;
  const BufferId whole = storages_[b.storage].buffer;
  const bool compresses = b.compressed.valid();
  if (compresses) {
    host_.alloc(b.compressed);
    host_.launch(kCompute, b.compress);
    host_.launch(kCompute, b.divide_compressed);
  } else if (options_.comm_hook == CommHook::allreduce) {
    host_.launch(kCompute, b.divide);
  }
  b.work = host_.issue(kCompute, b.all_reduce, {compresses ? b.compressed : whole});
  b.future = host_.future_of(kCompute, b.work);
  if (options_.comm_hook == CommHook::none) return;
  // A future's callback runs on a stream of its own.
  const StreamId stream = host_.pool_stream();
  host_.wait(stream, b.future);
  if (compresses) host_.launch(stream, b.decompress);
  b.future = host_.record(stream);
  if (!compresses) return;
  host_.use_on(b.compressed, stream);
  host_.free(b.compressed);
}

void Ddp::all_reduce_local_used_map() {
  const Bytes n = 4 * static_cast<Bytes>(sharded_.size());
  host_.pinned_copy(kCompute, host_.work(copy_work(WorkKind::CopyH2D, n, {}, "local_used_map")));
  local_used_work_ =
      host_.issue(kCompute,
                  host_.work(collective_work(WorkKind::AllReduce, n, DType::fp32, comm_, {},
                                             ReduceOp::sum, "all_reduce_local_used_map")),
                  {local_used_map_});
}

// The first iteration of a static graph: everything behind the backward.
void Ddp::delay_all_reduce() {
  if (collects_runtime_stats()) {
    events_.backward_compute_end = host_.record(kCompute);
    events_.backward_comm_start = host_.record(kCompute);
  }
  all_reduce_local_used_map();
  unused_.clear();
  for (uint32_t i = 0; i < sharded_.size(); ++i) {
    if (hooks_triggered_[i] == 0) unused_.push_back(i);
    require_finalize_ = true;
    mark_variable_ready_dense(i);
  }
  for (Bucket& b : buckets_) {
    if (options_.batched_grad_copy) copy_grads_to_bucket(b);
    all_reduce_bucket(b);
  }
  finalize_reduction();
}

void Ddp::end_of_backward() {
  if (delay_all_reduce_queued_ && !delay_all_reduce_done_) {
    delay_all_reduce_done_ = true;
    delay_all_reduce();
    return;
  }
  if (!finalize_queued_) return;
  finalize_queued_ = false;
  if (collects_runtime_stats()) events_.backward_compute_end = host_.record(kCompute);
  if (static_graph_after_first_iteration() && should_rebuild_buckets())
    for (uint32_t i : unused_) rebuilt_order_.push_back(i);
  finalize_reduction();
}

void Ddp::finalize_reduction() {
  expect_autograd_hooks_ = false;
  require_finalize_ = false;
  for (Bucket& b : buckets_) {
    host_.wait(kCompute, b.future);
    if (options_.lazy_bucket_allocation) host_.wait_for_work(kCompute, b.work.end);
    finalize_bucket(b);
  }
  if (options_.lazy_bucket_allocation)
    for (Bucket& b : buckets_) {
      release(b.storage);
      b.allocated = false;
    }
  if ((dynamic_graph_find_unused() || static_graph_first_iteration()) && !local_used_reduced_)
    host_.wait_for_work(kCompute, local_used_work_.end);
  if (dynamic_graph_find_unused()) {
    local_used_.assign(local_used_.size(), false);
    local_used_reduced_ = false;
  }
  if (collects_runtime_stats()) events_.backward_comm_end = host_.record(kCompute);
}

// A parameter that this rank has not used: the others are asked once.
bool Ddp::globally_unused(uint32_t index) {
  if (!options_.find_unused_parameters && !options_.static_graph) return false;
  const bool unused = options_.static_graph ? hooks_triggered_[index] == 0 : !local_used_[index];
  if (!unused || local_used_reduced_) return unused;
  host_.wait_for_work(kCompute, local_used_work_.end);
  host_.launch(kCompute,
               host_.work(copy_work(WorkKind::CopyD2H, 4 * static_cast<Bytes>(sharded_.size()), {},
                                    "local_used_map")));
  host_.stream_sync(kCompute);
  local_used_reduced_ = true;
  return true;
}

void Ddp::finalize_bucket(Bucket& bucket) {
  ForeachLaunches launches(host_.behaviour(), 2);
  Bytes total = 0;
  for (uint32_t i : bucket.variables) {
    if (globally_unused(i) || options_.gradient_as_bucket_view) continue;
    if (options_.batched_grad_copy) {
      launches.add(sharded_[i].local);
      total += bytes(id(i));
    } else {
      copy(bytes(id(i)), "bucket_to_grad", group(id(i)));
    }
  }
  for (int64_t l = 0; l < launches.count(); ++l)
    host_.launch(kCompute,
                 host_.work(kernel_work("foreach_copy", KernelClass::foreach_op,
                                        2 * total / launches.count(), bucket.dtype, bucket.group)));
}

}  // namespace shardsim
