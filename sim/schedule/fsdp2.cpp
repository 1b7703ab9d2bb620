#include "sim/schedule/fsdp2.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/schedule/streams.h"

namespace shardsim {

void Fsdp2::initialize() {
  const int64_t o = bytes_of(stored_);
  const auto allocate = [&](int64_t numel, GroupId group) {
    const BufferId b = host_.buffer(numel * o, kCompute, Category::parameters, group);
    if (!offloads()) host_.alloc(b);
    return b;
  };
  for (uint32_t i = 0; i < model_.params.size(); ++i) {
    const Param& p = model_.params[i];
    const int32_t index = plan_.group_of_param[i];
    const GroupId g = index < 0 ? GroupId{} : GroupId{static_cast<uint32_t>(index)};
    if (p.alias.valid()) {
      // to_empty makes a tensor for the second name too, and drops it.
      const ShardedParam* q = g.valid() ? &plan_.groups[g.v].params[position_[p.alias.v]] : nullptr;
      const BufferId b = allocate(q ? q->shard : p.shape.numel(), {});
      if (!offloads()) host_.free(b);
      continue;
    }
    if (!g.valid()) {
      allocate(p.shape.numel(), {});
      if (!p.frozen) sharded_.push_back({{i}, p.shape.numel(), {}});
      continue;
    }
    const ShardedParam& q = plan_.groups[g.v].params[position_[i]];
    allocate(q.shard, g);
    if (!p.frozen) sharded_.push_back({{i}, q.local, g});
  }
}

void Fsdp2::begin_micro_batch(bool last) {
  last_backward_ = holds(training_.fsdp2.is_last_backward, last);
  for (ParamGroup& g : groups_) {
    const ShardState& state = plan_.states[g.state];
    g.sync = holds(state.requires_gradient_sync, last);
    g.all_reduce = holds(state.requires_all_reduce, last);
    g.reshard_after_backward = holds(state.reshard_after_backward, last);
  }
}

// Unshard: cast and copy-in on the copy-in stream, all-gather on its own. Explicit and asynchronous
// ones copy on the compute stream; an asynchronous all-gather runs on the process group's stream.
void Fsdp2::unshard(ParamGroup& g, bool async) {
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
  const bool own_streams = !async && (g.training_state == TrainingState::forward ||
                                      g.training_state == TrainingState::pre_backward);
  const Gather* x = g.pending_partial ? &g.partial_mesh : &g.whole;
  if (!own_streams) {
    std::unique_ptr<Gather>& y = g.pending_partial ? g.partial_on_compute : g.whole_on_compute;
    if (!y) y = on_compute(*x);
    x = y.get();
  }
  const StreamId copies = own_streams ? kCopyIn : kCompute;
  const StreamId gathers = own_streams ? kAllGather : kCompute;
  size_t i = 0;
  if (x->flat_buffer.valid()) {
    host_.alloc(x->flat_buffer);
    for (; i < x->flat; ++i) host_.launch(copies, x->copy_in[i]);
  }
  upload(*x, copies);
  take_gathered(g, *x);
  for (; i < x->copy_in.size(); ++i) host_.launch(copies, x->copy_in[i]);
  // A Python list lets go of its elements from the end.
  for (auto u = x->uploads.rbegin(); u != x->uploads.rend(); ++u)
    host_.free(u->narrow.valid() ? u->narrow : u->shard);
  host_.wait_stream(gathers, copies);
  g.work_end = {};
  if (async)
    g.work_end = host_.async_collective(gathers, x->gather, {g.gathered});
  else
    host_.collective(gathers, x->gather, {g.gathered});
  g.gathered_event = host_.record(gathers);
  if (x->flat_buffer.valid()) host_.free(x->flat_buffer);
}

// Offloaded shards come to the device one by one, each cast before the next.
void Fsdp2::upload(const Gather& x, StreamId stream) {
  for (const Gather::Upload& u : x.uploads) {
    host_.alloc(u.shard);
    host_.launch(stream, u.copy);
    if (!u.cast.valid()) continue;
    host_.alloc(u.narrow);
    host_.launch(stream, u.cast);
    host_.free(u.shard);
  }
}

// The all-gather's output: its own, or with a custom persistent all-gather one kept per size.
void Fsdp2::take_gathered(ParamGroup& g, const Gather& x) {
  g.gathered = x.output;
  if (!training_.fsdp2.persistent_all_gather) {
    // A module that runs twice in a row gathers while its first output is still held.
    if (held_.buffer == g.gathered) g.gathered = g.gathered_other;
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

// The caller lets go of the held output later.
BufferId Fsdp2::wait_for_held() {
  const Held held = held_;
  held_ = {};
  if (!held.buffer.valid()) return {};
  host_.wait(kCopyIn, held.event);
  host_.wait(kAllGather, held.event);
  return held.buffer;
}

void Fsdp2::root_forward_returned() {
  if (leaving_.valid()) drop_gathered(leaving_);
  leaving_ = {};
}

void Fsdp2::wait_for_gather(ParamGroup& g) {
  host_.wait(kCompute, g.gathered_event);
  if (g.work_end.valid()) host_.wait_for_work(kCompute, g.work_end);
}

void Fsdp2::wait_for_unshard(ParamGroup& g) {
  if (!g.pending) return;
  g.pending = false;
  const bool forward = g.training_state == TrainingState::forward;
  BufferId held;  // goes at the end
  if (forward && host_.behaviour().frees_held_gather_late)
    held = wait_for_held();
  else if (forward)
    release_held(false);
  const auto n = static_cast<uint32_t>(g.plan->params.size());
  if (!g.communicates) {
    BufferId previous;
    for (uint32_t i = 0; i < n; ++i) {
      const OneRank& one = g.one_rank[i];
      if (one.upload.valid()) {
        host_.alloc(one.shard);
        host_.launch(kCompute, one.upload);
      }
      if (one.cast.valid()) {
        host_.alloc(one.narrow);
        host_.launch(kCompute, one.cast);
        if (one.upload.valid()) host_.free(one.shard);
      }
      if (one.upload.valid() || one.cast.valid()) {
        if (previous.valid()) host_.free(previous);
        previous = one.cast.valid() ? one.narrow : one.shard;
      }
      take_storage(g, i);
      host_.launch(kCompute, one.copy);
    }
    if (previous.valid()) host_.free(previous);
  } else {
    wait_for_gather(g);
    const Gather& x = g.pending_partial ? g.partial_mesh : g.whole;
    size_t piece = 0;
    for (uint32_t i = 0; i < n; ++i) {
      take_storage(g, i);
      if (piece < g.reassembly.size() && g.reassembly[piece].position == i)
        host_.alloc(g.reassembly[piece++].piece);
    }
    host_.alloc(x.table_buffer);
    host_.pinned_copy(kCompute, x.table);
    host_.launch(kCompute, x.copy_out);
    host_.free(x.table_buffer);
    reassemble(g);
  }
  if (g.sharded_state == ShardedState::post_forward)
    for (uint32_t i = 0; i < n; ++i) host_.free({g.first_post_forward + i});
  g.sharded_state = ShardedState::unsharded;
  g.ever_unsharded = true;
  g.storage_kept = training_.fsdp2.keep_unsharded_storage;
  const EventId copied = host_.record(kCompute);
  if (forward && !g.work_end.valid() && g.communicates) {
    held_ = {g.gathered, copied};
    if (held.valid()) drop_gathered(held);
    return;
  }
  // Before the first forward the all-gather streams do not exist.
  if (lazily_initialized_) {
    host_.wait(kCopyIn, copied);
    host_.wait(kAllGather, copied);
  }
  if (g.communicates) drop_gathered(g.gathered);
  if (held.valid()) drop_gathered(held);
}

void Fsdp2::reassemble(ParamGroup& g) {
  const auto& pieces = g.reassembly;
  if (pieces.empty()) return;
  for (const Reassembly& r : pieces) host_.launch(kCompute, r.cat);
  // A Python list lets go of its elements from the end; a local name still holds the last parameter's.
  const bool held = pieces.back().position + 1 == g.plan->params.size();
  for (size_t i = pieces.size() - (held ? 1 : 0); i-- > 0;) host_.free(pieces[i].piece);
  if (held) host_.free(pieces.back().piece);
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

// The first state to run forward is the iteration's root: the whole model's, or inside backward one
// that a checkpoint reruns.
void Fsdp2::root_pre_forward(uint32_t s) {
  host_.make_streams();
  lazily_initialized_ = true;
  if (in_backward_[s]) {
    // A rerun of a module whose pre_backward has run.
    first_in_pass_ = true;
    for_groups(s, [&](ParamGroup& g) {
      if (g.sharded_state == ShardedState::unsharded) return;
      unshard(g, training_.fsdp2.unshard_async_op);
      wait_for_unshard(g);
    });
    return;
  }
  first_in_pass_ = host_.behaviour().casts_for_every_member ? !in_forward_[s] : to_run_[s].empty();
  if (to_run_[s].empty()) to_run_[s] = plan_.states[s].modules;
  in_forward_[s] = true;
  if (!first_in_pass_ || iteration_root_ >= 0) return;
  iteration_root_ = s;
  if (post_optim_event_.valid()) {
    host_.wait(kCopyIn, post_optim_event_);
    host_.wait(kAllGather, post_optim_event_);
    post_optim_event_ = {};
    return;
  }
  host_.wait_stream(kCopyIn, kCompute);
  host_.wait_stream(kAllGather, kCompute);
}

void Fsdp2::prefetch(ParamGroup& g, TrainingState as) {
  const TrainingState before = g.training_state;
  g.training_state = as;
  unshard(g, training_.fsdp2.unshard_async_op);
  g.training_state = before;
}

void Fsdp2::unshard_before_forward() {
  const UnshardBefore& u = training_.fsdp2.unshard_before;
  for (const uint32_t s : plan_.unshard_before) {
    for_groups(s, [&](ParamGroup& g) { unshard(g, u.async_op); });
    if (!u.async_op) for_groups(s, [&](ParamGroup& g) { wait_for_unshard(g); });
  }
  if (u.async_op && u.wait)
    for (const uint32_t s : plan_.unshard_before)
      for_groups(s, [&](ParamGroup& g) { wait_for_unshard(g); });
}

bool Fsdp2::pre_forward(uint32_t s) {
  if (in_backward_[s]) return false;
  const ShardState& state = plan_.states[s];
  if (!first_in_pass_) return false;
  for_groups(s, [&](ParamGroup& g) {
    g.training_state = TrainingState::forward;
    unshard(g, training_.fsdp2.unshard_async_op);
    wait_for_unshard(g);
  });
  for (uint32_t t : state.forward_prefetch)
    for_groups(t, [&](ParamGroup& g) { prefetch(g, TrainingState::forward); });
  return state.group.valid();
}

bool Fsdp2::post_forward(uint32_t s, ModuleId member, bool) {
  if (in_backward_[s]) return false;
  // A list group's forward ends with the last of its members; one that runs alone ends nothing.
  if (std::erase(to_run_[s], member) == 0 || !to_run_[s].empty()) return false;
  in_forward_[s] = false;
  for_groups(s, [&](ParamGroup& g) { end_forward(g); });
  if (iteration_root_ == s) {
    force_complete_incomplete_states();
    if (host_.behaviour().frees_held_gather_late)
      leaving_ = wait_for_held();
    else
      release_held(false);
    iteration_root_ = -1;
  }
  return true;
}

void Fsdp2::end_forward(ParamGroup& g) {
  // Inside backward a rerun's parameters stay for the module's own backward.
  if (!final_queued_ || host_.behaviour().recompute_reshards) {
    reshard(g);
    g.forward_indices.push_back(static_cast<uint32_t>(order_.size()));
    order_.push_back(g.id.v);
  }
  g.training_state = TrainingState::idle;
}

void Fsdp2::force_complete_incomplete_states() {
  if (!host_.behaviour().completes_list_groups) return;
  for (auto s = static_cast<uint32_t>(plan_.states.size()); s-- > 0;) {
    if (to_run_[s].empty() || plan_.states[s].root) continue;
    to_run_[s].clear();
    in_forward_[s] = false;
    for_groups(s, [&](ParamGroup& g) { end_forward(g); });
    completed_.push_back(s);
  }
}

void Fsdp2::pre_backward(uint32_t s) {
  final_queued_ = true;
  in_backward_[s] = true;
  const ShardState& state = plan_.states[s];
  for_groups(s, [&](ParamGroup& g) {
    if (g.training_state == TrainingState::pre_backward) return;
    g.training_state = TrainingState::pre_backward;
    unshard(g, training_.fsdp2.unshard_async_op);
    wait_for_unshard(g);
    g.defers_cast = g.sync;
    if (!state.explicit_backward) prefetch_backward(g);
  });
  for (uint32_t t : state.backward_prefetch)
    for_groups(
        t, [&](ParamGroup& g) { prefetch(g, TrainingState::pre_backward); }, true);
}

// The module that ran before this one in forward. Of two groups the second prefetches both of it.
void Fsdp2::prefetch_backward(ParamGroup& g) {
  if (g.forward_indices.empty()) return;
  const uint32_t index = g.forward_indices.back();
  g.forward_indices.pop_back();
  if (!plan_.states[g.state].second_group.valid()) {
    if (index >= 1) prefetch(groups_[order_[index - 1]], TrainingState::pre_backward);
    return;
  }
  if (!g.last) return;
  uint32_t target = UINT32_MAX;
  for (uint32_t i = index; i-- > 0;) {
    ParamGroup& t = groups_[order_[i]];
    if (t.state == g.state) continue;
    if (target == UINT32_MAX) target = t.state;
    if (t.state != target) break;
    prefetch(t, TrainingState::pre_backward);
  }
}

}  // namespace shardsim
