#include "sim/plan/plan_fsdp1.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/plan/flat_layout.h"
#include "sim/plan/size_policy.h"
#include "sim/plan/wrap.h"

namespace shardsim {

namespace {

bool hybrid(ShardingStrategy s) {
  return s == ShardingStrategy::hybrid_shard || s == ShardingStrategy::hybrid_shard_zero2;
}

const char* torch_name(ShardingStrategy s) {
  switch (s) {
    case ShardingStrategy::full_shard: return "FULL_SHARD";
    case ShardingStrategy::shard_grad_op: return "SHARD_GRAD_OP";
    case ShardingStrategy::no_shard: return "NO_SHARD";
    case ShardingStrategy::hybrid_shard: return "HYBRID_SHARD";
    case ShardingStrategy::hybrid_shard_zero2: return "_HYBRID_SHARD_ZERO2";
  }
  return "?";
}

// FSDP takes a device mesh's first dimension as its process group unless the strategy is hybrid.
void check_mesh(const Training& t) {
  const ShardingStrategy s = t.fsdp1.sharding_strategy;
  const std::string name = torch_name(s);
  const std::string replicas = std::to_string(t.mesh.replicate);
  const std::string key = "training.fsdp1.sharding_strategy";
  if (hybrid(s) && t.mesh.replicate < 2)
    throw Error::at(key, name + " needs a mesh of replicas and shards",
                    "PyTorch: \"Manual wrapping with ShardingStrategy." + name +
                        " requires explicit specification of process group or device_mesh.\"; set "
                        "mesh.replicate to 2 or more");
  if (!hybrid(s) && t.mesh.replicate > 1)
    throw Error::at(
        key, name + " with a mesh of " + replicas + " replicas",
        "PyTorch accepts it without a word and takes the mesh's first dimension alone as "
        "its process group: gradients are reduced over " +
            replicas + " ranks, and the others' never. Use hybrid_shard, or one replica");
  if (hybrid(s) && t.mesh.shard < 2)
    throw Error::at(key, name + " with one rank a replica",
                    "PyTorch: \"FSDP is switching to use `NO_SHARD` instead of ShardingStrategy." +
                        name +
                        " since the world size is 1.\", and reduces over that one rank only. Use "
                        "no_shard with mesh.shard " +
                        replicas);
}

void refuse_containers(const Model& model, ModuleId m, const std::string& key) {
  const Module::Kind kind = model.modules[m.v].kind;
  if (kind == Module::Kind::module_list || kind == Module::Kind::parameter_list)
    throw Error::at(
        key,
        "module '" + model.module_name(m) + "' is a " +
            (kind == Module::Kind::module_list ? "ModuleList" : "ParameterList") +
            ", which has no forward",
        "FSDP unshards in a module's forward, so this unit's parameters would stay sharded; "
        "wrap its owner");
}

void add(const Model& model, ModuleId m, std::vector<std::vector<ModuleId>>& units) {
  refuse_containers(model, m, "training.wrap.policy");
  units.push_back({m});
}

// Children before parents, in the order that FSDP's constructor is called; the root last.
std::vector<std::vector<ModuleId>> units_of(const Model& model, const Training& t) {
  const Wrap& w = t.wrap;
  std::vector<std::vector<ModuleId>> units;
  switch (w.policy) {
    case WrapPolicy::root_only: break;
    case WrapPolicy::per_block:
      for (ModuleId b : model.blocks) add(model, b, units);
      break;
    case WrapPolicy::every_k:
      // A Sequential of k blocks.
      for (size_t i = 0; i < model.blocks.size(); i += static_cast<size_t>(w.every))
        units.emplace_back(
            model.blocks.begin() + static_cast<int64_t>(i),
            model.blocks.begin() + static_cast<int64_t>(std::min(
                                       model.blocks.size(), i + static_cast<size_t>(w.every))));
      break;
    case WrapPolicy::nested:
    case WrapPolicy::children:
      for (ModuleId b : model.blocks) {
        for (uint32_t c = b.v + 1; c < model.modules[b.v].end; c = model.modules[c].end)
          if (model.modules[c].end_param > model.modules[c].first_param) add(model, {c}, units);
        if (w.policy == WrapPolicy::nested) add(model, b, units);
      }
      break;
    case WrapPolicy::list: {
      std::vector<ModuleId> named;
      for (size_t i = 0; i < w.groups.size(); ++i) {
        const std::string key = element("training.wrap.modules", i);
        for (ModuleId m : modules_matching(model, w.groups[i].front(), key)) {
          refuse_containers(model, m, key);
          named.push_back(m);
        }
      }
      // Post-order: a module stands before the next one that does not lie in it.
      std::sort(named.begin(), named.end(), [&](ModuleId a, ModuleId b) {
        const Module &x = model.modules[a.v], &y = model.modules[b.v];
        return x.end != y.end ? x.end < y.end : a.v > b.v;
      });
      named.erase(std::unique(named.begin(), named.end()), named.end());
      for (ModuleId m : named) add(model, m, units);
      break;
    }
    case WrapPolicy::groups:
      throw Error::at("training.wrap.policy",
                      "groups makes one group of several modules, which FSDP1 cannot",
                      "FullyShardedDataParallel wraps single modules; use policy list");
    case WrapPolicy::size:
      for (ModuleId m : size_based_auto_wrap(model, w.min_params)) add(model, m, units);
      break;
  }
  if (w.embedding)
    for (ModuleId m : model.embedding) add(model, m, units);
  if (w.head)
    throw Error::at("training.wrap.head",
                    "it makes one group of final norm and head, which FSDP1 cannot",
                    "FullyShardedDataParallel wraps single modules; use policy list");
  units.push_back({ModuleId{0}});
  return units;
}

class Builder {
 public:
  Builder(const Model& model, const Training& training)
      : model_(model),
        training_(training),
        sharding_(effective_sharding_strategy(training)),
        sharded_(sharding_ != ShardingStrategy::no_shard) {}

