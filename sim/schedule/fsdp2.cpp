#include "sim/schedule/fsdp2.h"

#include <algorithm>
#include <cmath>

#include "sim/base/error.h"
#include "sim/schedule/clip.h"
#include "sim/schedule/multi_tensor.h"
#include "sim/schedule/streams.h"

namespace shardsim {

namespace {

Work kernel(const char* name, KernelClass cls, Bytes bytes, DType t, GroupId group) {
  Work w;
  w.kernel = cls;
  w.bytes = bytes;
  w.dtype = t;
  w.group = group;
  w.name = name;
  return w;
}

Work copy(WorkKind kind, Bytes bytes, GroupId group, const char* name) {
  Work w;
  w.kind = kind;
  w.bytes = bytes;
  w.group = group;
  w.name = name;
  return w;
}

Work collective(WorkKind kind, Bytes bytes, DType t, CommId comm, GroupId group, ReduceOp op,
                const char* name) {
  Work w;
  w.kind = kind;
  w.bytes = bytes;
  w.dtype = t;
  w.comm = comm;
  w.group = group;
  w.op = op;
  w.name = name;
  return w;
}

// Pointer table of a copy-out, in bytes (kernel-sequence.md 6, read in split_with_sizes_copy's
// source): two 512-parameter groups on 8 ranks, 524,288 B each, take 4168.
Bytes copy_out_table(const Group& g, int64_t shard_divisor, int64_t ranks, int64_t element,
                     int sms) {
  int64_t blocks = 0;
  const auto bytes = [&](const ShardedParam& p) {
    return p.shard * g.ranks / shard_divisor * element;
  };
  for (const ShardedParam& p : g.params) blocks += ceil_div(bytes(p), 2048);
  const int64_t t = ceil_div(blocks * ranks, int64_t{32} * sms);
  auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(t)));
  while (root * root < t) ++root;
  const int64_t r = std::max<int64_t>(1, std::min(root, ranks));
  const int64_t q = std::max<int64_t>(1, ceil_div(t, r));
  int64_t entries = 0;
  for (const ShardedParam& p : g.params) entries += ceil_div(bytes(p), 2048 * q);
  return 8 * (4 * static_cast<int64_t>(g.params.size()) + 1 + entries);
}

Bytes chunk_cat_table(const Group& g, int64_t element) {
  int64_t entries = 0;
  for (const ShardedParam& p : g.params) entries += ceil_div(p.shard * element, 2048);
  return 8 * (6 * static_cast<int64_t>(g.params.size()) + 2 + entries);
}

}  // namespace

DivideFactors divide_factors(DType reduce, int64_t ranks, double factor, bool force_sum) {
  const double n = factor > 0 ? factor : static_cast<double>(ranks);
  if (reduce == DType::fp32 || reduce == DType::bf16) return {1, force_sum ? n : 1};
  double pre = 1;
  while (std::fmod(n, pre) == 0 && n / pre > pre) pre *= 2;
  return {pre, n / pre};
}

Fsdp2::Fsdp2(Host& host, const Model& model, const Plan& plan, const Training& training, int sms)
    : host_(host),
      model_(model),
      plan_(plan),
      training_(training),
      sms_(sms),
      compute_(compute_dtype(training.precision)),
      reduce_(reduce_dtype(training)),
      stored_(training.precision.storage) {
  const Mesh& mesh = plan.mesh;
  if (hsdp()) replicate_comm_ = host.communicator(mesh.replicate, mesh.shard, "replicate");
  shard_comm_ = host.communicator(mesh.shard, 1, "shard");
  reduce_comm_ = training.fsdp2.separate_reduce_scatter_group
                     ? host.communicator(mesh.shard, 1, "shard (reduce-scatter)")
                     : shard_comm_;
  members_run_.assign(plan.states.size(), 0);
  position_.assign(model.params.size(), 0);
  for (const Group& g : plan.groups)
    for (uint32_t i = 0; i < g.params.size(); ++i) position_[g.params[i].id.v] = i;
  groups_.resize(plan.groups.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    ParamGroup& g = groups_[i];
    g.plan = &plan.groups[i];
    g.id = {static_cast<uint32_t>(i)};
    g.state = plan.groups[i].state;
    define(g);
  }
}

