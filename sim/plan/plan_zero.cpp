#include "sim/plan/plan_zero.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/base/units.h"

namespace shardsim {

namespace {

// The parameters that DeepSpeed is given: those that require a gradient, a tied one once.
std::vector<ParamId> trainable(const Model& model) {
  std::vector<ParamId> out;
  for (uint32_t i = 0; i < model.params.size(); ++i)
    if (!model.params[i].alias.valid() && !model.params[i].frozen) out.push_back({i});
  return out;
}

void add_state(Plan& plan, ModuleId m) {
  ShardState& s = plan.states.emplace_back();
  s.modules = {m};
  s.root = m.v == 0;
  plan.state_of[m.v] = static_cast<int32_t>(plan.states.size() - 1);
}

void one_flat_group(const Model& model, const Training& t, Plan& plan) {
  const std::vector<ParamId> params = trainable(model);
  if (params.empty())
    throw Error::at("training.frozen", "no parameter is left to train",
                    "DeepSpeed: \"ValueError: optimizer got an empty parameter list\"");
  std::vector<int64_t> numels;
  numels.reserve(params.size());
  for (ParamId p : params) numels.push_back(model.params[p.v].shape.numel());
  const ZeroFlat flat = zero_flat(numels, t.mesh.shard, t.zero.round_robin_gradients);
  add_state(plan, ModuleId{0});
  Group g;
  g.modules = {ModuleId{0}};
  g.ranks = t.mesh.shard;
  g.flat = flat.length;
  g.shard = flat.partition;
  for (size_t i = 0; i < params.size(); ++i) {
    ShardedParam q;
    q.id = params[i];
    q.numel = numels[i];
    q.offset = flat.offsets[i];
    q.local = std::clamp<int64_t>(flat.partition - q.offset, 0, q.numel);
    q.shard = q.local;
    g.numel += q.numel;
    g.params.push_back(q);
    plan.group_of_param[q.id.v] = 0;
  }
  plan.states[0].group = GroupId{0};
  plan.groups.push_back(std::move(g));
}

void group_by_module(const Model& model, const Training& t, Plan& plan) {
  const int64_t n = t.mesh.shard;
  for (uint32_t m = 0; m < model.modules.size(); ++m) {
    const Module& x = model.modules[m];
    if (!x.callable()) continue;
    add_state(plan, {m});
    Group g;
    g.modules = {ModuleId{m}};
    g.ranks = n;
    g.state = static_cast<uint32_t>(plan.states.size() - 1);
    for (ParamId p : fetched_with(model, {m})) {
      if (model.params[p.v].alias.valid()) continue;
      ShardedParam q;
      q.id = p;
      q.numel = model.params[p.v].shape.numel();
      q.shard = ceil_div(q.numel, n);
      q.local = std::min(q.shard, q.numel);
      g.numel += q.numel;
      g.shard += q.shard;
      plan.group_of_param[p.v] = static_cast<int32_t>(plan.groups.size());
      g.params.push_back(q);
    }
    if (g.params.empty()) continue;
    plan.states.back().group = GroupId{static_cast<uint32_t>(plan.groups.size())};
    plan.groups.push_back(std::move(g));
  }
}

}  // namespace

std::vector<ParamId> fetched_with(const Model& model, ModuleId m) {
  std::vector<ParamId> out;
  const auto own = [&](const Module& x) {
    for (uint32_t i = x.first_param; i < x.first_param + x.own_params; ++i) out.push_back({i});
  };
  own(model.modules[m.v]);
  for (uint32_t c = m.v + 1; c < model.modules[m.v].end; c = model.modules[c].end)
    if (model.modules[c].kind == Module::Kind::parameter_list) own(model.modules[c]);
  return out;
}

std::vector<uint32_t> round_robin_order(uint32_t count, int64_t ranks) {
  std::vector<uint32_t> order;
  order.reserve(count);
  for (int64_t r = 0; r < std::min<int64_t>(ranks, count); ++r)
    for (int64_t i = r; i < count; i += ranks) order.push_back(static_cast<uint32_t>(i));
  return order;
}

ZeroFlat zero_flat(std::span<const int64_t> numels, int64_t ranks, bool round_robin) {
  const auto count = static_cast<uint32_t>(numels.size());
  ZeroFlat f;
  f.order = round_robin_order(count, round_robin ? ranks : 1);
  f.offsets.resize(count);
  int64_t end = 0;
  for (uint32_t i : f.order) {
    f.offsets[i] = end;
    end += numels[i];
  }
  const int64_t alignment = 2 * ranks;  // nccl_start_alignment_factor
  f.length = ceil_div(end, alignment) * alignment;
  f.padding = f.length - end;
  f.partition = f.length / ranks;
  return f;
}

std::vector<bool> persistent_parameters(std::span<const int64_t> numels, int64_t param_threshold,
                                        int64_t model_threshold) {
  std::vector<bool> out;
  int64_t total = 0;
  for (int64_t n : numels) {
    const bool persists = n <= param_threshold && n + total <= model_threshold;
    if (persists) total += n;
    out.push_back(persists);
  }
  return out;
}

size_t prefetched(std::span<const int64_t> next, int64_t bucket, int64_t max_live,
                  int64_t available) {
  const int64_t most = std::min(max_live - available, bucket);
  int64_t fetched = 0;
  size_t count = 0;
  while (count < next.size() && fetched < most) fetched += next[count++];
  return count;
}

Plan build_plan_zero(const Model& model, const Training& training) {
  Plan plan;
  plan.mesh = training.mesh;
  plan.state_of.assign(model.modules.size(), -1);
  plan.group_of_param.assign(model.params.size(), -1);
  if (training.strategy == Strategy::zero3)
    group_by_module(model, training, plan);
  else
    one_flat_group(model, training, plan);
  return plan;
}

}  // namespace shardsim