  Plan build() {
    plan_.mesh = training_.mesh;
    plan_.state_of.assign(model_.modules.size(), -1);
    plan_.group_of_param.assign(model_.params.size(), -1);
    const auto units = units_of(model_, training_);
    std::vector<ShardState> made;
    made.reserve(units.size());
    for (const auto& modules : units) made.push_back(unit(modules, made.size()));
    for (size_t i = 0; i < model_.params.size(); ++i)
      if (model_.params[i].alias.valid())
        plan_.group_of_param[i] = plan_.group_of_param[model_.params[i].alias.v];
    order(std::move(made));
    return std::move(plan_);
  }

 private:
  // Modules in pre-order that belong to the unit of `top`.
  template <class F>
  void for_managed(ModuleId top, F&& f) const {
    for (uint32_t m = top.v; m < model_.modules[top.v].end;) {
      if (plan_.state_of[m] >= 0) {
        m = model_.modules[m].end;
        continue;
      }
      f(model_.modules[m]);
      ++m;
    }
  }

  ShardState unit(const std::vector<ModuleId>& modules, size_t index) {
    ShardState s;
    s.modules = modules;
    s.root = modules[0].v == 0;
    const bool frees =
        sharding_ == ShardingStrategy::full_shard || sharding_ == ShardingStrategy::hybrid_shard;
    s.reshard = frees && !s.root ? Reshard::Kind::yes : Reshard::Kind::no;
    Group g;
    g.modules = modules;
    g.ranks = sharded_ ? training_.mesh.shard : 1;
    const auto group = static_cast<int32_t>(plan_.groups.size());
    std::vector<int64_t> sizes;
    for (ModuleId top : modules) {
      if (plan_.state_of[top.v] >= 0)
        throw Error::at("training.wrap",
                        "module '" + model_.module_name(top) + "' is wrapped twice",
                        "PyTorch: \"FSDP auto wrapping requires modules to not already have FSDP "
                        "applied\"; make the patterns disjoint");
      for_managed(top, [&](const Module& m) {
        for (uint32_t i = m.first_param; i < m.first_param + m.own_params; ++i)
          take(i, group, g, sizes);
      });
    }
    for (ModuleId m : modules) plan_.state_of[m.v] = static_cast<int32_t>(index);
    if (g.params.empty()) return s;
    refuse_mixed_frozen(s, g);
    const FlatLayout layout =
        flat_layout(sizes, training_.mesh.shard, compute_dtype(training_.precision),
                    training_.fsdp1.use_orig_params);
    g.flat = layout.length;
    g.shard = sharded_ ? layout.shard : layout.length;
    for (size_t p = 0; p < g.params.size(); ++p) {
      ShardedParam& q = g.params[p];
      q.offset = layout.offsets[p];
      q.local = sharded_ ? layout.of_param(p, 0).size() : q.numel;
      q.shard = q.local;
      g.numel += q.numel;
    }
    s.group = {static_cast<uint32_t>(group)};
    plan_.groups.push_back(std::move(g));
    return s;
  }