void Fsdp2::define_gather(ParamGroup& g, Gather& x, CommId comm, bool from_post_forward) {
  const Group& p = *g.plan;
  const int64_t e = bytes_of(compute_);
  const int64_t numel = p.padded() / x.ranks;  // a rank's input
  ForeachLaunches pass(host_.behaviour(), 2);
  for (const ShardedParam& q : p.params) pass.add(q.shard * p.ranks / x.ranks);
  const int64_t n = pass.count();
  // Flat buffer, where a parameter dtype is set that is not the stored one: the cast of every shard,
  // or a copy of the post-forward shards.
  const bool flat = compute_ != stored_;
  if (flat) {
    const int64_t from = from_post_forward ? e : bytes_of(stored_);
    x.flat = static_cast<size_t>(n);
    for (size_t i = 0; i < x.flat; ++i)
      x.copy_in.push_back(host_.work(kernel("all_gather_cast", KernelClass::foreach_op,
                                            (from + e) * numel / n, compute_, g.id)));
    x.flat_buffer = host_.buffer(numel * e, kCopyIn, Category::all_gather_buffers, g.id);
  }
  for (int64_t i = 0; i < n; ++i)
    x.copy_in.push_back(host_.work(
        kernel("all_gather_copy_in", KernelClass::foreach_op, 2 * e * numel / n, compute_, g.id)));
  x.gather = host_.work(collective(WorkKind::AllGather, p.padded() * e, compute_, comm, g.id,
                                   ReduceOp::none, "all_gather"));
  const Bytes table = copy_out_table(p, x.ranks, x.ranks, e, sms_);
  x.table = host_.work(copy(WorkKind::CopyH2D, table, g.id, "copy_out_table"));
  x.table_buffer = host_.buffer(table, kCompute, Category::all_gather_buffers, g.id);
  x.copy_out =
      host_.work(kernel("copy_out", KernelClass::copy_out, 2 * p.padded() * e, compute_, g.id));
}

void Fsdp2::define(ParamGroup& g) {
  const Group& p = *g.plan;
  const int64_t e = bytes_of(compute_), o = bytes_of(stored_);
  const int64_t ranks = p.ranks;
  const auto n = static_cast<uint32_t>(p.params.size());
  const ShardState& state = plan_.states[g.state];
  g.communicates = ranks > 1 || host_.behaviour().one_rank_communicates;
  g.grads.assign(n, {});
  g.accumulated.assign(n, {});
  g.has_grad.assign(n, false);
  if (g.communicates) {
    g.whole.ranks = ranks;
    define_gather(g, g.whole, shard_comm_, false);
    for (BufferId* b : {&g.gathered, &g.gathered_other})
      *b = host_.buffer(p.padded() * e, kCopyIn, Category::all_gather_buffers, g.id);
  }
  g.first_unsharded = host_.buffers();
  for (const ShardedParam& q : p.params)
    host_.buffer(q.shard * ranks * e, kCompute, Category::unsharded_parameters, g.id);
  if (state.reshard == Reshard::Kind::to) {
    // A new mesh for each fully_shard call: two communicators, of which one is used.
    const int64_t m = state.reshard_ranks;
    host_.communicator(ranks / m, m, "post-forward (unused)");
    g.partial_mesh.ranks = m;
    define_gather(g, g.partial_mesh, host_.communicator(m, 1, "post-forward"), true);
    g.first_post_forward = host_.buffers();
    for (const ShardedParam& q : p.params)
      host_.buffer(q.shard * ranks / m * e, kCompute, Category::unsharded_parameters, g.id);
    for (const ShardedParam& q : p.params)
      g.clone.push_back(
          host_.work(copy(WorkKind::CopyD2D, q.shard * ranks / m * e, g.id, "reshard_clone")));
  }
  if (!g.communicates) {
    g.first_cast = host_.buffers();
    for (const ShardedParam& q : p.params)
      host_.buffer(q.shard * e, kCompute, Category::all_gather_buffers, g.id);
    for (const ShardedParam& q : p.params) {
      if (compute_ != stored_)
        g.cast_one.push_back(
            host_.work(kernel("cast", KernelClass::pointwise, (o + e) * q.shard, compute_, g.id)));
      g.copy_one.push_back(host_.work(copy(WorkKind::CopyD2D, q.shard * e, g.id, "unshard_copy")));
    }
  }
}

