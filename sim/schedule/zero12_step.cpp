// DeepSpeedZeroOptimizer.step: the partition's gradient in fp32, torch's optimizer on it, and one
// all-gather of the flat buffer.
#include "sim/schedule/streams.h"
#include "sim/schedule/zero12.h"

namespace shardsim {

void Zero12::release_averaged() {
  for (const Averaged& a : averaged_)
    if (a.zeros.valid()) drop(a.zeros);
  averaged_.clear();
  for (BufferId b : kept_) drop(b);
  kept_.clear();
}

void Zero12::optimizer_step() {
  zeros(4);
  for (const Averaged& a : averaged_) has_inf_or_nan(a.numel, DType::bf16);
  reduce_overflow();
  std::vector<int64_t> numels;
  for (const Averaged& a : averaged_)
    if (!a.padding) numels.push_back(a.numel);
  norm_of(numels, DType::bf16, Norm::stages12);
  combine_norms(1, 4);

  BufferId flat;
  if (averaged_.size() > 1) {
    flat = make(low(partition_), kCompute, Category::optimizer, group_);
    cat(kCompute, averaged_.size(), low(partition_), "flatten");
  }
  const BufferId gradient = make(4 * partition_, kCompute, Category::gradients, group_);
  pointwise("cast", 6 * partition_);
  if (flat.valid()) drop(flat);
  release_averaged();
  unscale_and_clip(partition_);
  optimizer_->step({0});
  drop(gradient);
  pointwise("cast", 6 * partition_);
  if (ranks_ > 1)
    host_.collective(
        kCompute, collective(WorkKind::AllGather, "all_gather", low(length_), DType::bf16, group_),
        {flat_});
}

}  // namespace shardsim
