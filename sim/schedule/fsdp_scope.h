// Names of the ranges that PyTorch's FSDP2 puts around its calls (_fsdp_param_group.py), which profiles
// and traces show.
#pragma once

#include <string_view>

#include "sim/schedule/instruction.h"

namespace shardsim {

// Scope of FSDP2 (_fsdp_param_group.py) that a launch is made in; empty for the model's own.
constexpr std::string_view fsdp_scope(const Work& w) {
  if (!w.group.valid()) return "";
  switch (w.kind) {
    case WorkKind::AllGather: return "FSDP::all_gather";
    case WorkKind::ReduceScatter:
    case WorkKind::AllReduce: return "FSDP::post_backward_reduce";
    case WorkKind::Kernel:
      if (w.kernel == KernelClass::copy_out) return "FSDP::all_gather_copy_out";
      if (w.kernel == KernelClass::chunk_cat) return "FSDP::post_backward_reduce";
      if (w.kernel == KernelClass::foreach_op) return "FSDP::all_gather";
      return "";
    default: return "";
  }
}

}  // namespace shardsim
