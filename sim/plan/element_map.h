// Where every element of a group lives: for each rank the pieces it stores, one behind the other, in
// FSDP1's flat chunks (with use_orig_params and without) and in FSDP2's shards of each parameter.
// The same groups can be packed each way, whatever the scenario's own strategy.
//
// Padding belongs to someone: to the alignment before a parameter, to the world at the end of a flat
// parameter (both with use_orig_params; the end of DeepSpeed's flat buffer has it too), to the last
// chunks that the elements do not fill (without), or to a parameter whose own rows (FSDP2) or elements
// (DeepSpeed's stage 3) do not divide.
// Worked number: sizes 3 and 5 in bf16 on 4 ranks store 2, 4 and 3 elements a rank; rank 2 of FSDP2
// holds p0[2], p1[4] and one element of padding of p1.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/plan/flat_layout.h"
#include "sim/plan/plan.h"

namespace shardsim {

enum class Packing : uint8_t {
  fsdp1,
  fsdp1_orig_params,
  fsdp2,
  zero_flat,   // DeepSpeed's stages 1 and 2: one flat buffer in equal parts
  zero_parts,  // stage 3: each parameter in parts of ceil(numel / N) elements
};
// FSDP's, which any groups can be packed in; DeepSpeed's only those of its own plans.
inline constexpr std::array kPackings{Packing::fsdp1, Packing::fsdp1_orig_params, Packing::fsdp2};
std::string_view title_of(Packing packing);        // "FSDP1, use_orig_params"
std::string_view short_title_of(Packing packing);  // "use_orig_params"
std::string_view name_of(Packing packing);         // "fsdp1_use_orig_params"

struct Piece {
  enum class Of : uint8_t { param, alignment, world, chunk, own } of = Of::param;
  // In PackedGroup::params; of alignment the one that it stands before, of `own` whose it is.
  uint32_t param = 0;
  int64_t begin = 0;  // of a parameter: its first element here, counted in the parameter
  int64_t count = 0;
  bool padding() const { return of != Of::param; }
};
std::string_view name_of(Piece::Of of);  // "alignment"

struct PackedParam {
  ParamId id;
  Shape shape;
  int dim = 0;  // FSDP2: that is sharded; past 0 a piece's elements are not neighbours
};

struct PackedGroup {
  Packing packing = Packing::fsdp2;
  std::vector<PackedParam> params;  // in the order in which they are stored
  int64_t ranks = 1;
  int64_t shard = 0;  // elements that each rank stores
  int64_t numel = 0;
  FlatLayout flat;  // FSDP1, zero_flat

  bool by_param() const { return packing == Packing::fsdp2 || packing == Packing::zero_parts; }
  // What each rank stores of a parameter, and what of that rank k really holds (by_param).
  int64_t stored(const PackedParam& p) const;
  int64_t held(const PackedParam& p, int64_t k) const;
  int64_t padding() const { return ranks * shard - numel; }
  std::vector<Piece> pieces(int64_t rank) const;
  // Padding over all ranks: one entry for each owner, in the order stored.
  std::vector<Piece> padding_by_owner() const;
};

// The packing that a scenario trains with; none where each rank keeps every element.
std::optional<Packing> packing_of(const Training& training);

// The group of a plan, packed.
PackedGroup pack(const Model& model, const Group& group, const Training& training, Packing packing);

}  // namespace shardsim
