// What the releases of PyTorch that can be played do differently, as one named switch for each
// behaviour: code asks for a behaviour and never for a version. Sources: the recordings of 2.7.1 and
// their list of differences (oracle/pytorch-2.7/README, whose numbers stand in brackets), 2.7.1's
// source and further recordings of it. A default is what 2.15 does.
// Worked number: an AdamW step on 1.0e9 local elements is 56 kernels in 2.15 and 392 in 2.7.
#pragma once

#include <string_view>

namespace shardsim {

struct Behaviour {
  // Collectives, whatever the strategy.
  bool internal_streams = false;     // on their group's own stream, joined on both sides [1, 2]
  bool records_streams = false;      // all-reduce, broadcast, async ones record their buffers [3]
  bool makes_groups_late = false;    // communicators, pool of streams: at their first use [18]
  bool clips_in_one_number = false;  // clip_grad_norm_ reduces the norm of all, not one a tensor

  // Operators.
  bool cached_workspaces = false;  // cuBLAS workspaces stay, one a thread and stream [4]
  bool composed_rms_norm = false;  // F.rms_norm is a chain of operators in fp32 [20]
  bool zeros_by_kernel = false;    // zeros are filled by a kernel, not a memset [21]
  bool fuses_fp32_grouped = true;  // attention with fewer key-value heads in fp32 is one kernel
  bool seeds_on_host = false;      // efficient attention's, where nothing is dropped
  bool sorts_whole_ids = false;    // embedding's backward sorts by all 64 bits of an id
  bool small_foreach = false;      // a foreach launch has 4 KiB of arguments [19]
  bool foreach_sgd_mixes = true;   // takes parameters and gradients of different types [22]

  // Autograd, where streams differ.
  bool waits_behind_producer = false;  // for a gradient, as soon as it is made [5]

  // FSDP2.
  bool reduces_in_stored_type = true;     // without reduce_dtype; else in the gradients' [7]
  bool root_may_reshard = true;           // explicit reshard_after_forward holds for it [8]
  bool one_rank_communicates = false;     // a world of one gathers and reduces as any other [9]
  bool frees_held_gather_late = false;    // after the next group's copy-out [10]
  bool keeps_last_gradient = false;       // until the group's reduction has been issued [11]
  bool casts_unsynced_late = false;       // in post-backward, not as each gradient arrives [12]
  bool finishes_state_by_state = false;   // the final callback [13]
  bool waits_for_stray_gathers = true;    // the final callback, for those that nobody used
  bool waits_without_gradients = true;    // post-backward, for the retained reduce-scatter
  bool recompute_reshards = false;        // of wrapped modules inside a checkpoint [14]
  bool completes_list_groups = true;      // at the root's post-forward [15]
  bool casts_for_every_member = true;     // of a list group; else for the first alone [15]
  bool partial_sum_waits = true;          // for what the default stream has [16]
  bool divide_factor_all_reduces = true;  // with a custom factor the all-reduce sums [17]
};

inline constexpr Behaviour kNewestBehaviour{};

// Of training.pytorch; null for a release that is not played.
const Behaviour* behaviour_of(std::string_view pytorch);
// "2.7 and 2.15", for messages.
std::string_view played_releases();

}  // namespace shardsim
