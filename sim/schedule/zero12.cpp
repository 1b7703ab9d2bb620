#include "sim/schedule/zero12.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/schedule/streams.h"

namespace shardsim {

Zero12::Zero12(Host& host, const Model& model, const Plan& plan, const Training& training, int sms)
    : DeepSpeedEngine(host, model, plan, training, sms), stage_(zero_stage(training.strategy)) {
  const Group& g = plan.groups[0];
  partition_ = g.shard;
  length_ = g.flat;
  padding_ = length_ - g.numel;
  bucket_.limit = options_.reduce_bucket_size;
  gradients_.resize(model.params.size());
  std::vector<std::pair<int64_t, ParamId>> placed;
  for (const ShardedParam& q : g.params) {
    trainable_.push_back(q.id);
    placed.emplace_back(q.offset, q.id);
    Gradient& x = gradients_[q.id.v];
    x.numel = q.numel;
    for (int64_t begin = q.offset; begin < q.offset + q.numel;) {
      const int64_t rank = begin / partition_;
      const int64_t end = std::min((rank + 1) * partition_, q.offset + q.numel);
      x.slices.push_back({rank, end - begin, q.id});
      begin = end;
    }
    x.in_partition = q.local > 0;
  }
  std::sort(placed.begin(), placed.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [offset, id] : placed)
    if (gradients_[id.v].in_partition) owned_.push_back(id);
  optimizer_ = std::make_unique<OptimizerStep>(
      host, training.optimizer, DType::fp32,
      std::vector<OptimizerParam>{OptimizerParam{partition_, group_}});
}

// DeepSpeedZeroOptimizer's constructor: the flat buffer, the fp32 partition, and a gradient for it that
// goes again.
void Zero12::initialize() {
  std::vector<BufferId> params = cast_and_broadcast();
  host_.empty_cache(true);
  const size_t tensors = trainable_.size() + (padding_ > 0 ? 1 : 0);
  BufferId pad;
  if (padding_ > 0) {
    pad = make(low(padding_), kCompute, Category::temporary);
    zeros(low(padding_));
  }
  if (tensors > 1) {
    flat_ = make(low(length_), kCompute, Category::parameters, group_);
    cat(kCompute, tensors, low(length_), "flatten");
    if (pad.valid()) drop(pad);
    for (ParamId p : trainable_) drop(params[p.v]);
  } else if (!trainable_.empty()) {
    flat_ = params[trainable_.front().v];
  }
  const BufferId clone = make(low(partition_), kCompute, Category::temporary);
  host_.launch(kCompute, copy(WorkKind::CopyD2D, "clone", low(partition_)));
  make(4 * partition_, kCompute, Category::parameters, group_);
  pointwise("cast", 6 * partition_);
  drop(clone);
  const BufferId gradient = make(4 * partition_, kCompute, Category::gradients);
  zeros(4 * partition_);
  drop(gradient);
}

// AccumulateGrad, and the hook behind it.
void Zero12::set_unsharded_grad(ParamId param, BufferId buffer, EventId) {
  Gradient& g = gradients_[param.v];
  if (g.where == Where::own) {
    pointwise("add", 3 * low(g.numel));
    host_.free(buffer);
  } else {
    g.own = buffer;
    g.where = Where::own;
  }
  setup_buckets();
  if (partitions_gradients() || (options_.overlap_comm && boundary_))
    reduce_independent_p_g_buckets_and_remove_grads(param);
}

void Zero12::setup_buckets() {
  if (!bucket_buffers_.empty()) return;
  for (int i = 0; i < (options_.overlap_comm ? 2 : 1); ++i)
    bucket_buffers_.push_back(
        make(low(bucket_.limit), kCompute, Category::reduce_scatter_buffers, group_));
  bucket_index_ = 0;
}

void Zero12::reduce_independent_p_g_buckets_and_remove_grads(ParamId param) {
  Gradient& g = gradients_[param.v];
  if (bucket_.full_for(g.numel)) {
    reduce_ipg_grads();
    if (options_.overlap_comm) bucket_index_ = 1 - bucket_index_;
  }
  if (bucket_.too_large(g.numel)) {
    extra_large_ = param;
  } else {
    host_.launch(kCompute, copy(WorkKind::CopyD2D, "to_bucket", low(g.numel), group_));
    host_.free(g.own);
    g.own = {};
    g.where = Where::bucket;
  }
  bucket_.elements += g.numel;
  bucket_params_.push_back(param);
}

// Neighbours that go to the same rank are one.
std::vector<Zero12::Slice> Zero12::merged_slices() const {
  std::vector<Slice> out;
  for (ParamId p : bucket_params_)
    for (const Slice& s : gradients_[p.v].slices) {
      if (!out.empty() && out.back().rank == s.rank)
        out.back().numel += s.numel;
      else
        out.push_back(s);
    }
  return out;
}

// The reduction waits for what has been computed, and what is computed from now on for the reductions
// issued before this one: a bucket is filled while the one before it is reduced.
void Zero12::average_tensor() {
  StreamId stream = kCompute;
  if (options_.overlap_comm) {
    host_.make_streams();
    stream = kReduction;
    host_.wait_stream(kReduction, kCompute);
    host_.wait_stream(kCompute, kReduction);
  }
  if (bucket_.elements == 0) return;
  const Bytes bytes = low(bucket_.elements);
  if (!options_.reduce_scatter) {
    host_.collective(stream,
                     collective(WorkKind::AllReduce, "all_reduce", bytes, DType::bf16, group_),
                     {bucket_tensor()});
    pointwise("mul", 2 * bytes, stream);
    return;
  }
  pointwise("div", 2 * bytes, stream);
  const std::vector<Slice> slices = merged_slices();
  if (options_.use_multi_rank_bucket_allreduce) {
    allreduce_and_scatter(slices, stream, -1);
    return;
  }
  std::vector<int64_t> owners;
  for (const Slice& s : slices)
    if (std::find(owners.begin(), owners.end(), s.rank) == owners.end()) owners.push_back(s.rank);
  for (int64_t owner : owners) {
    std::vector<Slice> its;
    for (const Slice& s : slices)
      if (s.rank == owner) its.push_back(s);
    allreduce_and_scatter(its, stream, owner);
  }
}

BufferId Zero12::bucket_tensor() const {
  return extra_large_.valid() ? gradients_[extra_large_.v].own : bucket_buffers_[bucket_index_];
}

// allreduce_no_retain too, which is the same loop with an owner.
void Zero12::allreduce_and_scatter(const std::vector<Slice>& slices, StreamId stream,
                                   int64_t owner) {
  std::vector<Slice> small;
  int64_t numel = 0;
  for (const Slice& s : slices) {
    small.push_back(s);
    numel += s.numel;
    if (numel <= options_.reduce_bucket_size) continue;
    reduce_slices(small, stream, owner);
    small.clear();
    numel = 0;
  }
  if (!small.empty()) reduce_slices(small, stream, owner);
}

// allreduce_and_copy(_with_multiple_ranks); owner -1: all ranks get the sum.
void Zero12::reduce_slices(const std::vector<Slice>& slices, StreamId stream, int64_t owner) {
  if (owner >= 0 && options_.overlap_comm) host_.device_sync();
  int64_t numel = 0;
  for (const Slice& s : slices) numel += s.numel;
  const BufferId source = bucket_tensor();
  BufferId flat;
  if (slices.size() > 1) {
    flat = make(low(numel), stream, Category::reduce_scatter_buffers, group_);
    cat(stream, slices.size(), low(numel), "flatten");
  }
  const bool reduce = owner >= 0;
  host_.collective(
      stream,
      collective(reduce ? WorkKind::Reduce : WorkKind::AllReduce, reduce ? "reduce" : "all_reduce",
                 low(numel), DType::bf16, group_, 0, static_cast<int32_t>(reduce ? owner : 0)),
      {flat.valid() ? flat : source});
  const auto mine = [](const Slice& s) { return s.rank == 0; };
  const bool copies = std::any_of(slices.begin(), slices.end(), mine);
  // A single slice is reduced where it is, and not copied.
  if (flat.valid())
    for (const Slice& s : slices)
      if (mine(s)) host_.launch(stream, copy(WorkKind::CopyD2D, "from_flat", low(s.numel), group_));
  if (options_.overlap_comm && (copies || !flat.valid())) host_.use_on(source, kReduction);
  if (flat.valid()) drop(flat);
}

void Zero12::reduce_ipg_grads() {
  average_tensor();
  extra_large_ = {};
  const StreamId stream = options_.overlap_comm ? kReduction : kCompute;
  for (ParamId p : bucket_params_) {
    Gradient& g = gradients_[p.v];
    if (g.in_partition)
      copy_grads_in_partition(g, stream);
    else if (partitions_gradients())
      clear_grad(g);
  }
  bucket_params_.clear();
  bucket_.elements = 0;
}

// The bucket will be written again: a gradient of which this rank owns a part moves out, as a whole.
void Zero12::copy_grads_in_partition(Gradient& g, StreamId stream) {
  if (!grads_in_partition_.valid()) {
    int64_t total = 0;
    for (ParamId p : owned_) total += gradients_[p.v].numel;
    grads_in_partition_ = make(low(total), stream, Category::gradients, group_);
  }
  host_.launch(stream, copy(WorkKind::CopyD2D, "to_partition", low(g.numel), group_));
  if (g.own.valid()) host_.free(g.own);
  g.own = {};
  g.where = Where::partition;
}

void Zero12::clear_grad(Gradient& g) {
  if (g.own.valid()) host_.free(g.own);
  g.own = {};
  g.where = Where::none;
}

void Zero12::end_of_backward() {
  if (boundary_ && !partitions_gradients() && !options_.overlap_comm)
    for (ParamId p : trainable_)
      if (gradients_[p.v].where != Where::none) reduce_independent_p_g_buckets_and_remove_grads(p);
  if (partitions_gradients() || boundary_) epilogue();
  end_of_loss();
}

// independent_gradient_partition_epilogue.
void Zero12::epilogue() {
  if (!bucket_buffers_.empty()) reduce_ipg_grads();
  if (options_.overlap_comm) host_.device_sync();
  get_all_grad_tensors();
  if (boundary_) get_flat_partition();
  for (BufferId b : bucket_buffers_) drop(b);
  bucket_buffers_.clear();
  for (ParamId p : trainable_) clear_grad(gradients_[p.v]);
}

// The gradients of the partition's parameters, added to those of the micro-batches before.
void Zero12::get_all_grad_tensors() {
  const bool first = averaged_.empty();
  std::vector<BufferId> spent;
  for (ParamId p : owned_) {
    Gradient& g = gradients_[p.v];
    Averaged a{g.numel, {}, false};
    if (g.where == Where::none) {
      a.zeros = make(low(g.numel), kCompute, Category::gradients, group_);
      zeros(low(g.numel));
    }
    if (first) {
      averaged_.push_back(a);
      continue;
    }
    if (a.zeros.valid()) spent.push_back(a.zeros);
  }
  if (!first)
    for (ParamId p : owned_) pointwise("add", 3 * low(gradients_[p.v].numel));
  for (BufferId b : spent) drop(b);
  if (!grads_in_partition_.valid()) return;
  if (first)
    kept_.push_back(grads_in_partition_);
  else
    drop(grads_in_partition_);
  grads_in_partition_ = {};
}

// Views of what lies in the partition, and zeros for what is missing at its end.
void Zero12::get_flat_partition() {
  int64_t filled = 0;
  for (Averaged& a : averaged_) {
    a.numel = std::min(a.numel, partition_ - filled);
    filled += a.numel;
  }
  if (filled == partition_) return;
  Averaged pad{partition_ - filled, {}, true};
  pad.zeros = make(low(pad.numel), kCompute, Category::gradients, group_);
  zeros(low(pad.numel));
  averaged_.push_back(pad);
}

}  // namespace shardsim
