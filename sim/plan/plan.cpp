#include "sim/plan/plan.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/plan/param_policy.h"
#include "sim/plan/plan_fsdp1.h"
#include "sim/plan/plan_whole.h"
#include "sim/plan/plan_zero.h"
#include "sim/plan/wrap.h"

namespace shardsim {

namespace {

// The modules that one call manages: depth first, not entering a module that already has a state.
void collect(const Model& model, ModuleId m, const std::vector<int32_t>& state_of, bool top,
             std::vector<ModuleId>& post_order) {
  if (!top && state_of[m.v] >= 0) return;
  for (uint32_t c = m.v + 1; c < model.modules[m.v].end; c = model.modules[c].end)
    collect(model, {c}, state_of, false, post_order);
  post_order.push_back(m);
}

void resolve_reshard(ShardState& s, const Reshard& r, int64_t ranks) {
  switch (r.kind) {
    case Reshard::Kind::standard:
      s.reshard = s.root ? Reshard::Kind::no : Reshard::Kind::yes;
      break;
    case Reshard::Kind::yes:
    case Reshard::Kind::no: s.reshard = r.kind; break;
    case Reshard::Kind::to:
      if (r.ranks < 1 || ranks % r.ranks != 0)
        throw Error::at("training.fsdp2.reshard_after_forward",
                        std::to_string(r.ranks) + " does not divide the shard group's " +
                            std::to_string(ranks) + " ranks",
                        "PyTorch raises ValueError; use a factor of the shard mesh size");
      // 1 means False (with a logged warning), W means True.
      s.reshard = r.ranks == 1       ? Reshard::Kind::no
                  : r.ranks == ranks ? Reshard::Kind::yes
                                     : Reshard::Kind::to;
      s.reshard_ranks = s.reshard == Reshard::Kind::to ? r.ranks : 0;
      break;
  }
}

std::string children_of(const Model& model, ModuleId m) {
  std::string out;
  for (uint32_t c = m.v + 1; c < model.modules[m.v].end; c = model.modules[c].end)
    out += (out.empty() ? "" : ", ") + (model.modules[c].index < 0
                                            ? model.modules[c].name
                                            : std::to_string(model.modules[c].index));
  return out;
}

void check_part(const Model& model, const Checkpointing& c) {
  if (c.part.empty()) return;
  for (ModuleId b : model.blocks)
    if (const ModuleId m = model.child(b, c.part); !m.valid() || !model.modules[m.v].callable())
      throw Error::at("training.activation_checkpointing.part",
                      "module '" + model.module_name(b) + "' has no child module '" + c.part + "'",
                      "its children are " + children_of(model, b));
}

}  // namespace

int64_t local_numel(int64_t d0, int64_t rest, int64_t ranks, int64_t k) {
  const int64_t c = ceil_div(d0, ranks);
  const int64_t begin = std::min(d0, k * c), end = std::min(d0, (k + 1) * c);
  return (end - begin) * rest;
}

std::string Group::name(const Model& model) const {
  std::string out;
  for (ModuleId m : modules) {
    if (!out.empty()) out += ",";
    out += m.v == 0 ? "root" : model.module_name(m);
  }
  if (second_mesh) out += " [" + std::to_string(ranks) + " ranks]";
  return out;
}

DType compute_dtype(const Precision& p) { return p.compute.value_or(p.storage); }

DType reduce_dtype(const Training& t) {
  const Precision& p = t.precision;
  const bool stored = t.strategy == Strategy::fsdp2 && t.behaviour().reduces_in_stored_type;
  return p.reduce.value_or(stored ? p.storage : compute_dtype(p));
}

Bytes all_gather_bytes(const Group& g, const Precision& p) {
  Bytes shard = 0;
  for (const ShardedParam& q : g.params) shard += q.shard * bytes_of(compute_dtype(q, p));
  // FSDP1's flat parameter is more than its parameters' shards.
  return g.params.empty() || g.flat > 0 ? g.padded() * bytes_of(compute_dtype(p)) : g.ranks * shard;
}

Bytes reduce_scatter_bytes(const Group& g, const Model& model, const Training& t) {
  int64_t shard = 0;
  bool trains = false;
  for (const ShardedParam& q : g.params) {
    if (model.params[q.id.v].frozen) continue;
    trains = true;
    shard += q.shard;
  }
  if (t.strategy == Strategy::fsdp1) shard = trains ? g.shard : 0;
  return g.ranks * shard * bytes_of(reduce_dtype(t));
}

Plan build_plan(const Model& model, const Training& training) {
  check_part(model, training.checkpointing);
  if (training.strategy == Strategy::fsdp1) return build_plan_fsdp1(model, training);
  if (keeps_parameters_whole(training.strategy)) return build_plan_whole(model, training);
  if (is_zero(training.strategy)) return build_plan_zero(model, training);
  Plan plan;
  plan.mesh = training.mesh;
  const int64_t ranks = training.mesh.shard;
  plan.state_of.assign(model.modules.size(), -1);
  plan.group_of_param.assign(model.params.size(), -1);

  const std::vector<ParamPolicy> policies = param_policies(model, training);
  const Fsdp2Options& f = training.fsdp2;
  const std::vector<WrapCall> calls = wrap_calls(model, training);
  std::vector<ShardState> made;
  made.reserve(calls.size());
  plan.groups.reserve(calls.size());
  std::vector<ModuleId> managed;
  for (const WrapCall& call : calls) {
    const auto index = static_cast<uint32_t>(made.size());
    ShardState& s = made.emplace_back();
    s.modules = call.modules;
    s.root = call.modules.size() == 1 && call.modules[0].v == 0;
    resolve_reshard(s, call.reshard, ranks);
    if (s.root && !training.behaviour().root_may_reshard) s.reshard = Reshard::Kind::no;
    managed.clear();
    for (ModuleId m : call.modules) {
      if (plan.state_of[m.v] >= 0)
        throw Error::at("training.wrap", "module '" + model.module_name(m) + "' is wrapped twice",
                        "fully_shard may be called once on a module; make the patterns disjoint");
      collect(model, m, plan.state_of, true, managed);
    }
    // One group for each mesh, in the order in which their first parameters come.
    const auto first = static_cast<int32_t>(plan.groups.size());
    for (ModuleId m : managed) {
      const Module& x = model.modules[m.v];
      for (uint32_t i = x.first_param; i < x.first_param + x.own_params; ++i) {
        const Param& p = model.params[i];
        const ParamPolicy& policy = policies[i];
        if (policy.ignored) continue;
        const uint32_t shared = p.alias.valid() ? p.alias.v : i;
        if (plan.group_of_param[shared] >= first) continue;  // a second name in the same group
        if (plan.group_of_param[shared] >= 0)
          throw Error::at(
              "training.wrap",
              "parameter '" + model.param_name({i}) + "' shares its storage with '" +
                  model.param_name({shared}) + "', which is in another group",
              "PyTorch 2.15: \"... is shared with a parameter already managed by another FSDP "
              "group. For "
              "shared/tied parameters, use fully_shard([module_a, module_b]) to place them in the "
              "same FSDP group.\"");
        auto group = static_cast<size_t>(first);
        while (group < plan.groups.size() && plan.groups[group].second_mesh != policy.second_mesh)
          ++group;
        if (group == plan.groups.size()) {
          Group& made_here = plan.groups.emplace_back();
          made_here.ranks = policy.second_mesh ? f.second_mesh.shard : ranks;
          made_here.modules = call.modules;
          made_here.second_mesh = policy.second_mesh;
        }
        Group& g = plan.groups[group];
        plan.group_of_param[shared] = static_cast<int32_t>(group);
        ShardedParam q;
        q.id = {shared};
        q.numel = p.shape.numel();
        q.shard = padded_shard(p.shape, policy.dim, g.ranks);
        q.local = local_shard(p.shape, policy.dim, g.ranks, 0);
        q.dim = policy.dim;
        q.kept =
            policy.keeps_dtype && compute_dtype(training.precision) != training.precision.storage;
        g.params.push_back(q);
        g.shard += q.shard;
        g.numel += q.numel;
        if (s.reshard == Reshard::Kind::to && (policy.second_mesh || policy.dim > 0))
          throw Error::at("training.fsdp2.reshard_after_forward",
                          "a number of ranks does not go with '" + model.param_name({i}) +
                              (policy.dim > 0 ? "', which is sharded on another dimension than 0"
                                              : "', which is on a second mesh"),
                          policy.dim > 0
                              ? "PyTorch 2.15 raises IndexError in backward; use true or false"
                              : "this build cannot play it; use true or false");
      }
    }
    for (ModuleId m : call.modules) plan.state_of[m.v] = static_cast<int32_t>(index);
    const auto groups = static_cast<int32_t>(plan.groups.size()) - first;
    if (groups > 0) s.group = {static_cast<uint32_t>(first)};
    if (groups > 1) s.second_group = {static_cast<uint32_t>(first + 1)};
  }

  // all_states: pre-order of the modules, each state once.
  std::vector<int32_t> order(made.size(), -1);
  plan.states.reserve(made.size());
  for (size_t m = 0; m < model.modules.size(); ++m) {
    const int32_t s = plan.state_of[m];
    if (s < 0) continue;
    if (order[s] < 0) {
      order[s] = static_cast<int32_t>(plan.states.size());
      plan.states.push_back(std::move(made[s]));
    }
    plan.state_of[m] = order[s];
  }
  for (size_t s = 0; s < plan.states.size(); ++s)
    for (const GroupId g : {plan.states[s].group, plan.states[s].second_group})
      if (g.valid()) plan.groups[g.v].state = static_cast<uint32_t>(s);
  for (size_t i = 0; i < model.params.size(); ++i)
    if (model.params[i].alias.valid())
      plan.group_of_param[i] = plan.group_of_param[model.params[i].alias.v];

  for (ShardState& s : plan.states) {
    s.requires_gradient_sync = f.requires_gradient_sync;
    s.requires_all_reduce = f.requires_all_reduce;
    s.reshard_after_backward = f.reshard_after_backward;
  }
  for (size_t i = 0; i < f.unshard_before.patterns.size(); ++i) {
    const std::string& pattern = f.unshard_before.patterns[i];
    bool used = false;
    for (uint32_t s = 0; s < plan.states.size(); ++s)
      for (ModuleId m : plan.states[s].modules) {
        if (!matches(pattern, model.module_name(m))) continue;
        used = true;
        if (std::find(plan.unshard_before.begin(), plan.unshard_before.end(), s) ==
            plan.unshard_before.end())
          plan.unshard_before.push_back(s);
      }
    if (!used)
      throw Error::at(element("training.fsdp2.unshard_before.modules", i),
                      "no wrapped module matches '" + pattern + "'",
                      "names are those of `shardsim explain`");
  }
  for (size_t i = 0; i < f.settings.size(); ++i) {
    const StateSetting& setting = f.settings[i];
    bool used = false;
    for (ShardState& s : plan.states)
      for (ModuleId m : s.modules) {
        if (!matches(setting.pattern, model.module_name(m))) continue;
        used = true;
        if (setting.gradient_divide_factor) s.divide_factor = *setting.gradient_divide_factor;
        if (setting.force_sum_reduction) s.force_sum = *setting.force_sum_reduction;
        if (setting.unshard_in_backward) s.unshard_in_backward = *setting.unshard_in_backward;
        if (setting.requires_gradient_sync)
          s.requires_gradient_sync = *setting.requires_gradient_sync;
        if (setting.requires_all_reduce) s.requires_all_reduce = *setting.requires_all_reduce;
        if (setting.reshard_after_backward)
          s.reshard_after_backward = *setting.reshard_after_backward;
        if (setting.reduce_scatter_unused_params)
          s.reduce_unused = *setting.reduce_scatter_unused_params;
      }
    if (!used && !setting.may_match_nothing)
      throw Error::at(element("training.fsdp2.settings", i) + ".module",
                      "no wrapped module matches '" + setting.pattern + "'",
                      "names are those of `shardsim explain`");
  }

  // Explicit prefetch over the blocks, as the recorder sets it.
  const auto n = static_cast<int64_t>(model.blocks.size());
  const auto state = [&](int64_t block) { return plan.state_of[model.blocks[block].v]; };
  for (int64_t i = 0; i < n; ++i) {
    if (f.forward_prefetch == 0 && f.backward_prefetch == 0) break;
    if (state(i) < 0) continue;
    ShardState& s = plan.states[state(i)];
    s.forward_prefetch.clear();
    for (int64_t j = i + 1; j < std::min(n, i + 1 + f.forward_prefetch); ++j)
      if (state(j) >= 0) s.forward_prefetch.push_back(static_cast<uint32_t>(state(j)));
    if (f.backward_prefetch > 0) {
      s.backward_prefetch.clear();
      for (int64_t j = i - 1; j > std::max<int64_t>(-1, i - 1 - f.backward_prefetch); --j)
        if (state(j) >= 0) s.backward_prefetch.push_back(static_cast<uint32_t>(state(j)));
      s.explicit_backward = !s.backward_prefetch.empty();
    }
  }
  for (int64_t j = 0; j < std::min(n, f.root_forward_prefetch); ++j)
    if (state(j) >= 0 && plan.state_of[0] >= 0)
      plan.states[plan.state_of[0]].forward_prefetch.push_back(static_cast<uint32_t>(state(j)));
  return plan;
}

}  // namespace shardsim
