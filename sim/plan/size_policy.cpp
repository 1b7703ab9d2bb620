#include "sim/plan/size_policy.h"

namespace shardsim {

namespace {

// sum(p.numel() for p in module.parameters()): a parameter shared inside the subtree counts once, one
// shared with a module outside counts here too.
int64_t subtree_numel(const Model& model, const Module& x) {
  int64_t n = 0;
  for (uint32_t p = x.first_param; p < x.end_param; ++p) {
    const ParamId first = model.params[p].alias;
    if (!first.valid() || first.v < x.first_param) n += model.params[p].shape.numel();
  }
  return n;
}

// Returns the elements already wrapped.
int64_t wrap(const Model& model, ModuleId m, int64_t min_num_params, std::vector<ModuleId>& out) {
  const Module& x = model.modules[m.v];
  const int64_t all = subtree_numel(model, x);
  if (all < min_num_params || x.kind == Module::Kind::multihead_attention) return 0;
  int64_t wrapped = 0;
  for (uint32_t c = m.v + 1; c < x.end; c = model.modules[c].end)
    wrapped += wrap(model, {c}, min_num_params, out);
  if (m.v == 0 || all - wrapped < min_num_params || x.kind == Module::Kind::module_list)
    return wrapped;
  out.push_back(m);
  return all;
}

}  // namespace

std::vector<ModuleId> size_based_auto_wrap(const Model& model, int64_t min_num_params) {
  std::vector<ModuleId> out;
  wrap(model, {0}, min_num_params, out);
  return out;
}

}  // namespace shardsim
