// torch's ZeroRedundancyOptimizer over DistributedDataParallel
// (torch/distributed/optim/zero_redundancy_optimizer.py): gradients are DDP's, each rank updates the
// parameters that are its own, and broadcasts carry them to the others.
// Worked example, 12 parameters of 25,190,400 B in fp32 on 4 ranks: rank 0 updates two weights, and
// holds 16,777,216 B of AdamW's state in place of 50,380,800 B.
#pragma once

#include <vector>

#include "sim/schedule/ddp.h"

namespace shardsim {

class Zero1 final : public Ddp {
 public:
  Zero1(Host& host, const Model& model, const Plan& plan, const Training& training);

  void initialize() override;
  std::vector<uint32_t> optimized(const std::vector<uint32_t>& with_grad) const override;
  void optimizer_stepped() override;

 private:
  // What one rank sends: a parameter, or all that are its own.
  struct Part {
    BufferId buffer;
    WorkId broadcast;
  };
  Part part(size_t owner, BufferId buffer, Bytes bytes, DType dtype, GroupId group);
  void build_param_buckets();

  std::vector<std::vector<uint32_t>> parts_;  // by rank: indices of sharded()
  std::vector<Part> broadcasts_;
};

}  // namespace shardsim
