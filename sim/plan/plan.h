// How a model is sharded: which fully_shard calls are made (FSDP1: which modules are units), the state
// and parameter group that each makes, and every parameter's share of a rank.
//
// FSDP1's layout is in sim/plan/flat_layout.h. FSDP2's (fsdp2-runtime 2): a parameter (d0, rest) on W ranks gives each rank c = ceil(d0 / W) rows,
// s = c * rest elements stored (zero-padded once); rank k holds rows [k c, min(d0, (k + 1) c)), maybe
// none. A group's all-gather input is S = sum of s elements, its output U = W S.
// Worked number: (7, 3) on 4 ranks is c 2, s 6; the ranks hold 6, 6, 6, 3 elements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/ids.h"
#include "sim/model/model.h"
#include "sim/plan/scenario.h"

namespace shardsim {

struct ShardedParam {
  ParamId id;
  int64_t numel = 0;
  int64_t shard = 0;   // s, padded elements a rank stores; FSDP1: as local
  int64_t local = 0;   // elements rank 0 really holds
  int64_t offset = 0;  // FSDP1: its first element in the flat parameter
  int dim = 0;         // FSDP2: the dimension that is sharded
  bool kept = false;   // FSDP2: computes in its own type, not in param_dtype
};

// Elements of a (d0, rest) parameter that rank k of W holds, without padding.
int64_t local_numel(int64_t d0, int64_t rest, int64_t ranks, int64_t k);

struct Group {
  std::string name(const Model& model) const;
  uint32_t state = 0;
  std::vector<ShardedParam> params;                 // post-order of modules; FSDP1: pre-order
  int64_t shard = 0;                                // S
  int64_t numel = 0;                                // N, true elements
  int64_t padded() const { return ranks * shard; }  // U
  int64_t ranks = 1;                                // W
  int64_t flat = 0;                                 // FSDP1: L, elements of the flat parameter
  std::vector<ModuleId> modules;                    // of the state
  bool second_mesh = false;                         // FSDP2: its ranks are those of a second mesh
};

// One fully_shard call, or one FSDP1 unit.
struct ShardState {
  std::vector<ModuleId> modules;               // several: a list group
  GroupId group;                               // none where no parameters were left
  GroupId second_group;                        // of the parameters on another mesh, where there are
  Reshard::Kind reshard = Reshard::Kind::yes;  // resolved: yes, no or to
  int64_t reshard_ranks = 0;                   // Kind::to
  bool root = false;
  std::vector<uint32_t> forward_prefetch;   // states, explicit
  std::vector<uint32_t> backward_prefetch;  // states, explicit; empty with implicit
  bool explicit_backward = false;
  double divide_factor = 0;  // set_gradient_divide_factor; 0: the number of ranks
  bool force_sum = false;
  bool unshard_in_backward = true;
  bool reduce_unused = false;  // set_reduce_scatter_unused_params
  Micro requires_gradient_sync = Micro::each, requires_all_reduce = Micro::each;
  Micro reshard_after_backward = Micro::each;
};

struct Plan {
  std::vector<ShardState> states;        // all_states: pre-order of the module tree, the root first
  std::vector<int32_t> state_of;         // by ModuleId: the state whose member it is, or -1
  std::vector<Group> groups;             // in the order of the fully_shard calls
  std::vector<int32_t> group_of_param;   // by ParamId (tied: of the shared parameter); -1: ignored
  std::vector<uint32_t> unshard_before;  // states, explicitly before each forward
  Mesh mesh;
};

// Throws Error with what the real system says where a combination is refused.
Plan build_plan(const Model& model, const Training& training);

DType compute_dtype(const Precision& p);
// Without a type of its own: FSDP1 reduces in the compute type, FSDP2 in the stored one or (2.7) the
// gradients'.
DType reduce_dtype(const Training& t);
// The type that a parameter is gathered and computes in.
inline DType compute_dtype(const ShardedParam& q, const Precision& p) {
  return q.kept ? p.storage : compute_dtype(p);
}

// Bytes of a group's collectives: the whole gathered tensor in compute type (bytes where parameters
// differ in it), the whole reduced tensor in reduce type. Frozen parameters are not reduced, but for
// those of a flat parameter that trains.
Bytes all_gather_bytes(const Group& g, const Precision& p);
Bytes reduce_scatter_bytes(const Group& g, const Model& model, const Training& t);

}  // namespace shardsim
