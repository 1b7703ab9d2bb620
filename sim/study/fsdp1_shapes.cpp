#include "sim/study/fsdp1_shapes.h"

#include "sim/plan/plan_fsdp1.h"

namespace shardsim {

namespace {

// Where k blocks are one Sequential, block i is its element i % k.
std::string wrapped_name(const Model& model, const Wrap& wrap, ModuleId m) {
  const std::string name = model.module_name(m);
  if (wrap.policy != WrapPolicy::every_k) return name;
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    const ModuleId block = model.blocks[i];
    if (m.v < block.v || m.v >= model.modules[block.v].end) continue;
    const auto k = static_cast<size_t>(wrap.every);
    return model.module_name(model.modules[block.v].parent) + "." + std::to_string(i / k) + "." +
           std::to_string(i % k) + name.substr(model.module_name(block).size());
  }
  return name;
}

std::string unit_name(const Model& model, const Wrap& wrap, const Group& g) {
  if (g.modules[0].v == 0) return "";
  std::string name = wrapped_name(model, wrap, g.modules[0]);
  if (wrap.policy == WrapPolicy::every_k) name = name.substr(0, name.rfind('.'));
  return name + ".";
}

}  // namespace

LocalShapes fsdp1_shapes(const Model& model, const Plan& plan, const Training& training) {
  LocalShapes out;
  const bool sharded = effective_sharding_strategy(training) != ShardingStrategy::no_shard;
  for (const Group& g : plan.groups) {
    if (!training.fsdp1.use_orig_params) {
      out.emplace(unit_name(model, training.wrap, g) + "_flat_param", std::vector{g.shard});
      continue;
    }
    for (const ShardedParam& p : g.params) {
      const Param& param = model.params[p.id.v];
      const std::string module = wrapped_name(model, training.wrap, param.module);
      const std::string own = model.param_name(p.id);
      const size_t at = model.module_name(param.module).size();
      std::vector<int64_t> dims{p.local};
      if (!sharded)
        dims.assign(param.shape.dim.begin(), param.shape.dim.begin() + param.shape.rank);
      out.emplace(module + own.substr(at), std::move(dims));
    }
  }
  return out;
}

}  // namespace shardsim