// The reduction of the parameters that have a gradient now; laid out when it is first needed.
Fsdp2::Reduction& Fsdp2::reduction(ParamGroup& g) {
  std::vector<bool> of(g.grads.size());
  for (size_t i = 0; i < of.size(); ++i) of[i] = g.grads[i].valid();
  for (const auto& x : g.reductions)
    if (x->of == of) return *x;
  g.reductions.push_back(std::make_unique<Reduction>());
  Reduction& x = *g.reductions.back();
  x.of = of;
  const Group& p = *g.plan;
  const ShardState& state = plan_.states[g.state];
  const Behaviour& behaviour = host_.behaviour();
  const int64_t e = bytes_of(compute_), o = bytes_of(stored_), r = bytes_of(reduce_);
  const int64_t ranks = p.ranks;
  Group with_grad = p;
  with_grad.params.clear();
  with_grad.shard = 0;
  for (size_t i = 0; i < of.size(); ++i)
    if (of[i]) {
      with_grad.params.push_back(p.params[i]);
      with_grad.shard += p.params[i].shard;
    }
  const int64_t shard = with_grad.shard;
  const Bytes input = shard * ranks * r, output = shard * r;
  x.input_bytes = input;
  if (compute_ != reduce_ && !(compute_ == DType::bf16 && reduce_ == DType::fp32)) {
    // chunk_cat widens bf16 to fp32 only: other gradients are padded and cast into place one by one.
    for (const ShardedParam& q : with_grad.params) {
      x.cast_in.push_back(host_.work(
          kernel("cast", KernelClass::pointwise, (e + r) * q.shard * ranks, reduce_, g.id)));
      x.pad_in.push_back(
          host_.work(copy(behaviour.zeros_by_kernel ? WorkKind::Kernel : WorkKind::Memset,
                          q.shard * ranks * e, g.id, "pad_gradient")));
      x.pad_in.push_back(host_.work(copy(WorkKind::CopyD2D, q.numel * e, g.id, "pad_gradient")));
      x.padded_grads.push_back(BufferId{});
      if (q.shard * ranks != q.numel)
        x.padded_grads.back() =
            host_.buffer(q.shard * ranks * e, kCompute, Category::reduce_scatter_buffers, g.id);
    }
  }
  const Bytes table = chunk_cat_table(with_grad, r);
  x.table = host_.buffer(table, kCompute, Category::reduce_scatter_buffers, g.id);
  x.table_copy = host_.work(copy(WorkKind::CopyH2D, table, g.id, "chunk_cat_table"));
  x.chunk_cat = host_.work(
      kernel("chunk_cat", KernelClass::chunk_cat, input + shard * ranks * e, reduce_, g.id));
  const DivideFactors divide = divide_factors(
      reduce_, plan_.mesh.world(), behaviour.divide_factor_all_reduces ? state.divide_factor : 0,
      state.force_sum);
  const bool divides = divide.pre != 1 || divide.post != 1;
  if (divide.pre != 1)
    x.pre_divide = host_.work(kernel("div", KernelClass::pointwise, 2 * input, reduce_, g.id));
  const bool custom = state.divide_factor > 0;
  const bool premultiplies =
      custom && (!behaviour.divide_factor_all_reduces ||
                 (!divides && state.divide_factor != static_cast<double>(ranks)));
  const ReduceOp scatter_op = premultiplies ? ReduceOp::premul_sum
                              : divides     ? ReduceOp::sum
                                            : ReduceOp::avg;
  x.reduce_scatter = host_.work(collective(WorkKind::ReduceScatter, input, reduce_, reduce_comm_,
                                           g.id, scatter_op, "reduce_scatter"));
  x.copy = host_.work(copy(WorkKind::CopyD2D, input, g.id, "reduce_copy"));
  if (hsdp()) {
    x.add_partial = host_.work(kernel("add", KernelClass::pointwise, 3 * output, reduce_, g.id));
    x.all_reduce = host_.work(collective(
        WorkKind::AllReduce, output, reduce_, replicate_comm_, g.id,
        divides || (custom && behaviour.divide_factor_all_reduces) ? ReduceOp::sum : ReduceOp::avg,
        "all_reduce"));
    x.partial = host_.buffer(output, kReduceScatter, Category::reduce_scatter_buffers, g.id);
  }
  if (divide.post != 1)
    x.post_divide = host_.work(kernel("div", KernelClass::pointwise, 2 * output, reduce_, g.id));
  x.output = host_.buffer(output, kReduceScatter, Category::reduce_scatter_buffers, g.id);
  if (reduce_ != stored_)
    x.cast_grad =
        host_.work(kernel("cast", KernelClass::pointwise, (r + o) * shard, stored_, g.id));
  const StreamId pool = reduce_ != stored_ && hsdp() ? kAllReduce : kReduceScatter;
  for (BufferId& b : x.sharded_grad) b = host_.buffer(shard * o, pool, Category::gradients, g.id);
  for (const ShardedParam& q : with_grad.params)
    if (q.local > 0)
      x.add_grad.push_back(
          host_.work(kernel("add", KernelClass::pointwise, 3 * o * q.local, stored_, g.id)));
  return x;
}