  void take(uint32_t i, int32_t group, Group& g, std::vector<int64_t>& sizes) {
    const Param& p = model_.params[i];
    const uint32_t shared = p.alias.valid() ? p.alias.v : i;
    if (plan_.group_of_param[shared] == group) return;  // stored once, the first name counts
    if (plan_.group_of_param[shared] >= 0)
      throw Error::at(
          "training.wrap",
          "parameter '" + model_.param_name({i}) + "' shares its storage with '" +
              model_.param_name({shared}) + "', which is in another unit",
          training_.fsdp1.use_orig_params
              ? "PyTorch: \"shared parameters must be wrapped in the same FSDP instance\"; "
                "its forward fails with a size mismatch. Put both modules in one unit"
              : "PyTorch: \"shared parameters must be wrapped in the same FSDP instance\"; "
                "it makes two parameters of them without a word. Put both modules in one "
                "unit");
    plan_.group_of_param[shared] = group;
    ShardedParam q;
    q.id = {shared};
    q.numel = p.shape.numel();
    sizes.push_back(q.numel);
    g.params.push_back(q);
  }

  void refuse_mixed_frozen(const ShardState& s, const Group& g) const {
    if (training_.fsdp1.use_orig_params) return;
    const auto frozen = [&](const ShardedParam& p) { return model_.params[p.id.v].frozen; };
    const auto count = std::count_if(g.params.begin(), g.params.end(), frozen);
    if (count == 0 || count == static_cast<int64_t>(g.params.size())) return;
    const std::string name = g.name(model_);
    // The size policy is a function, whose units _validate_frozen_params does not see.
    const bool validated = !s.root && training_.wrap.policy != WrapPolicy::size;
    throw Error::at(
        "training.frozen",
        "unit '" + name + "' has parameters that require a gradient and " + std::to_string(count) +
            " that do not",
        (validated ? "PyTorch: \"" + name +
                         " has both parameters with requires_grad=True and False. FSDP does not "
                         "support wrapping such modules when use_orig_params=False.\""
                   : std::string("PyTorch: \"Must flatten tensors with uniform `requires_grad` "
                                 "when `use_orig_params=False`\"")) +
            "; set fsdp1.use_orig_params, or freeze whole units");
  }

  // Pre-order of the modules.
  void order(std::vector<ShardState> made) {
    std::vector<int32_t> place(made.size(), -1);
    for (int32_t& s : plan_.state_of) {
      if (s < 0) continue;
      if (place[s] < 0) {
        place[s] = static_cast<int32_t>(plan_.states.size());
        if (made[s].group.valid())
          plan_.groups[made[s].group.v].state = static_cast<uint32_t>(place[s]);
        plan_.states.push_back(std::move(made[s]));
      }
      s = place[s];
    }
  }

  const Model& model_;
  const Training& training_;
  ShardingStrategy sharding_;
  bool sharded_;
  Plan plan_;
};

}  // namespace

ShardingStrategy effective_sharding_strategy(const Training& training) {
  return training.mesh.shard == 1 ? ShardingStrategy::no_shard : training.fsdp1.sharding_strategy;
}

double gradient_predivide_factor(int64_t world) {
  int64_t factor = 1;
  while (world % factor == 0 && world / factor > factor) factor *= 2;
  return static_cast<double>(factor);
}

Plan build_plan_fsdp1(const Model& model, const Training& training) {
  check_mesh(training);
  return Builder(model, training).build();
}

}  // namespace shardsim
