#include "sim/plan/plan_whole.h"

namespace shardsim {

Plan build_plan_whole(const Model& model, const Training& training) {
  Plan plan;
  plan.mesh = training.mesh;
  plan.state_of.assign(model.modules.size(), -1);
  plan.group_of_param.assign(model.params.size(), -1);
  const auto unit = [&](ModuleId m) {
    const auto state = static_cast<uint32_t>(plan.states.size());
    ShardState& s = plan.states.emplace_back();
    s.modules = {m};
    s.root = m.v == 0;
    s.reshard = Reshard::Kind::no;
    plan.state_of[m.v] = static_cast<int32_t>(state);
    return state;
  };
  const auto take = [&](uint32_t state, uint32_t first, uint32_t end) {
    Group g;
    g.state = state;
    g.modules = plan.states[state].modules;
    const auto group = static_cast<int32_t>(plan.groups.size());
    for (uint32_t i = first; i < end; ++i) {
      const Param& p = model.params[i];
      if (p.alias.valid() || plan.group_of_param[i] >= 0) continue;
      plan.group_of_param[i] = group;
      ShardedParam q;
      q.id = {i};
      q.numel = q.shard = q.local = p.shape.numel();
      g.params.push_back(q);
      g.shard += q.numel;
      g.numel += q.numel;
    }
    if (g.params.empty()) return;
    plan.states[state].group = {static_cast<uint32_t>(group)};
    plan.groups.push_back(std::move(g));
  };
  const uint32_t root = unit({0});
  for (ModuleId b : model.blocks)
    take(unit(b), model.modules[b.v].first_param, model.modules[b.v].end_param);
  take(root, 0, static_cast<uint32_t>(model.params.size()));
  for (uint32_t i = 0; i < model.params.size(); ++i)
    if (model.params[i].alias.valid())
      plan.group_of_param[i] = plan.group_of_param[model.params[i].alias.v];
  return plan;
}

}  // namespace shardsim