void Fsdp2::initialize() {
  const int64_t o = bytes_of(stored_);
  for (uint32_t i = 0; i < model_.params.size(); ++i) {
    if (model_.params[i].alias.valid()) {
      // to_empty makes a tensor for the second name too, and drops it.
      const Shape& s = model_.params[i].shape;
      const BufferId b = host_.buffer(ceil_div(s.dim[0], plan_.mesh.shard) * s.rest() * o, kCompute,
                                      Category::parameters);
      host_.alloc(b);
      host_.free(b);
      continue;
    }
    const int32_t g = plan_.group_of_param[i];
    SHARDSIM_ASSERT(g >= 0, "every parameter belongs to a group");
    const ShardedParam& q = plan_.groups[static_cast<size_t>(g)].params[position_[i]];
    const BufferId b =
        host_.buffer(q.shard * o, kCompute, Category::parameters, {static_cast<uint32_t>(g)});
    host_.alloc(b);
    if (!model_.params[i].frozen) sharded_.push_back({{i}, q.local, {static_cast<uint32_t>(g)}});
  }
}

void Fsdp2::begin_micro_batch(bool last) {
  const Fsdp2Options& f = training_.fsdp2;
  sync_ = f.requires_gradient_sync == Micro::each || last;
  all_reduce_ = f.requires_all_reduce == Micro::each || last;
  last_backward_ = f.is_last_backward == Micro::each || last;
  reshard_after_backward_ = f.reshard_after_backward == Micro::each || last;
}

// Unshard: cast and copy-in on the copy-in stream, all-gather on its own.
void Fsdp2::unshard(ParamGroup& g) {
  if (g.pending || g.sharded_state == ShardedState::unsharded) return;
  if (g.training_state == TrainingState::pre_backward && !plan_.states[g.state].unshard_in_backward)
    return;
  if (g.reshard_event.valid()) {
    host_.wait(kCopyIn, g.reshard_event);
    host_.wait(kAllGather, g.reshard_event);
    g.reshard_event = {};
  }
  g.pending = true;
  g.pending_partial = g.sharded_state == ShardedState::post_forward;
  if (!g.communicates) {
    g.gathered_event = host_.record(kCompute);
    return;
  }
  const Gather& x = g.pending_partial ? g.partial_mesh : g.whole;
  size_t i = 0;
  if (x.flat_buffer.valid()) {
    host_.alloc(x.flat_buffer);
    for (; i < x.flat; ++i) host_.launch(kCopyIn, x.copy_in[i]);
  }
  take_gathered(g);
  for (; i < x.copy_in.size(); ++i) host_.launch(kCopyIn, x.copy_in[i]);
  host_.wait_stream(kAllGather, kCopyIn);
  host_.collective(kAllGather, x.gather);
  g.gathered_event = host_.record(kAllGather);
  if (x.flat_buffer.valid()) host_.free(x.flat_buffer);
}

// The all-gather's output: its own, or with a custom persistent all-gather one kept per size.
void Fsdp2::take_gathered(ParamGroup& g) {
  if (!training_.fsdp2.persistent_all_gather) {
    // A module that runs twice in a row gathers while its first output is still held.
    if (held_.buffer == g.gathered) std::swap(g.gathered, g.gathered_other);
    host_.alloc(g.gathered);
    return;
  }
  const Bytes size = host_.schedule().buffers[g.gathered.v].bytes;
  for (const auto& [bytes, buffer] : persistent_)
    if (bytes == size) return;
  persistent_.emplace_back(size, g.gathered);
  host_.alloc(g.gathered);
}

void Fsdp2::drop_gathered(BufferId b) {
  if (!training_.fsdp2.persistent_all_gather) host_.free(b);
}

void Fsdp2::take_storage(ParamGroup& g, uint32_t i) {
  if (!g.storage_kept) host_.alloc({g.first_unsharded + i});
}

void Fsdp2::drop_storage(ParamGroup& g, uint32_t i) {
  if (!g.storage_kept) host_.free({g.first_unsharded + i});
}

void Fsdp2::release_held(bool compute_waits) {
  if (!held_.buffer.valid()) return;
  if (compute_waits) {
    host_.wait(kCompute, held_.event);
  } else {
    host_.wait(kCopyIn, held_.event);
    host_.wait(kAllGather, held_.event);
  }
  drop_gathered(held_.buffer);
  held_ = {};
}

