#include "sim/schedule/zero1.h"

#include <algorithm>

#include "sim/plan/zero_partition.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/works.h"

namespace shardsim {

Zero1::Zero1(Host& host, const Model& model, const Plan& plan, const Training& training)
    : Ddp(host, model, plan, training) {
  std::vector<int64_t> numels;
  numels.reserve(sharded_.size());
  for (const Sharded& p : sharded_) numels.push_back(p.local);
  parts_ = partition_parameters(numels, plan.mesh.world());
}

Zero1::Part Zero1::part(size_t owner, BufferId buffer, Bytes bytes, DType dtype, GroupId group) {
  Work w = collective_work(WorkKind::Broadcast, bytes, dtype, comm_, group, ReduceOp::none,
                           "broadcast_parameters");
  w.root = static_cast<int32_t>(owner);
  return {buffer, host_.work(w)};
}

void Zero1::initialize() {
  Ddp::initialize();
  if (training_.parameters_as_bucket_view) return build_param_buckets();
  for (size_t rank = 0; rank < parts_.size(); ++rank)
    for (uint32_t i : parts_[rank]) {
      const ParamId p = sharded_[i].id;
      broadcasts_.push_back(part(rank, params_[p.v], bytes(p), dtype(p), group(p)));
    }
}

// One tensor a rank, of which its parameters become views.
void Zero1::build_param_buckets() {
  for (size_t rank = 0; rank < parts_.size(); ++rank) {
    const std::vector<uint32_t>& own = parts_[rank];
    if (own.empty()) {
      // A dummy, so that every rank has something to send.
      const BufferId dummy = host_.buffer(4, kCompute, Category::parameters);
      host_.alloc(dummy);
      host_.launch(kCompute,
                   host_.work(copy_work(
                       host_.behaviour().zeros_by_kernel ? WorkKind::Kernel : WorkKind::Memset, 4,
                       {}, "zeros")));
      broadcasts_.push_back(part(rank, dummy, 4, DType::fp32, {}));
      continue;
    }
    const ParamId first = sharded_[own.front()].id;
    Bytes total = 0;
    for (uint32_t i : own) total += bytes(sharded_[i].id);
    const BufferId bucket = host_.buffer(total, kCompute, Category::parameters, group(first));
    host_.alloc(bucket);
    for (uint32_t i : own) {
      const ParamId p = sharded_[i].id;
      host_.launch(kCompute, host_.work(copy_work(WorkKind::CopyD2D, bytes(p), group(p),
                                                  "parameter_to_bucket")));
      host_.free(params_[p.v]);
      params_[p.v] = bucket;
    }
    broadcasts_.push_back(part(rank, bucket, total, dtype(first), group(first)));
  }
}

// Rank 0's, in the order of its local optimizer.
std::vector<uint32_t> Zero1::optimized(const std::vector<uint32_t>& with_grad) const {
  std::vector<uint32_t> out;
  for (uint32_t i : parts_.front())
    if (std::find(with_grad.begin(), with_grad.end(), i) != with_grad.end()) out.push_back(i);
  return out;
}

void Zero1::optimizer_stepped() {
  std::vector<EventId> ends;
  ends.reserve(broadcasts_.size());
  for (const Part& p : broadcasts_)
    ends.push_back(host_.async_collective(kCompute, p.broadcast, {p.buffer}));
  for (EventId e : ends) host_.wait_for_work(kCompute, e);
}

}  // namespace shardsim
