#include <algorithm>

#include "sim/base/error.h"
#include "sim/schedule/clip.h"
#include "sim/schedule/fsdp2.h"
#include "sim/schedule/streams.h"

namespace shardsim {

void Fsdp2::set_unsharded_grad(ParamId param, BufferId buffer, EventId) {
  const int32_t g = plan_.group_of_param[param.v];
  if (g < 0)
    ignored_grad_[param.v] = buffer;
  else
    set_grad(groups_[static_cast<size_t>(g)], position_[param.v], buffer);
}

void Fsdp2::set_grad(ParamGroup& g, uint32_t i, BufferId buffer) {
  const ShardedParam& q = g.plan->params[i];
  const DType computed = compute_dtype(q, training_.precision);
  DType type = g.accumulated || widens_gradients(g.id) ? reduce_ : computed;
  // A gradient that comes behind a reduction of this backward starts anew.
  if (q.numel * bytes_of(type) != host_.schedule().buffers[buffer.v].bytes)
    type = type == reduce_ ? computed : reduce_;
  g.grads[i] = {buffer, type};
}

// pre_backward defers the cast to the reduce-scatter's copy-in. Members of a list group that run alone
// have none, and one may come before it (FSDPParamGroup._set_unsharded_grad_dtypes).
bool Fsdp2::widens_gradients(GroupId group) const {
  return group.valid() && host_.behaviour().completes_list_groups &&
         bytes_of(reduce_) > bytes_of(compute_) && !groups_[group.v].defers_cast;
}

void Fsdp2::post_backward(uint32_t s) {
  for_groups(
      s, [&](ParamGroup& g) { post_backward_group(g); }, true);
}

void Fsdp2::post_backward_group(ParamGroup& g) {
  // Members of a list group that ran alone: no pre_backward came before.
  const bool partial =
      plan_.states[g.state].modules.size() > 1 && g.training_state == TrainingState::forward;
  g.training_state = TrainingState::post_backward;
  g.post_pending = !g.sync;
  const Behaviour& behaviour = host_.behaviour();
  if (behaviour.casts_unsynced_late) accumulate_grads(g);
  if (!g.sync) {
    g.defers_cast = false;
    if (g.reshard_after_backward) reshard(g);
    if (behaviour.casts_unsynced_late) cast_unsynced_grads(g);
    return;
  }
  for (size_t i = 0; i < g.grads.size(); ++i)
    if (g.unsynced[i].valid()) std::swap(g.grads[i], g.unsynced[i]);
  zero_unused(g);
  g.defers_cast = false;
  if (g.reshard_after_backward) reshard(g);
  const bool any =
      std::any_of(g.grads.begin(), g.grads.end(), [](const Gradient& x) { return x.valid(); });
  if (!any && !behaviour.waits_without_gradients) return;
  const auto cap = static_cast<size_t>(training_.fsdp2.reduce_scatter_max_input_buffers);
  while (g.last && retained_.size() >= cap) {
    host_.wait(kCompute, retained_.front().event);
    host_.free(retained_.front().input);
    retained_.erase(retained_.begin());
  }
  if (!any) return;
  reduce(g);
  if (partial && behaviour.completes_list_groups) host_.wait(kCompute, g.post_event);
}

// Adds what this backward brought to what the unsynchronized ones before it left.
void Fsdp2::accumulate_grads(ParamGroup& g) {
  for (size_t i = 0; i < g.grads.size(); ++i) {
    if (!g.unsynced[i].valid() || !g.grads[i].valid()) continue;
    host_.launch(kCompute, g.accumulate[i]);
    host_.free(g.grads[i].buffer);
    g.grads[i] = {};
  }
}

// The gradients of an unsynchronized backward are kept in the reduce type, if it is another.
void Fsdp2::cast_unsynced_grads(ParamGroup& g) {
  if (reduce_ == compute_) return;
  const auto work = [&](const char* name, Bytes bytes) {
    Work w;
    w.bytes = bytes;
    w.dtype = reduce_;
    w.group = g.id;
    w.name = name;
    return host_.work(w);
  };
  if (g.accumulators.empty()) {
    const int64_t e = bytes_of(compute_), r = bytes_of(reduce_);
    for (const ShardedParam& q : g.plan->params) {
      g.accumulators.push_back(
          host_.buffer(q.numel * r, kCompute, Category::unsharded_gradients, g.id));
      g.cast_accumulated.push_back(work("cast", (e + r) * q.numel));
      g.accumulate.push_back(work("add", (e + 2 * r) * q.numel));
    }
  }
  for (size_t i = 0; i < g.grads.size(); ++i) {
    if (!g.grads[i].valid()) continue;
    g.unsynced[i] = {g.accumulators[i], reduce_};
    host_.alloc(g.unsynced[i].buffer);
    host_.launch(kCompute, g.cast_accumulated[i]);
    host_.free(g.grads[i].buffer);
    g.grads[i] = {};
  }
}

// set_reduce_scatter_unused_params: zeros for what has no gradient, in the type that autograd's
// gradient would have. So do parameters that a reduction has left part of, not yet all-reduced.
void Fsdp2::zero_unused(ParamGroup& g) {
  const bool all = plan_.states[g.state].reduce_unused;
  if (!(all || g.partial.valid()) || !g.ever_unsharded) return;
  const Group& p = *g.plan;
  for (size_t i = 0; i < p.params.size(); ++i) {
    const ShardedParam& q = p.params[i];
    if (g.grads[i].valid() || model_.params[q.id.v].frozen || !(all || g.in_partial[i])) continue;
    const DType computed = compute_dtype(q, training_.precision);
    const bool deferred = g.defers_cast && bytes_of(reduce_) > bytes_of(computed);
    const DType t = deferred ? computed : reduce_;
    const Bytes bytes = q.numel * bytes_of(t);
    g.grads[i] = {host_.buffer(bytes, kCompute, Category::unsharded_gradients, g.id), t};
    host_.alloc(g.grads[i].buffer);
    Work w;
    w.kind = WorkKind::Memset;
    w.bytes = bytes;
    w.group = g.id;
    w.name = "zeros";
    host_.launch(kCompute, host_.work(w));
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

// A gradient on another dimension than 0 is cut along it and put together along 0; what is cut lives
// until all are (seen with two).
void Fsdp2::cat_gradients(ParamGroup& g, Reduction& x) {
  std::vector<BufferId> cut;
  for (size_t i = 0; i < x.each.size(); ++i) {
    const Reduction::Each& each = x.each[i];
    if (!each.cat.valid()) continue;
    host_.alloc(each.cat);
    host_.launch(kCompute, each.cat_work);
    cut.push_back(g.grads[i].buffer);
    g.grads[i].buffer = each.cat;
  }
  for (const BufferId b : cut) host_.free(b);
}

void Fsdp2::reduce(ParamGroup& g) {
  Reduction& x = reduction(g);
  const BufferId input = reduce_input(g, x);
  const Behaviour& behaviour = host_.behaviour();
  wait_for_post_backward(g);
  if (hsdp() && g.partial.valid() && behaviour.partial_sum_waits)
    host_.wait_stream(kReduceScatter, kCompute);
  cat_gradients(g, x);
  host_.alloc(input);
  if (x.cast_in.empty()) {
    const bool mixed = x.second_chunk_cat.valid();
    const BufferId table = mixed ? x.mixed_table : x.table;
    host_.alloc(table);
    host_.pinned_copy(kCompute, mixed ? x.mixed_table_copy : x.table_copy);
    host_.launch(kCompute, x.chunk_cat);
    if (mixed) host_.launch(kCompute, x.second_chunk_cat);
    host_.free(table);
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
      last = b->buffer;
    else if (b->valid())
      host_.free(b->buffer);
    *b = {};
  }
  host_.wait_stream(kReduceScatter, kCompute);

  // The output is the sharded gradient itself where types agree.
  const bool stops_at_partial = hsdp() && !g.all_reduce;
  const BufferId grad = x.sharded_grad[holds_grads(g, x.sharded_grad[0]) ? 1 : 0];
  const BufferId output = stops_at_partial && !g.partial.valid()    ? x.partial
                          : reduce_ == stored_ && !stops_at_partial ? grad
                                                                    : x.output;
  host_.alloc(output);
  if (x.pre_divide.valid()) host_.launch(kReduceScatter, x.pre_divide);
  if (g.communicates)
    host_.collective(kReduceScatter, x.reduce_scatter, {input, output});
  else
    host_.launch(kReduceScatter, x.copy);
  retained_.push_back({input, host_.record(kReduceScatter)});

  StreamId post = kReduceScatter;
  if (hsdp()) {
    if (!g.all_reduce) {
      if (g.partial.valid()) {
        host_.launch(kReduceScatter, x.add_partial);
        host_.free(output);
      } else {
        g.partial = output;
        g.in_partial = x.of;
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
  if (offloads()) {
    offload_grad(g, x, post);
    free_reduced(g, grad);
    return;
  }
  if (training_.optimizer.in_backward) {
    for (const Reduction::Each& each : x.each)
      if (each.update.valid()) host_.launch(post, each.update);
    free_reduced(g, grad);
    return;
  }
  size_t had = 0, get = 0;
  for (size_t i = 0; i < x.of.size(); ++i) {
    if (!x.of[i]) continue;
    ++get;
    had += g.has_grad[i];
    if (g.has_grad[i]) continue;
    g.has_grad[i] = true;
    g.sharded_grads[i] = grad;
  }
  if (had == 0) return;
  SHARDSIM_ASSERT(had == get, "the same parameters get gradients in every micro-batch");
  for (WorkId w : x.add_grad) host_.launch(post, w);
  free_reduced(g, grad);
}

// The flat storage of new shards that nobody keeps; HSDP holds what has been all-reduced.
void Fsdp2::free_reduced(ParamGroup& g, BufferId grad) {
  if (hsdp() && reduce_ == stored_)
    g.all_reduce_buffer = grad;
  else
    host_.free(grad);
}

// Each parameter's shard goes to the host: without waiting, into pinned memory, where nothing on the
// host reads it yet.
void Fsdp2::offload_grad(ParamGroup& g, const Reduction& x, StreamId post) {
  const bool pins = training_.fsdp2.cpu_offload == CpuOffload::pinned;
  const bool hook = training_.optimizer.in_backward;
  for (size_t i = 0; i < x.each.size(); ++i) {
    if (!x.of[i]) continue;
    const WorkId copy = x.each[i].to_host;
    const bool overlaps = pins && !g.has_grad[i] && !hook;
    if (copy.valid() && overlaps) {
      g.pinned_grad[i] = host_.schedule().works[copy.v].bytes;
      g.pinned_on = post;
      host_.take_pinned(post, g.pinned_grad[i]);
    }
    if (copy.valid()) {
      host_.launch(post, copy);
      if (!overlaps) host_.stream_sync(post);
      if (g.has_grad[i]) host_.work_on_host(x.each[i].sum_on_host);
      if (hook) host_.work_on_host(x.each[i].update_on_host);
    }
    if (overlaps) g.offload_events.push_back(host_.record(post));
    g.has_grad[i] = !hook;
  }
}

bool Fsdp2::holds_grads(const ParamGroup& g, BufferId storage) {
  // From the back: they are dropped from the front.
  return std::find(g.sharded_grads.rbegin(), g.sharded_grads.rend(), storage) !=
         g.sharded_grads.rend();
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
  if (host_.behaviour().waits_for_stray_gathers) wait_for_gather(g);
  if (g.communicates) drop_gathered(g.gathered);
  g.pending = false;
}

// What is left of a group at the end of backward, but for the wait for its reduction.
void Fsdp2::finish_group(ParamGroup& g) {
  drop_all_reduce_buffer(g);
  g.post_event = {};
  g.all_reduce_event = {};
  for (const EventId e : g.offload_events) host_.host_wait(e);
  g.offload_events.clear();
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
  iteration_root_ = -1;
  in_forward_.assign(in_forward_.size(), false);
  in_backward_.assign(in_backward_.size(), false);
  if (!host_.behaviour().finishes_state_by_state || last_backward_)
    for (auto& members : to_run_) members.clear();
  const bool manual = training_.fsdp2.manual_finalization != ManualFinalization::no;
  const bool by_state = host_.behaviour().finishes_state_by_state;
  for (uint32_t s = 0; s < plan_.states.size(); ++s)
    for_groups(
        s,
        [&](ParamGroup& g) {
          if (g.training_state != TrainingState::post_backward) {
            if (manual && g.sync)
              g.post_pending = true;
            else
              post_backward_group(g);
          }
          g.training_state = TrainingState::idle;
          if (!last_backward_ || !by_state) return;
          wait_for_post_backward(g);
          finish_group(g);
        },
        true);
  if (by_state) {
    posts_.clear();
    if (!last_backward_) return;
    order_.clear();
    drop_retained();
    return;
  }
  if (last_backward_ && !manual)
    wait_for_gradient_reduction();
  else
    release_held(true);
}

bool Fsdp2::holds_gradients(GroupId id) const {
  const ParamGroup& g = groups_[id.v];
  return std::any_of(g.grads.begin(), g.grads.end(), [](const Gradient& x) { return x.valid(); });
}

bool Fsdp2::awaits_post_backward(GroupId id) const {
  return groups_[id.v].post_pending && holds_gradients(id);
}

void Fsdp2::finalize_backward() {
  for (auto s = static_cast<uint32_t>(plan_.states.size()); s-- > 0;)
    for_groups(
        s,
        [&](ParamGroup& g) {
          if (g.post_pending)
            post_backward_group(g);
          else if (g.reshard_after_backward)
            reshard(g);
          g.training_state = TrainingState::idle;
        },
        true);
}

void Fsdp2::wait_for_gradient_reduction() {
  for (const Post& p : posts_) host_.wait(kCompute, p.event);
  posts_.clear();
  for (uint32_t s = 0; s < plan_.states.size(); ++s)
    for_groups(s, [&](ParamGroup& g) { finish_group(g); });
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

void Fsdp2::reshard_all() {
  for (ParamGroup& g : groups_) {
    g.training_state = TrainingState::idle;
    reshard(g);
  }
}

std::vector<bool> Fsdp2::unsharded() const {
  std::vector<bool> out;
  for (const ParamGroup& g : groups_) out.push_back(g.sharded_state == ShardedState::unsharded);
  return out;
}

bool Fsdp2::has_grad(ParamId p) const {
  const int32_t index = plan_.group_of_param[p.v];
  if (index < 0) return ignored_grad_[p.v].valid();
  return groups_[static_cast<size_t>(index)].has_grad[position_[p.v]];
}

bool Fsdp2::ignored_gradients() const {
  return std::any_of(ignored_grad_.begin(), ignored_grad_.end(),
                     [](BufferId b) { return b.valid(); });
}

void Fsdp2::clip_grad_norm(const std::vector<uint32_t>& with_grad) {
  std::vector<int64_t> numels;
  numels.reserve(with_grad.size());
  for (uint32_t i : with_grad) numels.push_back(sharded_[i].local);
  shardsim::clip_grad_norm(host_, shard_comm_, stored_, numels);
}

// A group's gradients are views of one storage, which goes with the last of them; on the host each
// is its own.
void Fsdp2::drop_grads() {
  for (const Sharded& p : sharded_) {
    if (!has_grad(p.id)) continue;
    if (!p.group.valid()) {
      host_.free(ignored_grad_[p.id.v]);
      ignored_grad_[p.id.v] = {};
      continue;
    }
    ParamGroup& g = groups_[p.group.v];
    const uint32_t i = position_[p.id.v];
    g.has_grad[i] = false;
    if (g.pinned_grad[i] > 0) host_.release_pinned(g.pinned_on, g.pinned_grad[i]);
    g.pinned_grad[i] = 0;
    const BufferId storage = std::exchange(g.sharded_grads[i], {});
    if (storage.valid() && !holds_grads(g, storage)) host_.free(storage);
  }
}

}  // namespace shardsim
