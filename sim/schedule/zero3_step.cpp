// DeepSpeedZeroOptimizer_Stage3.step: everything is partitioned, the norm is taken parameter by
// parameter, each sub-group is stepped by itself, and persistent parameters are gathered again.
#include "sim/schedule/streams.h"
#include "sim/schedule/zero3.h"

namespace shardsim {

void Zero3::optimizer_step() {
  micro_step_ = 0;
  ran_epilogue_ = false;
  release_and_reset_all();
  for (const SubGroup& g : sub_groups_) {
    std::vector<int64_t> numels;
    for (ParamId p : g.params) numels.push_back(at(p).part);
    norm_of(numels, DType::bf16, Norm::stage3);
  }
  combine_norms(sub_groups_.size(), 8);
  for (SubGroup& g : sub_groups_) {
    BufferId flat;
    if (g.params.size() > 1) {
      flat = make(low(g.numel), kCompute, Category::optimizer);
      cat(kCompute, g.params.size(), low(g.numel), "flatten");
    }
    const BufferId gradient = make(4 * g.numel, kCompute, Category::gradients);
    pointwise("cast", 6 * g.numel);
    if (flat.valid()) drop(flat);
    if (options_.gradient_clipping > 0) scalars("clip", 7);
    pointwise("mul", 8 * g.numel);
    g.optimizer->step({0});
    pointwise("cast", 6 * g.numel);
    drop(gradient);
  }
  gather_persistent_parameters();
}

// _all_gather: one collective a parameter, waited for together.
void Zero3::gather_persistent_parameters() {
  if (persistent_.empty()) return;
  for (ParamId p : persistent_) {
    Parameter& x = at(p);
    x.data = make(low(x.part * ranks_), kCompute, Category::unsharded_parameters, x.group);
    x.status = Status::available;
  }
  const auto work = [&](ParamId p) {
    return collective(WorkKind::AllGather, "all_gather", low(at(p).part * ranks_), DType::bf16,
                      at(p).group);
  };
  if (persistent_.size() == 1) {
    host_.collective(kCompute, work(persistent_[0]), {at(persistent_[0]).data});
  } else {
    std::vector<EventId> ends;
    for (ParamId p : persistent_)
      ends.push_back(host_.async_collective(kCompute, work(p), {at(p).data}));
    for (EventId e : ends) host_.wait_for_work(kCompute, e);
  }
  host_.device_sync();
}

}  // namespace shardsim
