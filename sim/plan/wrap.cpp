#include "sim/plan/wrap.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/plan/size_policy.h"

namespace shardsim {

namespace {

bool has_params(const Model& model, ModuleId m) {
  return model.modules[m.v].end_param > model.modules[m.v].first_param;
}

template <class F>
void for_children(const Model& model, ModuleId m, F&& f) {
  for (uint32_t c = m.v + 1; c < model.modules[m.v].end; c = model.modules[c].end) f(ModuleId{c});
}

int depth(const Model& model, ModuleId m) {
  int d = 0;
  for (; m.v != 0; m = model.modules[m.v].parent) ++d;
  return d;
}

void refuse_containers(const Model& model, const std::vector<ModuleId>& modules,
                       const std::string& key) {
  for (ModuleId m : modules)
    if (!model.modules[m.v].callable())
      throw Error::at(key,
                      "module '" + model.module_name(m) + "' is a ModuleList, which has no forward",
                      "PyTorch raises ValueError; wrap its elements");
}

}  // namespace

std::vector<ModuleId> modules_matching(const Model& model, const std::string& pattern,
                                       const std::string& key) {
  std::vector<ModuleId> out;
  for (uint32_t m = 1; m < model.modules.size(); ++m)
    if (matches(pattern, model.module_name({m}))) out.push_back({m});
  if (out.empty())
    throw Error::at(key, "no module matches '" + pattern + "'",
                    "names are those of `shardsim explain`; * stands for any run of characters");
  return out;
}

std::vector<WrapCall> wrap_calls(const Model& model, const Training& training) {
  const Wrap& w = training.wrap;
  const Fsdp2Options& f = training.fsdp2;
  const Reshard& each = f.reshard_after_forward;
  std::vector<WrapCall> calls;
  calls.reserve(model.blocks.size() + 4);
  switch (w.policy) {
    case WrapPolicy::root_only: break;
    case WrapPolicy::nested:
    case WrapPolicy::children:
      for (ModuleId b : model.blocks)
        for_children(model, b, [&](ModuleId c) {
          if (!has_params(model, c)) return;
          refuse_containers(model, {c}, "training.wrap.policy");
          calls.push_back({{c}, each});
        });
      if (w.policy == WrapPolicy::nested)
        for (ModuleId b : model.blocks) calls.push_back({{b}, each});
      break;
    case WrapPolicy::per_block:
      for (ModuleId b : model.blocks) calls.push_back({{b}, each});
      break;
    case WrapPolicy::every_k:
      for (size_t i = 0; i < model.blocks.size(); i += w.every) {
        const size_t end = std::min(model.blocks.size(), i + static_cast<size_t>(w.every));
        calls.push_back({{model.blocks.begin() + static_cast<int64_t>(i),
                          model.blocks.begin() + static_cast<int64_t>(end)},
                         each});
      }
      break;
    case WrapPolicy::list:
    case WrapPolicy::groups:
      for (size_t i = 0; i < w.groups.size(); ++i) {
        const bool list = w.policy == WrapPolicy::list;
        const std::string key = element(list ? "training.wrap.modules" : "training.wrap.groups", i);
        std::vector<ModuleId> modules;
        for (size_t j = 0; j < w.groups[i].size(); ++j) {
          const std::string own = list ? key : element(key, j);
          const auto found = modules_matching(model, w.groups[i][j], own);
          refuse_containers(model, found, own);
          modules.insert(modules.end(), found.begin(), found.end());
        }
        if (w.policy == WrapPolicy::list) {
          for (ModuleId m : modules) calls.push_back({{m}, each});
          continue;
        }
        // Members nested in another member are dropped.
        std::vector<ModuleId> kept;
        for (ModuleId m : modules)
          if (std::none_of(modules.begin(), modules.end(),
                           [&](ModuleId o) { return o.v < m.v && m.v < model.modules[o.v].end; }))
            kept.push_back(m);
        calls.push_back({kept, each});
      }
      // Bottom-up: deeper modules are wrapped first.
      std::stable_sort(calls.begin(), calls.end(), [&](const WrapCall& a, const WrapCall& b) {
        return depth(model, a.modules[0]) > depth(model, b.modules[0]);
      });
      break;
    case WrapPolicy::size:
      for (ModuleId m : size_based_auto_wrap(model, w.min_params))
        if (model.modules[m.v].callable()) calls.push_back({{m}, each});
      break;
  }
  if (w.embedding)
    for (ModuleId m : model.embedding) calls.push_back({{m}, each});
  if (w.head && !model.head.empty()) calls.push_back({model.head, f.head_reshard});
  calls.push_back({{ModuleId{0}}, f.root_reshard});
  for (size_t i = 0; i < f.overrides.size(); ++i) {
    const ReshardOverride& o = f.overrides[i];
    bool used = false;
    for (WrapCall& c : calls)
      for (ModuleId m : c.modules)
        if (matches(o.pattern, model.module_name(m))) {
          c.reshard = o.reshard;
          used = true;
        }
    if (!used)
      throw Error::at(element("training.fsdp2.reshard", i) + ".module",
                      "no wrapped module matches '" + o.pattern + "'",
                      "names are those of `shardsim explain`");
  }
  return calls;
}

}  // namespace shardsim