void Fsdp2::wait_for_unshard(ParamGroup& g) {
  if (!g.pending) return;
  g.pending = false;
  const bool forward = g.training_state == TrainingState::forward;
  BufferId held;  // goes at the end
  if (forward && host_.behaviour().frees_held_gather_late && held_.buffer.valid()) {
    held = held_.buffer;
    host_.wait(kCopyIn, held_.event);
    host_.wait(kAllGather, held_.event);
    held_ = {};
  } else if (forward) {
    release_held(false);
  }
  const auto n = static_cast<uint32_t>(g.plan->params.size());
  if (!g.communicates) {
    BufferId previous;
    for (uint32_t i = 0; i < n; ++i) {
      if (compute_ != stored_) {
        const BufferId cast{g.first_cast + i};
        host_.alloc(cast);
        host_.launch(kCompute, g.cast_one[i]);
        if (previous.valid()) host_.free(previous);
        previous = cast;
      }
      take_storage(g, i);
      host_.launch(kCompute, g.copy_one[i]);
    }
    if (previous.valid()) host_.free(previous);
  } else {
    host_.wait(kCompute, g.gathered_event);
    const Gather& x = g.pending_partial ? g.partial_mesh : g.whole;
    for (uint32_t i = 0; i < n; ++i) take_storage(g, i);
    host_.alloc(x.table_buffer);
    host_.pinned_copy(kCompute, x.table);
    host_.launch(kCompute, x.copy_out);
    host_.free(x.table_buffer);
  }
  if (g.sharded_state == ShardedState::post_forward)
    for (uint32_t i = 0; i < n; ++i) host_.free({g.first_post_forward + i});
  g.sharded_state = ShardedState::unsharded;
  g.ever_unsharded = true;
  g.storage_kept = training_.fsdp2.keep_unsharded_storage;
  const EventId copied = host_.record(kCompute);
  if (forward && g.communicates) {
    held_ = {g.gathered, copied};
    if (held.valid()) drop_gathered(held);
    return;
  }
  host_.wait(kCopyIn, copied);
  host_.wait(kAllGather, copied);
  if (g.communicates) drop_gathered(g.gathered);
}

void Fsdp2::reshard(ParamGroup& g) {
  const ShardState& state = plan_.states[g.state];
  const auto n = static_cast<uint32_t>(g.plan->params.size());
  if (g.training_state == TrainingState::forward) {
    if (state.reshard == Reshard::Kind::no) return;
    if (state.reshard == Reshard::Kind::to) {
      if (g.sharded_state != ShardedState::unsharded) return;
      for (uint32_t i = 0; i < n; ++i) {
        host_.alloc({g.first_post_forward + i});
        host_.launch(kCompute, g.clone[i]);
        drop_storage(g, i);
      }
      g.sharded_state = ShardedState::post_forward;
      g.reshard_event = host_.record(kCompute);
      return;
    }
  }
  if (g.sharded_state == ShardedState::unsharded)
    for (uint32_t i = 0; i < n; ++i) drop_storage(g, i);
  if (g.sharded_state == ShardedState::post_forward)
    for (uint32_t i = 0; i < n; ++i) host_.free({g.first_post_forward + i});
  g.sharded_state = ShardedState::sharded;
}

void Fsdp2::root_pre_forward() {
  host_.make_streams();
  if (iteration_root_) return;
  iteration_root_ = true;
  if (post_optim_event_.valid()) {
    host_.wait(kCopyIn, post_optim_event_);
    host_.wait(kAllGather, post_optim_event_);
    post_optim_event_ = {};
    return;
  }
  host_.wait_stream(kCopyIn, kCompute);
  host_.wait_stream(kAllGather, kCompute);
}

bool Fsdp2::pre_forward(uint32_t s) {
  const ShardState& state = plan_.states[s];
  const bool first = members_run_[s] == 0;
  if (first && state.group.valid()) {
    ParamGroup& g = groups_[state.group.v];
    g.training_state = TrainingState::forward;
    unshard(g);
    wait_for_unshard(g);
  }
  if (first)
    for (uint32_t t : state.forward_prefetch) {
      if (!group_of(t).valid()) continue;
      ParamGroup& g = groups_[group_of(t).v];
      const TrainingState before = g.training_state;
      g.training_state = TrainingState::forward;
      unshard(g);
      g.training_state = before;
    }
  return first && state.group.valid();
}

bool Fsdp2::post_forward(uint32_t s, bool) {
  const ShardState& state = plan_.states[s];
  if (++members_run_[s] < state.modules.size()) return false;
  members_run_[s] = 0;
  if (state.group.valid()) {
    end_forward(groups_[state.group.v]);
  }
  if (state.root) {
    release_held(false);
    iteration_root_ = false;
  }
  return true;
}

