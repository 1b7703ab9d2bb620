#include "sim/schedule/fsdp1.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/works.h"

namespace shardsim {

namespace {

constexpr size_t kMaxInflightAllGathers = 2;
// Tensors that one launch of torch.cat takes (CAT_ARRAY_BATCH_SIZE in aten's Shape.cu; recorded
// with 165 parameters in one unit).
constexpr int64_t kCatBatch = 128;

}  // namespace

FlatDivide flat_divide(int64_t world) {
  int64_t f = 1;
  while (world % f == 0 && world / f > f) f *= 2;
  return {static_cast<double>(f), static_cast<double>(world) / static_cast<double>(f)};
}

Fsdp1::Fsdp1(Host& host, const Model& model, const Plan& plan, const Training& training, int sms)
    : host_(host),
      model_(model),
      plan_(plan),
      training_(training),
      options_(training.fsdp1),
      sms_(sms),
      stored_(training.precision.storage),
      compute_(training.precision.compute.value_or(stored_)),
      // Without reduce_dtype gradients are reduced in param_dtype.
      reduce_(training.precision.reduce.value_or(compute_)) {
  const Mesh& mesh = plan.mesh;
  hybrid_ = mesh.replicate > 1;
  shards_ = options_.sharding_strategy != ShardingStrategy::no_shard && mesh.shard > 1;
  // The views made by the constructor live on where nothing replaces them, and with them an
  // AccumulateGrad on the stream they were made on (recorded).
  if (!shards_ && !mixed() && !options_.use_orig_params) leaves_ = kCompute;
  if (hybrid_) replicate_comm_ = host.communicator(mesh.replicate, mesh.shard, "replicate");
  shard_comm_ = host.communicator(mesh.shard, 1, "shard");
  members_run_.assign(plan.states.size(), 0);
  piece_of_.assign(model.params.size(), {0, 0});
  units_.resize(plan.groups.size());
  for (size_t i = 0; i < units_.size(); ++i) {
    Unit& u = units_[i];
    u.plan = &plan.groups[i];
    u.id = {static_cast<uint32_t>(i)};
    u.root = plan.states[plan.groups[i].state].root;
    define(u);
  }
  for (const ShardState& s : plan.states)
    if (s.group.valid()) all_handles_.push_back(s.group.v);
}

bool Fsdp1::reshards_after_forward() const {
  return options_.sharding_strategy == ShardingStrategy::full_shard ||
         options_.sharding_strategy == ShardingStrategy::hybrid_shard;
}

void Fsdp1::define(Unit& u) {
  const Group& p = *u.plan;
  const int64_t bc = bytes_of(compute_), bp = bytes_of(stored_), br = bytes_of(reduce_);
  const int64_t l = p.flat, s = p.shard, whole = shards_ ? p.ranks * s : l;
  const auto buffer = [&](Bytes bytes, StreamId pool, Category c) {
    return host_.buffer(bytes, pool, c, u.id);
  };
  u.trains = false;
  int64_t end = 0;
  const auto pad = [&](int64_t numel) {
    Piece x;
    x.numel = numel;
    u.pieces.push_back(x);
  };
  for (const ShardedParam& q : p.params) {
    if (q.offset > end) pad(q.offset - end);
    piece_of_[q.id.v] = {u.id.v, static_cast<uint32_t>(u.pieces.size())};
    Piece x;
    x.param = q.id;
    x.numel = q.numel;
    u.pieces.push_back(x);
    end = q.offset + q.numel;
    u.trains = u.trains || !model_.params[q.id.v].frozen;
  }
  if (l > end) pad(l - end);

  u.low = buffer((shards_ ? s : l) * bc, kPreUnshard, Category::all_gather_buffers);
  u.cast_shard = host_.work(kernel_work("all_gather_cast", KernelClass::pointwise,
                                        (shards_ ? s : l) * (bp + bc), compute_, u.id));
  const int64_t own = shards_ ? s : l;
  if (options_.cpu_offload) {
    u.device_shard = buffer(own * bp, kPreUnshard, Category::all_gather_buffers);
    u.h2d = host_.work(copy_work(WorkKind::CopyH2D, own * bp, u.id, "shard"));
    u.d2h = host_.work(copy_work(WorkKind::CopyD2H, own * bp, u.id, "gradient"));
  }
  if (shards_) {
    u.full_stored = buffer(whole * bp, kCompute, Category::unsharded_parameters);
    u.gather_stored = host_.work(collective_work(WorkKind::AllGather, whole * bp, stored_,
                                                 shard_comm_, u.id, ReduceOp::none, "all_gather"));
    u.full = buffer(whole * bc, kUnshard, Category::unsharded_parameters);
    u.gather = host_.work(collective_work(WorkKind::AllGather, whole * bc, compute_, shard_comm_,
                                          u.id, ReduceOp::none, "all_gather"));
    for (const WorkId gather : {u.gather_stored, u.gather})
      host_.schedule().works[gather.v].tensors = static_cast<uint32_t>(p.params.size());
  }
  if (!u.trains) return;
  for (const ShardedParam& q : p.params) {
    // PyTorch makes a gradient like the parameter first where the view's shape or type is another.
    const bool same =
        !mixed() && (!shards_ || (q.local == q.numel && model_.params[q.id.v].shape.rank == 1));
    if (options_.use_orig_params && !same && q.local > 0)
      u.pieces[piece_of_[q.id.v].second].placeholder =
          buffer(stored(q.local), kUnshard, Category::temporary);
  }
  for (Piece& x : u.pieces) {
    x.zeros = buffer(x.numel * bc, kUnshard, Category::unsharded_gradients);
    x.fill = host_.work(
        copy_work(host_.behaviour().zeros_by_kernel ? WorkKind::Kernel : WorkKind::Memset,
                  x.numel * bc, u.id, "zeros"));
  }
  for (BufferId& b : u.flat_grad) b = buffer(l * bc, kUnshard, Category::unsharded_gradients);
  const int64_t launches = ceil_div(static_cast<int64_t>(u.pieces.size()), kCatBatch);
  u.cat = u.pieces.size() == 1
              ? host_.work(copy_work(WorkKind::CopyD2D, l * bc, u.id, "flat_gradient"))
              : host_.work(kernel_work("flat_gradient", KernelClass::cat, 2 * l * bc / launches,
                                       compute_, u.id));
  u.add_flat = host_.work(kernel_work("add", KernelClass::pointwise, 3 * l * bc, compute_, u.id));
  // Without sharding, in the stored type it is the gradient.
  const bool kept = !shards_ && reduce_ == stored_;
  u.reduce_copy =
      buffer(l * br, kPostBackward, kept ? Category::gradients : Category::reduce_scatter_buffers);
  u.cast_grad =
      host_.work(kernel_work("cast", KernelClass::pointwise, l * (bc + br), reduce_, u.id));
  const FlatDivide divide = flat_divide(plan_.mesh.world());
  const int64_t out = shards_ ? s : l;
  if (shards_ && whole != l) {
    u.pad_copy = buffer(whole * br, kPostBackward, Category::reduce_scatter_buffers);
    u.pad_fill =
        host_.work(kernel_work("pad_fill", KernelClass::pointwise, whole * br, reduce_, u.id));
    u.pad_copy_work = host_.work(copy_work(WorkKind::CopyD2D, l * br, u.id, "pad_copy"));
  }
  if (divide.pre > 1)
    u.pre_divide =
        host_.work(kernel_work("div", KernelClass::pointwise, 2 * whole * br, reduce_, u.id));
  u.reduce = host_.work(collective_work(shards_ ? WorkKind::ReduceScatter : WorkKind::AllReduce,
                                        whole * br, reduce_, shard_comm_, u.id, ReduceOp::sum,
                                        shards_ ? "reduce_scatter" : "all_reduce"));
  if (hybrid_)
    u.all_reduce = host_.work(collective_work(WorkKind::AllReduce, out * br, reduce_,
                                              replicate_comm_, u.id, ReduceOp::sum, "all_reduce"));
  if (divide.post > 1)
    u.post_divide =
        host_.work(kernel_work("div", KernelClass::pointwise, 2 * out * br, reduce_, u.id));
  const bool casts = reduce_ != stored_;
  if (casts) u.reduced = buffer(out * br, kPostBackward, Category::reduce_scatter_buffers);
  for (BufferId& b : u.sharded)
    b = buffer(out * bp, casts && hybrid_ ? kAllReduce : kPostBackward, Category::gradients);
  u.cast_sharded =
      host_.work(kernel_work("cast", KernelClass::pointwise, out * (br + bp), stored_, u.id));
  u.add_sharded =
      host_.work(kernel_work("add", KernelClass::pointwise, 3 * out * bp, stored_, u.id));
  if (options_.keep_low_precision_grads && mixed()) {
    u.low_grad = buffer(out * bc, kCompute, Category::gradients);
    u.cast_low =
        host_.work(kernel_work("cast", KernelClass::pointwise, out * (bp + bc), compute_, u.id));
  }
}

// The constructor, units bottom-up: its parameters are made, flattened, and the flat parameter's
// chunk is cloned.
void Fsdp1::initialize() {
  const auto temporary = [&](Bytes bytes, GroupId group) {
    const BufferId b = host_.buffer(bytes, kCompute, Category::parameters, group);
    host_.alloc(b);
    return b;
  };
  const auto move_to_host = [&](BufferId b) {
    host_.launch(kCompute,
                 host_.work(copy_work(WorkKind::CopyD2H, host_.schedule().buffers[b.v].bytes, {},
                                      "offload")));
    host_.stream_sync(kCompute);
  };
  std::vector<BufferId> made(model_.params.size());
  // Tied weights can't be made unit by unit: the whole model is made first.
  const bool tied = std::any_of(model_.params.begin(), model_.params.end(),
                                [](const Param& p) { return p.alias.valid(); });
  if (tied)
    for (uint32_t i = 0; i < model_.params.size(); ++i) {
      const Param& p = model_.params[i];
      made[i] = temporary(stored(p.shape.numel()), {});
      if (p.alias.valid()) host_.free(made[i]);
    }
  for (Unit& u : units_) {
    const Group& p = *u.plan;
    if (u.root)
      for (int64_t n : model_.architecture.buffers)
        module_buffers_.push_back(temporary(stored(n), {}));
    if (!tied) {
      // _get_modules_to_materialize goes breadth first.
      std::vector<uint32_t> order;
      for (uint32_t i = 0; i < p.params.size(); ++i) order.push_back(i);
      const auto depth = [&](uint32_t i) {
        int d = 0;
        for (ModuleId m = model_.params[p.params[i].id.v].module; m.v != 0;
             m = model_.modules[m.v].parent)
          ++d;
        return d;
      };
      std::stable_sort(order.begin(), order.end(),
                       [&](uint32_t a, uint32_t b) { return depth(a) < depth(b); });
      for (uint32_t i : order) made[p.params[i].id.v] = temporary(stored(p.params[i].numel), u.id);
    }
    std::vector<BufferId> padding;
    for (const Piece& x : u.pieces) {
      if (x.param.valid()) continue;
      const BufferId ones = temporary(stored(x.numel), u.id);
      host_.launch(kCompute, host_.work(kernel_work("fill", KernelClass::pointwise, stored(x.numel),
                                                    stored_, u.id)));
      padding.push_back(temporary(stored(x.numel), u.id));
      host_.launch(kCompute, host_.work(kernel_work("mul", KernelClass::pointwise,
                                                    2 * stored(x.numel), stored_, u.id)));
      host_.free(ones);
    }
    const BufferId flat = temporary(stored(p.flat), u.id);
    host_.launch(kCompute,
                 u.pieces.size() == 1
                     ? host_.work(copy_work(WorkKind::CopyD2D, stored(p.flat), u.id, "flatten"))
                     : host_.work(kernel_work("flatten", KernelClass::cat, 2 * stored(p.flat),
                                              stored_, u.id)));
    for (BufferId b : padding) host_.free(b);
    if (shards_) {
      const int64_t local = std::min(p.shard, p.flat);
      BufferId chunk = temporary(stored(local), u.id);
      host_.launch(kCompute,
                   host_.work(copy_work(WorkKind::CopyD2D, stored(local), u.id, "clone_shard")));
      if (local < p.shard) {
        const BufferId padded = temporary(stored(p.shard), u.id);
        host_.free(chunk);
        chunk = padded;
      }
      host_.free(flat);
      if (options_.cpu_offload) {
        move_to_host(chunk);
        host_.free(chunk);
      }
    } else if (options_.cpu_offload) {
      move_to_host(flat);
      if (options_.use_orig_params)
        host_.free(flat);
      else
        u.kept_flat = flat;
    }
    if (options_.use_orig_params) {
      for (const ShardedParam& q : p.params) host_.free(made[q.id.v]);
    } else {
      for (auto q = p.params.rbegin(); q != p.params.rend(); ++q) host_.free(made[q->id.v]);
    }
  }
  // parameters(): the modules in pre-order.
  if (!options_.use_orig_params) {
    for (uint32_t i : all_handles_)
      if (units_[i].trains)
        sharded_.push_back({units_[i].plan->params.front().id,
                            shards_ ? units_[i].plan->shard : units_[i].plan->flat, units_[i].id});
    return;
  }
  for (uint32_t i = 0; i < model_.params.size(); ++i) {
    if (model_.params[i].alias.valid() || model_.params[i].frozen) continue;
    const auto [unit, piece] = piece_of_[i];
    const auto& params = units_[unit].plan->params;
    const auto q = std::find_if(params.begin(), params.end(),
                                [&](const ShardedParam& x) { return x.id.v == i; });
    sharded_.push_back({{i}, q->local, units_[unit].id});
  }
}

void Fsdp1::begin_micro_batch(bool last) { sync_ = last || !options_.no_sync; }

// _unshard: the low-precision shard on the pre-unshard stream, the limiter, the all-gather.
void Fsdp1::unshard(Unit& u) {
  const bool gathers = shards_ && !u.gathered, offload = options_.cpu_offload;
  // An offloaded shard is copied in (and cast) even where nothing will be gathered.
  const bool low = mixed() && (!shards_ || gathers || offload), copied = offload && !low;
  if (low) {
    host_.alloc(u.low);
    if (offload) {
      host_.alloc(u.device_shard);
      host_.launch(kPreUnshard, u.h2d);
    }
    host_.launch(kPreUnshard, u.cast_shard);
    if (offload) host_.free(u.device_shard);
  } else if (copied) {
    host_.alloc(shards_ ? u.device_shard : u.low);
    host_.launch(kPreUnshard, u.h2d);
  }
  if (low || copied) host_.wait_stream(kUnshard, kPreUnshard);
  u.low_copy = !shards_ && (low || copied);
  wait_for_limiter();
  if (gathers) {
    host_.alloc(u.full);
    host_.collective(kUnshard, u.gather, {u.full});
    u.gathered = true;
  }
  if (copied && shards_) {
    if (gathers) host_.use_on(u.device_shard, kUnshard);
    host_.free(u.device_shard);
  }
  u.points_unsharded = true;
  if (u.kept_flat.valid()) host_.free(u.kept_flat);
  u.kept_flat = {};
  if (u.state == TrainingState::forward && u.trains && grad_enabled_ && listener_)
    listener_->views_made(u.id);
  if (low && shards_) {
    host_.use_on(u.low, kUnshard);
    host_.free(u.low);
  }
}

// _FreeEventQueue.dequeue_if_needed.
void Fsdp1::wait_for_limiter() {
  if (!options_.limit_all_gathers || free_events_.size() < kMaxInflightAllGathers) return;
  host_.host_wait(free_events_.front());
  free_events_.pop_front();
}

// _reshard. Whatever frees waits for the stream that is current.
void Fsdp1::reshard(Unit& u, bool free, StreamId current) {
  u.points_unsharded = false;
  if (free && u.gathered) {
    host_.use_on(u.full, current);
    host_.free(u.full);
    u.gathered = false;
  }
  if (options_.limit_all_gathers && free) free_events_.push_back(host_.record(current));
  if (u.low_copy) {
    host_.use_on(u.low, current);
    host_.free(u.low);
    u.low_copy = false;
  }
  u.prefetched = false;
}

// _prefetch_handle.
void Fsdp1::prefetch(Unit& u) {
  using BackwardPrefetch = Fsdp1Options::BackwardPrefetch;
  Unit* target = nullptr;
  if ((u.state == TrainingState::backward_pre &&
       options_.backward_prefetch == BackwardPrefetch::pre) ||
      (u.state == TrainingState::backward_post &&
       options_.backward_prefetch == BackwardPrefetch::post)) {
    if (u.post_forward_index < 1) return;
    target = &units_[post_forward_order_[static_cast<size_t>(u.post_forward_index - 1)]];
    if (!target->needs_pre_backward || target->prefetched) return;
  } else if (u.state == TrainingState::forward && options_.forward_prefetch) {
    const auto next = static_cast<size_t>(u.pre_forward_index + 1);
    if (u.pre_forward_index < 0 || next >= pre_forward_order_.size()) return;
    target = &units_[pre_forward_order_[next]];
    if (!target->needs_pre_forward || target->prefetched) return;
  } else {
    return;
  }
  const TrainingState before = target->state;
  target->state =
      u.state == TrainingState::forward ? TrainingState::forward : TrainingState::backward_pre;
  unshard(*target);
  target->state = before;
  target->prefetched = true;
}

// _cast_buffers_to_dtype_and_device, once.
void Fsdp1::cast_buffers() {
  if (!options_.buffer_dtype || *options_.buffer_dtype == stored_) return;
  for (size_t i = 0; i < module_buffers_.size(); ++i) {
    const int64_t n = model_.architecture.buffers[i], e = bytes_of(*options_.buffer_dtype);
    const BufferId cast = host_.buffer(n * e, kCompute, Category::parameters, {});
    host_.alloc(cast);
    host_.launch(kCompute, host_.work(kernel_work("cast", KernelClass::pointwise, n * e + stored(n),
                                                  *options_.buffer_dtype, {})));
    host_.free(module_buffers_[i]);
    module_buffers_[i] = cast;
  }
}

void Fsdp1::root_pre_forward(uint32_t state) {
  if (!plan_.states[state].root) return;
  if (!initialized_) {
    // init_flat_param_attributes: storages are made to be freed, on the default stream.
    initialized_ = true;
    cast_buffers();
    const auto once = [&](Bytes bytes, GroupId group) {
      const BufferId b = host_.buffer(bytes, kCompute, Category::temporary, group);
      host_.alloc(b);
      host_.free(b);
    };
    for (uint32_t i : all_handles_) {
      const Group& p = *units_[i].plan;
      const int64_t own = shards_ ? p.shard : p.flat, whole = p.ranks * p.shard;
      if (options_.cpu_offload)  // the pinned shard and its gradient
        for (int k = 0; k < 2; ++k) host_.pinned_alloc(stored(own));
      if (mixed()) once(own * bytes_of(compute_), units_[i].id);
      if (!shards_) continue;
      once(whole * bytes_of(compute_), units_[i].id);
      if (mixed()) once(stored(whole), units_[i].id);
    }
  }
  if (options_.forward_prefetch)
    for (Unit& u : units_) {
      u.needs_pre_forward = true;
      u.prefetched = false;
    }
  host_.wait_stream(kUnshard, kCompute);
  host_.wait_stream(kPreUnshard, kCompute);
  drop_dead_grads();
}

bool Fsdp1::pre_forward(uint32_t state) {
  if (!plan_.states[state].group.valid()) return false;
  Unit& u = unit(state);
  // A checkpoint's rerun: the unit is unsharded for its backward.
  if (u.state == TrainingState::backward_pre) return false;
  if (members_run_[state] > 0) return false;
  if (iteration_ == 0 && u.pre_forward_index < 0) {
    u.pre_forward_index = static_cast<int32_t>(pre_forward_order_.size());
    pre_forward_order_.push_back(u.id.v);
  }
  u.state = TrainingState::forward;
  if (!u.prefetched) unshard(u);
  u.needs_pre_forward = false;
  host_.wait_stream(kCompute, kUnshard);
  prefetch(u);
  return !u.trains && grad_enabled_;
}

bool Fsdp1::post_forward(uint32_t state, ModuleId, bool output_requires_grad) {
  // A root whose parameters all belong to nested units has no handle, and ends backward all the same.
  if (!plan_.states[state].group.valid()) {
    if (plan_.states[state].root && grad_enabled_) callback_queued_ = false;
    return plan_.states[state].root && grad_enabled_;
  }
  Unit& u = unit(state);
  if (u.state == TrainingState::backward_pre) return false;
  if (++members_run_[state] < plan_.states[state].modules.size()) return false;
  members_run_[state] = 0;
  if (u.post_forward_index <= 0)
    u.post_forward_index = static_cast<int32_t>(post_forward_order_.size());
  post_forward_order_.push_back(u.id.v);
  reshard(u, shards_ && !u.root && reshards_after_forward(), kCompute);
  u.state = TrainingState::idle;
  if (!grad_enabled_) return false;
  if (u.root) callback_queued_ = false;
  u.ran_pre_backward = false;
  u.needs_pre_backward = output_requires_grad;
  return true;
}

void Fsdp1::pre_backward(uint32_t state) {
  const ShardState& s = plan_.states[state];
  if (s.group.valid() && unit(state).ran_pre_backward) return;
  if (s.root && !callback_queued_) {
    callback_queued_ = true;
    drop_dead_grads();
  }
  if (!s.group.valid()) return;
  Unit& u = unit(state);
  u.state = TrainingState::backward_pre;
  if (u.needs_pre_backward) {
    if (!u.prefetched) unshard(u);
    host_.wait_stream(kCompute, kUnshard);
  }
  u.needs_pre_backward = false;
  prefetch(u);
  u.ran_pre_backward = true;
}

void Fsdp1::post_backward_reshard(Unit& u, StreamId current) {
  u.state = TrainingState::backward_post;
  reshard(u, frees_in_backward(), current);
  prefetch(u);
}

void Fsdp1::post_backward(uint32_t state) {
  if (plan_.states[state].group.valid()) post_backward_reshard(unit(state), kCompute);
}

void Fsdp1::set_unsharded_grad(ParamId param, BufferId buffer, EventId made) {
  const auto [u, piece] = piece_of_[param.v];
  Piece& x = units_[u].pieces[piece];
  x.grad = buffer;
  x.made = made;
}

BufferId Fsdp1::sum_grads(BufferId first, EventId first_made, BufferId second,
                          EventId second_made) {
  const Buffer b = host_.schedule().buffers[second.v];
  host_.wait(kUnshard, second_made);
  host_.use_on(second, kUnshard);
  if (first_made.valid()) {
    host_.wait(kUnshard, first_made);
    host_.use_on(first, kUnshard);
  }
  const BufferId sum = host_.buffer(b.bytes, kUnshard, b.category, b.group);
  host_.alloc(sum);
  Work add;
  add.bytes = 3 * b.bytes;
  add.name = "add";
  host_.launch(kUnshard, host_.work(add));
  host_.free(second);
  host_.free(first);
  return sum;
}

// The views' backward nodes (one wait each, last made first), the split's (the cat),
// AccumulateGrad, and _post_backward_hook on it.
void Fsdp1::flat_gradient(GroupId id) {
  Unit& u = units_[id.v];
  if (std::none_of(u.pieces.begin(), u.pieces.end(), [](const Piece& x) { return x.grad.valid(); }))
    return;
  const bool waited = host_.behaviour().waits_behind_producer;
  for (auto x = u.pieces.rbegin(); x != u.pieces.rend(); ++x)
    if (x->grad.valid() && x->made.valid()) {
      if (!waited) host_.wait(kUnshard, x->made);
      host_.use_on(x->grad, kUnshard);
    }
  for (const Piece& x : u.pieces)
    if (!x.grad.valid()) {
      host_.alloc(x.zeros);
      host_.launch(kUnshard, x.fill);
    }
  BufferId flat = u.flat_grad[u.flat_grad[0] == u.unsharded_grad || u.flat_grad[0] == u.grad];
  host_.alloc(flat);
  const int64_t launches = ceil_div(static_cast<int64_t>(u.pieces.size()), kCatBatch);
  for (int64_t i = 0; i < launches; ++i) host_.launch(kUnshard, u.cat);
  for (const Piece& x : u.pieces)
    if (!x.grad.valid()) host_.free(x.zeros);
  for (Piece& x : u.pieces) {
    if (x.grad.valid()) host_.free(x.grad);
    x.grad = {};
  }
  if (leaves_ != kUnshard) {
    host_.wait_stream(leaves_, kUnshard);
    host_.use_on(flat, leaves_);
  } else {
    accumulated_ = true;
  }
  BufferId spent;  // autograd holds what was added until the hook has returned
  BufferId& before = shards_ ? u.unsharded_grad : (u.grad.valid() ? u.grad : u.unsharded_grad);
  if (before.valid()) {
    host_.launch(leaves_, u.add_flat);
    spent = flat;
    flat = before;
  }
  // Without sharding a gradient that was reduced before is in the stored type, and stays so.
  const DType type = !shards_ && before.valid() && before == u.grad ? stored_ : compute_;
  const bool first = !before.valid();
  before = {};
  post_backward_reshard(u, leaves_);
  if (!sync_) {
    u.unsharded_grad = flat;
    if (first) use_unsharded_grad_views(u);
  } else {
    host_.wait_stream(kPostBackward, leaves_);
    if (shards_)
      reduce_grad(u, flat);
    else
      reduce_grad_no_shard(u, flat, type);
  }
  if (spent.valid()) host_.free(spent);
}

// _use_unsharded_grad_views under no_sync: each placeholder goes as soon as it is made.
void Fsdp1::use_unsharded_grad_views(Unit& u) {
  for (const Piece& x : u.pieces)
    if (x.placeholder.valid()) {
      host_.alloc(x.placeholder);
      host_.free(x.placeholder);
    }
}

void Fsdp1::reduce_grad(Unit& u, BufferId flat) {
  const bool casts = reduce_ != compute_;
  if (casts) {
    host_.alloc(u.reduce_copy);
    host_.launch(kPostBackward, u.cast_grad);
  }
  if (u.pad_copy.valid()) {
    host_.alloc(u.pad_copy);
    host_.launch(kPostBackward, u.pad_fill);
    host_.launch(kPostBackward, u.pad_copy_work);
  }
  const BufferId grad = u.sharded[u.sharded[0] == u.grad ? 1 : 0];
  const BufferId reduced = reduce_ == stored_ ? grad : u.reduced;
  host_.alloc(reduced);
  if (u.pre_divide.valid()) host_.launch(kPostBackward, u.pre_divide);
  host_.collective(kPostBackward, u.reduce,
                   {u.pad_copy.valid() ? u.pad_copy
                    : casts            ? u.reduce_copy
                                       : flat,
                    reduced});
  StreamId post = kPostBackward;
  if (hybrid_) {
    host_.wait_stream(kAllReduce, kPostBackward);
    host_.use_on(reduced, kAllReduce);
    host_.collective(kAllReduce, u.all_reduce, {reduced});
    post = kAllReduce;
  }
  if (u.post_divide.valid()) host_.launch(post, u.post_divide);
  if (reduce_ != stored_) {
    host_.alloc(grad);
    host_.launch(post, u.cast_sharded);
    host_.use_on(reduced, post);
    host_.free(reduced);
  }
  if (u.grad.valid()) {
    host_.launch(post, u.add_sharded);
    host_.free(grad);
  } else {
    u.grad = grad;
  }
  u.grad_of_optimizer = true;
  offload_grad(u, post);
  if (casts) host_.free(u.reduce_copy);
  if (u.pad_copy.valid()) host_.free(u.pad_copy);
  host_.use_on(flat, kPostBackward);
  host_.free(flat);
}

void Fsdp1::reduce_grad_no_shard(Unit& u, BufferId flat, DType type) {
  BufferId grad = flat;
  if (reduce_ != type) {
    grad = u.reduce_copy;
    host_.alloc(grad);
    host_.launch(kPostBackward, u.cast_grad);
  }
  if (u.pre_divide.valid()) host_.launch(kPostBackward, u.pre_divide);
  host_.collective(kPostBackward, u.reduce, {grad});
  if (u.post_divide.valid()) host_.launch(kPostBackward, u.post_divide);
  if (reduce_ != stored_ && !options_.keep_low_precision_grads) {
    const BufferId low = grad;
    grad = u.sharded[u.sharded[0] == flat ? 1 : 0];
    host_.alloc(grad);
    host_.launch(kPostBackward, u.cast_sharded);
    if (low != flat) host_.free(low);
  }
  u.grad = grad;
  u.grad_of_optimizer = true;
  offload_grad(u, kPostBackward);
  host_.use_on(flat, kPostBackward);
  if (grad != flat) host_.free(flat);
}

// _offload_grad.
void Fsdp1::offload_grad(Unit& u, StreamId post) {
  if (!options_.cpu_offload) return;
  host_.launch(post, u.d2h);
  if (!shards_) host_.stream_sync(post);
  host_.use_on(u.grad, kPostBackward);
}

// At the end of a backward the engine makes the caller's stream wait for those of the leaves.
void Fsdp1::wait_for_leaves() {
  if (accumulated_) host_.wait_stream(kCompute, kUnshard);
  accumulated_ = false;
}

void Fsdp1::end_of_backward() {
  wait_for_leaves();
  if (!callback_queued_) return;
  if (sync_) {
    host_.wait_stream(kCompute, kPostBackward);
    // Without HSDP the all-reduce stream is another name of the default one.
    host_.wait_stream(kCompute, hybrid_ ? kAllReduce : kCompute);
    if (options_.cpu_offload) host_.stream_sync(kCompute);
  }
  ++iteration_;
  post_forward_order_.clear();
  for (uint32_t i : all_handles_) {
    Unit& u = units_[i];
    if (u.points_unsharded) reshard(u, frees_in_backward(), kCompute);
    if (sync_ && u.low_grad.valid() && u.grad.valid() && u.grad != u.low_grad) {
      host_.alloc(u.low_grad);
      host_.launch(kCompute, u.cast_low);
      host_.free(u.grad);
      u.grad = u.low_grad;
    }
    // The optimizer's gradient is the one on the host.
    if (sync_ && options_.cpu_offload && u.grad.valid()) {
      host_.free(u.grad);
      u.grad = {};
    }
    u.ran_pre_backward = u.needs_pre_backward = u.prefetched = false;
    u.post_forward_index = -1;
    u.state = TrainingState::idle;
  }
  callback_queued_ = false;
}

bool Fsdp1::has_grad(uint32_t index) const {
  const Sharded& p = sharded_[index];
  const Unit& u = units_[p.group.v];
  // An offloaded one is on the host.
  return (offloads() || u.grad.valid()) && u.grad_of_optimizer && p.local > 0;
}

void Fsdp1::drop_grads() {
  for (uint32_t i : all_handles_) {
    Unit& u = units_[i];
    u.grad_of_optimizer = false;
    // With use_orig_params the flat parameter keeps its gradient until the runtime looks again.
    if (options_.use_orig_params || !u.grad.valid()) continue;
    host_.free(u.grad);
    u.grad = {};
  }
}

// _reset_flat_param_grad_info_if_needed.
void Fsdp1::drop_dead_grads() {
  if (!options_.use_orig_params) return;
  for (uint32_t i : all_handles_) drop_dead_grad(units_[i]);
}

void Fsdp1::drop_dead_grad(Unit& u) {
  if (!options_.use_orig_params || !u.grad.valid() || u.grad_of_optimizer) return;
  host_.free(u.grad);
  u.grad = {};
}

std::vector<bool> Fsdp1::unsharded() const {
  std::vector<bool> out;
  for (const Unit& u : units_) out.push_back(u.points_unsharded);
  return out;
}

}  // namespace shardsim
