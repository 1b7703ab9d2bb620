// FSDP1's state dicts and summon_full_params: units are gathered in the stored type on the default
// stream, one behind the other (torch/distributed/fsdp/_state_dict_utils.py, _unshard_param_utils.py).
// A unit is gathered when its module is entered and resharded when it is left, so the root stays
// gathered throughout.
#include "sim/schedule/fsdp1.h"
#include "sim/schedule/streams.h"

namespace shardsim {

namespace {

WorkId copy_work(Host& host, WorkKind kind, Bytes bytes, GroupId group) {
  Work w;
  w.kind = kind;
  w.bytes = bytes;
  w.group = group;
  w.name = "state_dict";
  return host.work(w);
}

}  // namespace

bool Fsdp1::inside(const Unit& outer, const Unit& inner) const {
  for (ModuleId m : outer.plan->modules)
    if (m.v <= inner.plan->modules[0].v && inner.plan->modules[0].v < model_.modules[m.v].end)
      return true;
  return false;
}

void Fsdp1::gather_for_saving(Unit& u) {
  drop_dead_grad(u);
  host_.device_sync();
  wait_for_limiter();
  if (!shards_) return;
  host_.alloc(u.full_stored);
  host_.collective(kCompute, u.gather_stored, {u.full_stored});
}

void Fsdp1::reshard_after_saving(Unit& u) {
  if (!shards_) return;
  host_.free(u.full_stored);
  if (options_.limit_all_gathers) free_events_.push_back(host_.record(kCompute));
}

// The copies that the state dict keeps: whole parameters, or rank 0's chunk of dimension 0.
void Fsdp1::copy_out(Unit& u, std::vector<BufferId>& copies) {
  const bool sharded = options_.state_dict == Fsdp1Options::StateDict::sharded ||
                       options_.state_dict == Fsdp1Options::StateDict::sharded_offload;
  for (const ShardedParam& q : u.plan->params) {
    const Shape& shape = model_.params[q.id.v].shape;
    const int64_t numel =
        sharded ? ceil_div(shape.dim[0], plan_.mesh.shard) * shape.rest() : q.numel;
    const BufferId b = host_.buffer(stored(numel), kCompute, Category::temporary, u.id);
    host_.alloc(b);
    host_.launch(kCompute, copy_work(host_, WorkKind::CopyD2D, stored(numel), u.id));
    if (options_.state_dict != Fsdp1Options::StateDict::sharded_offload) {
      copies.push_back(b);
      continue;
    }
    host_.launch(kCompute, copy_work(host_, WorkKind::CopyD2H, stored(numel), u.id));
    host_.stream_sync(kCompute);
    host_.free(b);
  }
}

void Fsdp1::save() {
  using Saved = Fsdp1Options::StateDict;
  const Saved kind = options_.state_dict;
  // Only what is sharded goes to the host whole (handle.to_cpu).
  const bool offload =
      shards_ && (kind == Saved::full_offload || kind == Saved::full_offload_rank0);
  if (kind != Saved::none) {
    host_.mark("before_state_dict", -1, false);
    std::vector<BufferId> copies;
    std::vector<Unit*> open;
    const auto leave = [&] {
      Unit& u = *open.back();
      open.pop_back();
      if (kind == Saved::local) return;
      if (offload) {
        host_.alloc(u.full_stored);
        host_.launch(kCompute, copy_work(host_, WorkKind::CopyH2D, stored(u.plan->flat), u.id));
        host_.stream_sync(kCompute);
      } else {
        copy_out(u, copies);
      }
      reshard_after_saving(u);
    };
    for (uint32_t i : all_handles_) {
      Unit& u = units_[i];
      while (!open.empty() && !inside(*open.back(), u)) leave();
      open.push_back(&u);
      host_.device_sync();
      if (kind == Saved::local) continue;
      // With use_orig_params what is not sharded needs no unsharding.
      if (!shards_ && options_.use_orig_params) {
        drop_dead_grad(u);
        continue;
      }
      gather_for_saving(u);
      if (!offload) continue;
      host_.launch(kCompute, copy_work(host_, WorkKind::CopyD2H, stored(u.plan->flat), u.id));
      host_.stream_sync(kCompute);
      host_.free(u.full_stored);
    }
    while (!open.empty()) leave();
    host_.mark("after_state_dict", -1, false);
    for (BufferId b : copies) host_.free(b);
    host_.mark("after_del_state_dict", -1, options_.summon_full_params);
  }
  if (!options_.summon_full_params) return;
  host_.mark("before_summon", -1, false);
  for (uint32_t i : all_handles_) gather_for_saving(units_[i]);
  host_.mark("inside_summon", -1, false);
  for (auto i = all_handles_.rbegin(); i != all_handles_.rend(); ++i) {
    Unit& u = units_[*i];
    if (shards_)
      host_.launch(kCompute, copy_work(host_, WorkKind::CopyD2D, stored(u.plan->shard), u.id));
    reshard_after_saving(u);
  }
  host_.mark("after_summon", -1, false);
}

}  // namespace shardsim