void Fsdp2::end_forward(ParamGroup& g) {
  reshard(g);
  g.forward_indices.push_back(static_cast<uint32_t>(order_.size()));
  order_.push_back(g.id.v);
  g.training_state = TrainingState::idle;
}

std::vector<uint32_t> Fsdp2::complete_list_groups() {
  std::vector<uint32_t> completed;
  if (!host_.behaviour().completes_list_groups) return completed;
  for (auto s = static_cast<uint32_t>(plan_.states.size()); s-- > 0;) {
    if (members_run_[s] == 0 || members_run_[s] >= plan_.states[s].modules.size()) continue;
    members_run_[s] = 0;
    if (group_of(s).valid()) end_forward(groups_[group_of(s).v]);
    completed.push_back(s);
  }
  return completed;
}

void Fsdp2::pre_backward(uint32_t s) {
  final_queued_ = true;
  const ShardState& state = plan_.states[s];
  if (!state.group.valid()) return;
  ParamGroup& g = groups_[state.group.v];
  if (g.training_state == TrainingState::pre_backward) return;
  g.training_state = TrainingState::pre_backward;
  unshard(g);
  wait_for_unshard(g);
  const auto prefetch = [&](ParamGroup& t) {
    const TrainingState before = t.training_state;
    t.training_state = TrainingState::pre_backward;
    unshard(t);
    t.training_state = before;
  };
  if (!state.explicit_backward) {
    if (g.forward_indices.empty()) return;
    const uint32_t index = g.forward_indices.back();
    g.forward_indices.pop_back();
    if (index >= 1) prefetch(groups_[order_[index - 1]]);
    return;
  }
  for (uint32_t t : state.backward_prefetch)
    if (group_of(t).valid()) prefetch(groups_[group_of(t).v]);
}

void Fsdp2::post_backward(uint32_t s) {
  if (group_of(s).valid()) post_backward_group(groups_[group_of(s).v]);
}

void Fsdp2::set_unsharded_grad(ParamId param, BufferId buffer, EventId) {
  ParamGroup& g = groups_[static_cast<size_t>(plan_.group_of_param[param.v])];
  g.grads[position_[param.v]] = buffer;
}

void Fsdp2::post_backward_group(ParamGroup& g) {
  g.training_state = TrainingState::post_backward;
  const Behaviour& behaviour = host_.behaviour();
  if (behaviour.casts_unsynced_late) accumulate_grads(g);
  if (!sync_) {
    if (reshard_after_backward_) reshard(g);
    if (behaviour.casts_unsynced_late) cast_unsynced_grads(g);
    return;
  }
  bool cast = accumulated_;
  for (size_t i = 0; i < g.grads.size(); ++i) {
    if (!g.accumulated[i].valid()) continue;
    std::swap(g.grads[i], g.accumulated[i]);
    cast = true;
  }
  if (reshard_after_backward_) reshard(g);
  const bool any =
      std::any_of(g.grads.begin(), g.grads.end(), [](BufferId b) { return b.valid(); });
  if (!any && !behaviour.waits_without_gradients) return;
  const auto cap = static_cast<size_t>(training_.fsdp2.reduce_scatter_max_input_buffers);
  while (retained_.size() >= cap) {
    host_.wait(kCompute, retained_.front().event);
    host_.free(retained_.front().input);
    retained_.erase(retained_.begin());
  }
  if (any) reduce(g, cast);
}

// Adds what this backward brought to what the unsynchronized ones before it left.
void Fsdp2::accumulate_grads(ParamGroup& g) {
  for (size_t i = 0; i < g.grads.size(); ++i) {
    if (!g.accumulated[i].valid() || !g.grads[i].valid()) continue;
    host_.launch(kCompute, g.accumulate[i]);
    host_.free(g.grads[i]);
    g.grads[i] = {};
  }
}

// The gradients of an unsynchronized backward are kept in the reduce type, if it is another.
void Fsdp2::cast_unsynced_grads(ParamGroup& g) {
  if (reduce_ == compute_) return;
  if (g.accumulators.empty()) {
    const int64_t e = bytes_of(compute_), r = bytes_of(reduce_);
    for (const ShardedParam& q : g.plan->params) {
      g.accumulators.push_back(
          host_.buffer(q.numel * r, kCompute, Category::unsharded_gradients, g.id));
      g.cast_accumulated.push_back(
          host_.work(kernel("cast", KernelClass::pointwise, (e + r) * q.numel, reduce_, g.id)));
      g.accumulate.push_back(
          host_.work(kernel("add", KernelClass::pointwise, (e + 2 * r) * q.numel, reduce_, g.id)));
    }
  }
  for (size_t i = 0; i < g.grads.size(); ++i) {
    if (!g.grads[i].valid()) continue;
    g.accumulated[i] = g.accumulators[i];
    host_.alloc(g.accumulated[i]);
    host_.launch(kCompute, g.cast_accumulated[i]);
    host_.free(g.grads[i]);
    g.grads[i] = {};
  }
}

