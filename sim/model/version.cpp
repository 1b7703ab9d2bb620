#include "sim/model/version.h"

namespace shardsim {

namespace {

constexpr Behaviour pytorch_2_7() {
  Behaviour b;
  b.internal_streams = true;
  b.waits_behind_producer = true;
  b.records_streams = true;
  b.makes_groups_late = true;
  b.clips_in_one_number = true;
  b.cached_workspaces = true;
  b.composed_rms_norm = true;
  b.fuses_fp32_grouped = false;
  b.seeds_on_host = true;
  b.zeros_by_kernel = true;
  b.sorts_whole_ids = true;
  b.small_foreach = true;
  b.foreach_sgd_mixes = false;
  b.reduces_in_stored_type = false;
  b.root_may_reshard = false;
  b.one_rank_communicates = true;
  b.frees_held_gather_late = true;
  b.keeps_last_gradient = true;
  b.casts_unsynced_late = true;
  b.finishes_state_by_state = true;
  b.waits_for_stray_gathers = false;
  b.waits_without_gradients = false;
  b.recompute_reshards = true;
  b.completes_list_groups = false;
  b.casts_for_every_member = false;
  b.partial_sum_waits = false;
  b.divide_factor_all_reduces = false;
  return b;
}

constexpr Behaviour k2_7 = pytorch_2_7();

}  // namespace

const Behaviour* behaviour_of(std::string_view pytorch) {
  if (pytorch == "2.15") return &kNewestBehaviour;
  if (pytorch == "2.7") return &k2_7;
  return nullptr;
}

std::string_view played_releases() { return "\"2.7\" and \"2.15\""; }

}  // namespace shardsim
