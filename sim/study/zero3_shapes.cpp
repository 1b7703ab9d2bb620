#include "sim/study/zero3_shapes.h"

#include "sim/plan/plan_zero.h"

namespace shardsim {

LocalShapes zero3_shapes(const Model& model, const Training& training) {
  LocalShapes out;
  std::vector<ParamId> ids;
  std::vector<int64_t> numels;
  for (uint32_t i = 0; i < model.params.size(); ++i)
    if (!model.params[i].alias.valid()) {
      ids.push_back({i});
      numels.push_back(model.params[i].shape.numel());
    }
  const std::vector<bool> persists = persistent_parameters(
      numels, training.zero.param_persistence_threshold, training.zero.model_persistence_threshold);
  for (size_t i = 0; i < ids.size(); ++i) {
    const Shape& s = model.params[ids[i].v].shape;
    std::vector<int64_t> dims{0};
    if (persists[i]) dims.assign(s.dim.begin(), s.dim.begin() + s.rank);
    out.emplace(model.param_name(ids[i]), std::move(dims));
  }
  return out;
}

}  // namespace shardsim