BufferId Fsdp2::reduce_input(ParamGroup& g, Reduction& x) {
  for (const BufferId b : x.inputs)
    if (std::none_of(retained_.begin(), retained_.end(),
                     [&](const Retained& r) { return r.input == b; }))
      return b;
  x.inputs.push_back(host_.buffer(x.input_bytes, kCompute, Category::reduce_scatter_buffers, g.id));
  return x.inputs.back();
}

// `cast`: the gradients are in the reduce type already.
void Fsdp2::reduce(ParamGroup& g, bool cast) {
  Reduction& x = reduction(g);
  const BufferId input = reduce_input(g, x);
  const Behaviour& behaviour = host_.behaviour();
  wait_for_post_backward(g);
  if (hsdp() && g.partial.valid() && behaviour.partial_sum_waits)
    host_.wait_stream(kReduceScatter, kCompute);
  host_.alloc(input);
  if (x.cast_in.empty() || cast) {
    host_.alloc(x.table);
    host_.pinned_copy(kCompute, x.table_copy);
    host_.launch(kCompute, x.chunk_cat);
    host_.free(x.table);
  } else {
    for (size_t i = 0; i < x.padded_grads.size(); ++i) {
      if (!x.padded_grads[i].valid()) continue;
      host_.alloc(x.padded_grads[i]);
      host_.launch(kCompute, x.pad_in[2 * i]);
      host_.launch(kCompute, x.pad_in[2 * i + 1]);
    }
    for (WorkId w : x.cast_in) host_.launch(kCompute, w);
    for (BufferId b : x.padded_grads)
      if (b.valid()) host_.free(b);
  }
  // A Python list lets go of its elements from the end; a loop's variable may hold the last.
  BufferId last;
  for (auto b = g.grads.rbegin(); b != g.grads.rend(); ++b) {
    if (b->valid() && behaviour.keeps_last_gradient && !last.valid())
      last = *b;
    else if (b->valid())
      host_.free(*b);
    *b = {};
  }
  host_.wait_stream(kReduceScatter, kCompute);

  // The output is the sharded gradient itself where types agree.
  const bool stops_at_partial = hsdp() && !all_reduce_;
  const BufferId grad = x.sharded_grad[x.sharded_grad[0] == g.sharded_grad ? 1 : 0];
  const BufferId output = stops_at_partial && !g.partial.valid()    ? x.partial
                          : reduce_ == stored_ && !stops_at_partial ? grad
                                                                    : x.output;
  host_.alloc(output);
  if (x.pre_divide.valid()) host_.launch(kReduceScatter, x.pre_divide);
  if (g.communicates)
    host_.collective(kReduceScatter, x.reduce_scatter);
  else
    host_.launch(kReduceScatter, x.copy);
  retained_.push_back({input, host_.record(kReduceScatter)});

  StreamId post = kReduceScatter;
  if (hsdp()) {
    if (!all_reduce_) {
      if (g.partial.valid()) {
        host_.launch(kReduceScatter, x.add_partial);
        host_.free(output);
      } else {
        g.partial = output;
      }
      end_reduction(g, kReduceScatter);
      if (last.valid()) host_.free(last);
      return;
    }
    if (g.partial.valid()) host_.launch(kReduceScatter, x.add_partial);
    host_.wait_stream(kAllReduce, kReduceScatter);
    host_.collective(kAllReduce, x.all_reduce, {output});
    g.all_reduce_event = host_.record(kAllReduce);
    post = kAllReduce;
  }
  if (x.post_divide.valid()) host_.launch(post, x.post_divide);
  if (reduce_ != stored_) {
    host_.alloc(grad);
    host_.launch(post, x.cast_grad);
    if (hsdp())
      g.all_reduce_buffer = output;
    else
      host_.free(output);
  }
  assign_grad(g, x, grad, post);
  if (g.partial.valid()) host_.free(g.partial);
  g.partial = {};
  end_reduction(g, post);
  if (last.valid()) host_.free(last);
}

