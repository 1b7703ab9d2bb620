// Where every element of a model lives (sim/plan/element_map.h), for people and programs: the groups of
// a scenario packed as FSDP1 packs them, with use_orig_params and without, and as FSDP2 does, side by
// side whatever the scenario trains with.
//
// Worked example, sizes 3 and 5 on 4 ranks in bf16:
//             FSDP1          FSDP1, use_orig_params   FSDP2
//   stores    2 a rank       4 a rank                 3 a rank
//   rank 1    p.0[2] p.1[0]  (4 alignment)            p.0[1] p.1[2..3]
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/plan/element_map.h"

namespace shardsim {

// What of it is asked for; patterns may hold *.
struct LayoutQuery {
  std::string group, param;
  std::optional<int64_t> rank;
  bool any() const { return !group.empty() || !param.empty() || rank.has_value(); }
};

struct LayoutGroup {
  std::string name;    // "(root)"
  size_t like = 1;     // groups from this one on whose parameters have the same shapes
  std::string last;    // the name of the last of them
  bool shown = false;  // its elements are to be shown, not only its sums
  // By Layout::packings.
  std::vector<PackedGroup> packed;
  std::vector<std::vector<std::string>> names;  // of parameters, without the group's own prefix
};

struct Layout {
  std::string name, strategy;
  std::vector<Packing> packings;  // FSDP's three, and that of the scenario where it is another
  std::optional<size_t> trained;  // of them; none where each rank keeps every element
  std::string type;               // that alignment counts in
  int64_t ranks = 1, replicas = 1;
  int64_t params = 0, numel = 0;
  LayoutQuery query;
  std::vector<LayoutGroup> groups;
  // Whether the query asks for it: a parameter by its whole name or by that in its group, a piece.
  bool named(const LayoutGroup& group, const std::string& param) const;
  bool shows(const LayoutGroup& group, size_t packing, const Piece& piece) const;
};

// Throws Error where the query names a group, parameter or rank that is not there.
Layout make_layout(const Scenario& scenario, const Model& model, const Plan& plan,
                   const LayoutQuery& query);

// "q_proj.weight[0..511]", "(3 world)".
std::string piece_text(const LayoutGroup& group, size_t packing, const Piece& piece);

std::string layout_table(const Layout& layout);
std::string layout_json(const Layout& layout);
// group,layout,rank,param,padding,begin,elements
std::string layout_csv(const Layout& layout);

}  // namespace shardsim
