#include "sim/plan/element_map.h"

#include <algorithm>

#include "sim/base/units.h"
#include "sim/plan/param_policy.h"
#include "sim/plan/plan_fsdp1.h"

namespace shardsim {

std::string_view title_of(Packing packing) {
  switch (packing) {
    case Packing::fsdp1: return "FSDP1";
    case Packing::fsdp1_orig_params: return "FSDP1, use_orig_params";
    case Packing::fsdp2: return "FSDP2";
    case Packing::zero_flat: return "DeepSpeed, flat buffer";
    case Packing::zero_parts: return "DeepSpeed, stage 3";
  }
  return "?";
}

std::string_view name_of(Packing packing) {
  switch (packing) {
    case Packing::fsdp1: return "fsdp1";
    case Packing::fsdp1_orig_params: return "fsdp1_use_orig_params";
    case Packing::fsdp2: return "fsdp2";
    case Packing::zero_flat: return "zero_flat";
    case Packing::zero_parts: return "zero_parts";
  }
  return "?";
}

std::string_view name_of(Piece::Of of) {
  switch (of) {
    case Piece::Of::param: return "parameter";
    case Piece::Of::alignment: return "alignment";
    case Piece::Of::world: return "world";
    case Piece::Of::chunk: return "chunk";
    case Piece::Of::own: return "parameter's own";
  }
  return "?";
}

std::string_view short_title_of(Packing packing) {
  switch (packing) {
    case Packing::fsdp1_orig_params: return "use_orig_params";
    case Packing::zero_flat:
    case Packing::zero_parts: return "DeepSpeed";
    default: return title_of(packing);
  }
}

std::optional<Packing> packing_of(const Training& training) {
  const bool fsdp1 = training.strategy == Strategy::fsdp1;
  if (keeps_parameters_whole(training.strategy) || training.mesh.shard == 1 ||
      (fsdp1 && effective_sharding_strategy(training) == ShardingStrategy::no_shard))
    return std::nullopt;
  if (is_zero(training.strategy))
    return training.strategy == Strategy::zero3 ? Packing::zero_parts : Packing::zero_flat;
  return !fsdp1                           ? Packing::fsdp2
         : training.fsdp1.use_orig_params ? Packing::fsdp1_orig_params
                                          : Packing::fsdp1;
}

namespace {

// FSDP2 takes the parameters of a module behind those of the modules in it.
void post_order(const Model& model, const std::vector<ModuleId>& tops,
                std::vector<PackedParam>& params) {
  const auto top = [&](ModuleId m) {
    size_t last = 0;
    for (size_t i = 0; i < tops.size(); ++i)
      if (tops[i].v <= m.v && m.v < model.modules[tops[i].v].end) last = i;
    return last;
  };
  std::stable_sort(params.begin(), params.end(), [&](const PackedParam& a, const PackedParam& b) {
    const ModuleId x = model.params[a.id.v].module, y = model.params[b.id.v].module;
    if (top(x) != top(y)) return top(x) < top(y);
    const uint32_t x_end = model.modules[x.v].end, y_end = model.modules[y.v].end;
    return x_end != y_end ? x_end < y_end : x.v > y.v;
  });
}

}  // namespace

PackedGroup pack(const Model& model, const Group& group, const Training& training,
                 Packing packing) {
  PackedGroup out;
  out.packing = packing;
  out.numel = group.numel;
  // NO_SHARD's groups have one rank; here they are cut as the mesh would.
  out.ranks = keeps_parameters_whole(training.strategy) ? training.mesh.world()
              : training.strategy == Strategy::fsdp1    ? training.mesh.shard
                                                        : group.ranks;
  for (const ShardedParam& q : group.params)
    out.params.push_back({q.id, model.params[q.id.v].shape, q.dim});
  if (packing == Packing::fsdp2) {
    if (training.strategy != Strategy::fsdp2) post_order(model, group.modules, out.params);
  }
  if (packing == Packing::zero_flat) {
    // As the plan has laid them, round robin or not.
    std::vector<ShardedParam> placed = group.params;
    std::sort(placed.begin(), placed.end(),
              [](const ShardedParam& a, const ShardedParam& b) { return a.offset < b.offset; });
    out.params.clear();
    for (const ShardedParam& q : placed) {
      out.params.push_back({q.id, model.params[q.id.v].shape, 0});
      out.flat.offsets.push_back(q.offset);
      out.flat.sizes.push_back(q.numel);
    }
    out.flat.ranks = out.ranks;
    out.flat.length = group.flat;
    out.shard = out.flat.shard = group.shard;
    return out;
  }
  if (out.by_param()) {
    for (const PackedParam& p : out.params) out.shard += out.stored(p);
    return out;
  }
  std::sort(out.params.begin(), out.params.end(),
            [](const PackedParam& a, const PackedParam& b) { return a.id.v < b.id.v; });
  std::vector<int64_t> sizes;
  for (PackedParam& p : out.params) {
    p.dim = 0;
    sizes.push_back(p.shape.numel());
  }
  out.flat = flat_layout(sizes, out.ranks, compute_dtype(training.precision),
                         packing == Packing::fsdp1_orig_params);
  out.shard = out.flat.shard;
  return out;
}

int64_t PackedGroup::stored(const PackedParam& p) const {
  return packing == Packing::zero_parts ? ceil_div(p.shape.numel(), ranks)
                                        : padded_shard(p.shape, p.dim, ranks);
}

int64_t PackedGroup::held(const PackedParam& p, int64_t k) const {
  return packing == Packing::zero_parts
             ? std::clamp<int64_t>(p.shape.numel() - k * stored(p), 0, stored(p))
             : local_shard(p.shape, p.dim, ranks, k);
}

std::vector<Piece> PackedGroup::pieces(int64_t rank) const {
  std::vector<Piece> out;
  const auto add = [&](Piece::Of of, uint32_t param, int64_t begin, int64_t count) {
    if (count > 0) out.push_back({of, param, begin, count});
  };
  if (by_param()) {
    for (uint32_t p = 0; p < params.size(); ++p) {
      const int64_t padded = stored(params[p]), real = held(params[p], rank);
      add(Piece::Of::param, p, rank * padded, real);
      add(Piece::Of::own, p, 0, padded - real);
    }
    return out;
  }
  // Of the flat parameter, [at, end) is this rank's.
  const int64_t end = (rank + 1) * shard;
  int64_t at = rank * shard;
  const auto until = [&](Piece::Of of, uint32_t param, int64_t stop) {
    const int64_t count = std::min(stop, end) - at;
    if (count <= 0) return;
    add(of, param, of == Piece::Of::param ? at - flat.offsets[param] : 0, count);
    at += count;
  };
  for (uint32_t p = 0; p < params.size(); ++p) {
    until(Piece::Of::alignment, p, flat.offsets[p]);
    until(Piece::Of::param, p, flat.offsets[p] + flat.sizes[p]);
  }
  const auto last = static_cast<uint32_t>(params.size() - 1);
  until(Piece::Of::world, last, flat.length);
  until(Piece::Of::chunk, last, flat.gathered());
  return out;
}

std::vector<Piece> PackedGroup::padding_by_owner() const {
  std::vector<Piece> out;
  if (by_param()) {
    for (uint32_t p = 0; p < params.size(); ++p) {
      const int64_t n = ranks * stored(params[p]) - params[p].shape.numel();
      if (n > 0) out.push_back({Piece::Of::own, p, 0, n});
    }
    return out;
  }
  int64_t end = 0;
  for (uint32_t p = 0; p < params.size(); ++p) {
    if (flat.offsets[p] > end) out.push_back({Piece::Of::alignment, p, 0, flat.offsets[p] - end});
    end = flat.offsets[p] + flat.sizes[p];
  }
  const auto last = static_cast<uint32_t>(params.size() - 1);
  if (flat.length > end) out.push_back({Piece::Of::world, last, 0, flat.length - end});
  if (flat.gathered() > flat.length)
    out.push_back({Piece::Of::chunk, last, 0, flat.gathered() - flat.length});
  return out;
}

}  // namespace shardsim