// Sets each parameter's .grad to its view of the new shard, or adds that to the .grad there is.
void Fsdp2::assign_grad(ParamGroup& g, const Reduction& x, BufferId grad, StreamId post) {
  if (!g.sharded_grad.valid()) {
    g.sharded_grad = grad;
    g.has_grad = x.of;
    return;
  }
  SHARDSIM_ASSERT(g.has_grad == x.of, "the same parameters get gradients in every micro-batch");
  for (WorkId w : x.add_grad) host_.launch(post, w);
  if (hsdp() && reduce_ == stored_)
    g.all_reduce_buffer = grad;
  else
    host_.free(grad);
}

void Fsdp2::drop_all_reduce_buffer(ParamGroup& g) {
  if (g.all_reduce_buffer.valid()) host_.free(g.all_reduce_buffer);
  g.all_reduce_buffer = {};
}

void Fsdp2::wait_for_post_backward(ParamGroup& g) {
  if (g.post_event.valid()) host_.wait(kCompute, g.post_event);
  g.post_event = {};
  if (g.all_reduce_event.valid()) host_.wait(kCompute, g.all_reduce_event);
  g.all_reduce_event = {};
  drop_all_reduce_buffer(g);
}

// A prefetched all-gather that nobody used.
void Fsdp2::use_stray_gather(ParamGroup& g) {
  if (!g.pending) return;
  if (host_.behaviour().waits_for_stray_gathers) host_.wait(kCompute, g.gathered_event);
  if (g.communicates) drop_gathered(g.gathered);
  g.pending = false;
}

void Fsdp2::finalize_backward(ParamGroup& g) {
  wait_for_post_backward(g);
  use_stray_gather(g);
  g.forward_indices.clear();
}

void Fsdp2::end_reduction(ParamGroup& g, StreamId post) {
  g.post_event = host_.record(post);
  const auto same =
      std::find_if(posts_.begin(), posts_.end(), [&](const Post& p) { return p.stream == post; });
  if (same != posts_.end())
    same->event = g.post_event;
  else
    posts_.push_back({post, g.post_event});
}

void Fsdp2::root_post_backward_final_callback() {
  final_queued_ = false;
  const bool by_state = host_.behaviour().finishes_state_by_state;
  for (const ShardState& state : plan_.states) {
    if (!state.group.valid()) continue;
    ParamGroup& g = groups_[state.group.v];
    if (g.training_state != TrainingState::post_backward) post_backward_group(g);
    g.training_state = TrainingState::idle;
    if (last_backward_ && by_state) finalize_backward(g);
  }
  if (by_state) {
    posts_.clear();
    if (!last_backward_) return;
    members_run_.assign(members_run_.size(), 0);
    order_.clear();
    drop_retained();
    return;
  }
  if (!last_backward_) {
    release_held(true);
    return;
  }
  for (const Post& p : posts_) host_.wait(kCompute, p.event);
  posts_.clear();
  for (const ShardState& state : plan_.states) {
    if (!state.group.valid()) continue;
    ParamGroup& g = groups_[state.group.v];
    drop_all_reduce_buffer(g);
    g.post_event = {};
    g.all_reduce_event = {};
    use_stray_gather(g);
    g.forward_indices.clear();
  }
  release_held(true);
  order_.clear();
  drop_retained();
}

void Fsdp2::drop_retained() {
  for (const Retained& r : retained_) {
    host_.wait(kCompute, r.event);
    host_.free(r.input);
  }
  retained_.clear();
}

std::vector<bool> Fsdp2::unsharded() const {
  std::vector<bool> out;
  for (const ParamGroup& g : groups_) out.push_back(g.sharded_state == ShardedState::unsharded);
  return out;
}

bool Fsdp2::has_grad(ParamId p) const {
  const ParamGroup& g = groups_[static_cast<size_t>(plan_.group_of_param[p.v])];
  return g.sharded_grad.valid() && g.has_grad[position_[p.v]];
}

void Fsdp2::clip_grad_norm(const std::vector<uint32_t>& with_grad) {
  std::vector<int64_t> numels;
  numels.reserve(with_grad.size());
  for (uint32_t i : with_grad) numels.push_back(sharded_[i].local);
  shardsim::clip_grad_norm(host_, shard_comm_, stored_, numels);
}

// A group's gradients are views of one storage, which goes with the last of them.
void Fsdp2::drop_grads() {
  for (const Sharded& p : sharded_) {
    if (!has_grad(p.id)) continue;
    ParamGroup& g = groups_[static_cast<size_t>(plan_.group_of_param[p.id.v])];
    g.has_grad[position_[p.id.v]] = false;
    if (std::find(g.has_grad.begin(), g.has_grad.end(), true) != g.has_grad.end()) continue;
    host_.free(g.sharded_grad);
    g.sharded_grad = {};
  }
}

}  // namespace shardsim
