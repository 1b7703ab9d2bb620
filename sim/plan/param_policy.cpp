#include "sim/plan/param_policy.h"

#include <algorithm>
#include <string>

#include "sim/base/error.h"
#include "sim/plan/plan.h"

namespace shardsim {

namespace {

template <class F>
void for_matching(const Model& model, const std::string& key, const std::string& pattern, F&& f) {
  bool used = false;
  for (uint32_t i = 0; i < model.params.size(); ++i) {
    if (!matches(pattern, model.param_name({i}))) continue;
    used = true;
    f(model.params[i].alias.valid() ? model.params[i].alias.v : i);
  }
  if (!used)
    throw Error::at(key, "no parameter matches '" + pattern + "'",
                    "* stands for any run of characters: \"*.norm.*\"");
}

std::string torch_size(const Shape& s) {
  std::string out = "torch.Size([";
  for (int d = 0; d < s.rank; ++d)
    out += (d > 0 ? ", " : "") + std::to_string(s.dim[static_cast<size_t>(d)]);
  return out + "])";
}

void check_dim(const Model& model, uint32_t i, const ParamPolicy& policy, int64_t ranks) {
  const int dim = policy.dim;
  if (dim == 0) return;
  const std::string key =
      element("training.fsdp2.shard_placement", static_cast<size_t>(policy.placement)) + ".dim";
  const Shape& s = model.params[i].shape;
  const std::string name = model.param_name({i});
  if (dim >= s.rank)
    throw Error::at(key,
                    "'" + name + "': shard dim " + std::to_string(dim) + " is invalid for " +
                        std::to_string(s.rank) + "D tensor: " + torch_size(s),
                    "PyTorch raises AssertionError; dimensions count from 0");
  if (s.dim[static_cast<size_t>(dim)] % ranks != 0)
    throw Error::at(key,
                    "'" + name + "': FSDP does not support uneven sharding on dim " +
                        std::to_string(dim) + ": " + torch_size(s) +
                        " (world size: " + std::to_string(ranks) + ")",
                    "PyTorch raises NotImplementedError; only dimension 0 may be uneven");
}

}  // namespace

int64_t padded_shard(const Shape& shape, int dim, int64_t ranks) {
  if (dim > 0) return shape.numel() / ranks;
  return ceil_div(shape.dim[0], ranks) * shape.rest();
}

int64_t local_shard(const Shape& shape, int dim, int64_t ranks, int64_t k) {
  if (dim > 0) return shape.numel() / ranks;
  return local_numel(shape.dim[0], shape.rest(), ranks, k);
}

std::vector<ParamPolicy> param_policies(const Model& model, const Training& training) {
  std::vector<ParamPolicy> out(model.params.size());
  const Fsdp2Options& f = training.fsdp2;
  const auto for_all = [&](const std::string& key, const std::vector<std::string>& patterns,
                           auto&& set) {
    for (size_t k = 0; k < patterns.size(); ++k)
      for_matching(model, element(key, k), patterns[k], set);
  };
  for_all("training.fsdp2.ignored_params", f.ignored_params,
          [&](uint32_t i) { out[i].ignored = true; });
  for_all("training.precision.keep", training.precision.keep,
          [&](uint32_t i) { out[i].keeps_dtype = true; });
  for_all("training.fsdp2.second_mesh.parameters", f.second_mesh.patterns,
          [&](uint32_t i) { out[i].second_mesh = true; });
  // The first that matches holds.
  for (size_t k = f.shard_placement.size(); k-- > 0;) {
    const ShardPlacement& p = f.shard_placement[k];
    for_matching(model, element("training.fsdp2.shard_placement", k) + ".parameter", p.pattern,
                 [&](uint32_t i) {
                   out[i].dim = p.dim;
                   out[i].placement = static_cast<int32_t>(k);
                 });
  }
  for (uint32_t i = 0; i < out.size(); ++i) {
    ParamPolicy& p = out[i];
    if (p.second_mesh) p.dim = 0;
    if (!p.ignored) check_dim(model, i, p, training.mesh.shard);
  }
  for (uint32_t i = 0; i < out.size(); ++i)
    if (model.params[i].alias.valid()) out[i] = out[model.params[i].alias.v];
  if (!f.ignored_params.empty() &&
      std::all_of(out.begin(), out.end(), [](const ParamPolicy& p) { return p.ignored; }))
    throw Error::at("training.fsdp2.ignored_params",
                    "every parameter matches, and nothing is left to shard",
                    "leave out the patterns of what is to be sharded");
  if (!f.second_mesh.patterns.empty()) {
    if (training.mesh.replicate > 1)
      throw Error::at("training.fsdp2.second_mesh",
                      "this build cannot play a second mesh beside replicas",
                      "use mesh: {replicate: 1}");
    if (f.second_mesh.shard < 1 || training.mesh.shard % f.second_mesh.shard != 0)
      throw Error::at("training.fsdp2.second_mesh.shard",
                      std::to_string(f.second_mesh.shard) + " ranks do not divide the world of " +
                          std::to_string(training.mesh.shard),
                      "its ranks are consecutive ones of the shard mesh");
  }
  return out;
}

}  // namespace shardsim
