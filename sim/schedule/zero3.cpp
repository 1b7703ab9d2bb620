#include "sim/schedule/zero3.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/base/units.h"
#include "sim/schedule/streams.h"

namespace shardsim {

Zero3::Zero3(Host& host, const Model& model, const Plan& plan, const Training& training, int sms)
    : DeepSpeedEngine(host, model, plan, training, sms),
      gathers_(options_.overlap_comm ? kZeroAllGather : kCompute),
      reduces_(options_.overlap_comm ? kReduction : kCompute) {
  params_.resize(model.params.size());
  bucket_.limit = options_.reduce_bucket_size;
  std::vector<int64_t> numels;
  for (uint32_t i = 0; i < model.params.size(); ++i) {
    const Param& p = model.params[i];
    if (p.alias.valid()) continue;
    Parameter& x = params_[i];
    x.numel = p.shape.numel();
    x.part = ceil_div(x.numel, ranks_);
    x.trains = !p.frozen;
    x.group = {static_cast<uint32_t>(plan.group_of_param[i])};
    all_.push_back({i});
    numels.push_back(x.numel);
  }
  const std::vector<bool> persists = persistent_parameters(
      numels, options_.param_persistence_threshold, options_.model_persistence_threshold);
  for (size_t i = 0; i < all_.size(); ++i) {
    at(all_[i]).persists = persists[i];
    if (persists[i]) persistent_.push_back(all_[i]);
  }
  for (const ShardState& s : plan.states) {
    std::vector<ParamId>& own = owned_.emplace_back();
    for (ParamId p : fetched_with(model, s.modules[0]))
      own.push_back(model.params[p.v].alias.valid() ? model.params[p.v].alias : p);
    std::sort(own.begin(), own.end(), [](ParamId a, ParamId b) { return a.v < b.v; });
  }
  // _create_fp16_sub_groups: a sub-group closes with the parameter that fills it.
  int64_t parts = 0;
  for (ParamId p : all_)
    if (at(p).trains) parts += at(p).part;
  sub_groups_.emplace_back();
  for (ParamId p : all_) {
    if (!at(p).trains) continue;
    if (parts > options_.sub_group_size && sub_groups_.back().numel >= options_.sub_group_size)
      sub_groups_.emplace_back();
    sub_groups_.back().params.push_back(p);
    sub_groups_.back().numel += at(p).part;
  }
  for (SubGroup& g : sub_groups_)
    g.optimizer = std::make_unique<OptimizerStep>(
        host, training.optimizer, DType::fp32,
        std::vector<OptimizerParam>{OptimizerParam{g.numel, GroupId{}}});
}

// A wrapper that a checkpoint puts around a block comes behind the plan's states and owns nothing.
const std::vector<ParamId>& Zero3::owned_by(uint32_t module) const {
  static const std::vector<ParamId> nothing;
  return module < owned_.size() ? owned_[module] : nothing;
}

int64_t Zero3::numel_of(uint32_t module) const {
  int64_t n = 0;
  for (ParamId p : owned_by(module)) n += params_[p.v].numel;
  return n;
}

// zero.Init over the model, and DeepSpeedZeroOptimizer_Stage3's constructor.
void Zero3::initialize() {
  std::vector<BufferId> whole = cast_and_broadcast();
  std::vector<BufferId> parts;
  for (ParamId p : all_) {
    const Parameter& x = at(p);
    host_.collective(
        kCompute, collective(WorkKind::Broadcast, "broadcast", low(x.numel), DType::bf16, x.group));
    parts.push_back(make(low(x.part), kCompute, Category::parameters, x.group));
    host_.launch(kCompute, copy(WorkKind::CopyD2D, "partition", low(std::min(x.part, x.numel))));
    drop(whole[p.v]);
  }
  const auto small = [&](Bytes bytes) {
    make(bytes, kCompute, Category::temporary);
    zeros(bytes);
  };
  const auto barrier = [&] {
    host_.collective(kCompute, collective(WorkKind::AllReduce, "barrier", 4, DType::fp32));
    host_.stream_sync(kCompute);
  };
  small(1);  // inf_or_nan_tracker
  if (!training_.legacy_nccl)
    make(4, kCompute, Category::temporary);  // the barriers' tensor, which the legacy backend drops
  barrier();
  // defragment: through the host into one buffer.
  for (size_t i = 0; i < parts.size(); ++i) {
    host_.launch(kCompute, copy(WorkKind::CopyD2H, "defragment", low(at(all_[i]).part)));
    host_.stream_sync(kCompute);
    drop(parts[i]);
  }
  host_.empty_cache(false);
  int64_t total = 0;
  for (ParamId p : all_) total += at(p).part;
  make(low(total), kCompute, Category::parameters);
  host_.launch(kCompute, copy(WorkKind::CopyH2D, "defragment", low(total)));
  host_.stream_sync(kCompute);
  int64_t largest = 0, trained = 0;
  for (const SubGroup& g : sub_groups_) {
    const BufferId converted = make(4 * g.numel, kCompute, Category::temporary);
    pointwise("cast", 6 * g.numel);
    make(4 * g.numel, kCompute, Category::parameters);
    host_.launch(kCompute, copy(WorkKind::CopyD2D, "clone", 4 * g.numel));
    drop(converted);
    largest = std::max(largest, g.numel);
    trained += g.numel;
  }
  barrier();
  const BufferId gradient = make(4 * largest, kCompute, Category::gradients);
  zeros(4 * largest);
  drop(gradient);
  barrier();
  bucket_buffer_ = make(low(bucket_.limit), kCompute, Category::reduce_scatter_buffers);
  make(low(trained), kCompute, Category::gradients);
  zeros(low(trained));
  // create_reduce_and_remove_grad_hooks gathers each parameter for the hook's sake.
  for (ParamId p : all_) {
    const Parameter& x = at(p);
    if (!x.trains) continue;
    const BufferId gathered =
        make(low(x.part * ranks_), kCompute, Category::unsharded_parameters, x.group);
    host_.collective(
        kCompute,
        collective(WorkKind::AllGather, "all_gather", low(x.part * ranks_), DType::bf16, x.group),
        {gathered});
    host_.device_sync();
    drop(gathered);
  }
}

void Zero3::root_pre_forward(uint32_t state) {
  if (!plan_.states[state].root) return;
  forward_prologue();
  if (ran_epilogue_) ++micro_step_;  // clear_backward_seen_flag
  ran_epilogue_ = false;
  reset_step();
}

bool Zero3::pre_forward(uint32_t state) {
  if (trace_ == TraceMode::record) module_order_.push_back(state);
  fetch_sub_module(state);
  return true;
}

bool Zero3::post_forward(uint32_t state, ModuleId, bool) {
  release_sub_module(state, true);
  return true;
}

void Zero3::pre_backward(uint32_t state) {
  if (trace_ == TraceMode::record) module_order_.push_back(state);
  active_backward_.push_back(state);
  fetch_sub_module(state);
}

void Zero3::post_backward(uint32_t state) { release_sub_module(state, false); }

std::vector<bool> Zero3::unsharded() const { return std::vector<bool>(plan_.groups.size(), false); }

// __add_grad_to_ipg_bucket, behind the flush that makes room for it.
void Zero3::set_unsharded_grad(ParamId param, BufferId buffer, EventId) {
  Parameter& p = at(param);
  p.grad = buffer;
  p.has_grad = true;
  if (bucket_.full_for(p.numel) && bucket_.elements > 0) reduce_and_partition_ipg_grads();
  add_grad_to_ipg_bucket(param);
}

void Zero3::add_grad_to_ipg_bucket(ParamId param) {
  Parameter& p = at(param);
  if (options_.overlap_comm) host_.make_streams();
  host_.wait_stream(reduces_, kCompute);
  if (!bucket_.full_for(p.numel)) {
    host_.launch(reduces_, copy(WorkKind::CopyD2D, "to_bucket", low(p.numel), p.group));
    host_.use_on(p.grad, reduces_);
    host_.free(p.grad);
    p.grad = {};
  }
  bucket_params_.push_back(param);
  bucket_.elements += p.numel;
}

void Zero3::reduce_and_partition_ipg_grads() {
  if (bucket_params_.empty()) return;
  constexpr uint32_t kMaxReduceEvents = 2;
  host_.limit_events(kReductionEvents, kMaxReduceEvents);
  if (bucket_.elements <= bucket_.limit && !options_.reduce_scatter)
    avg_scatter_contiguous_grads();
  else
    avg_scatter_grads();
  partition_grads();
  for (BufferId b : reduced_) drop(b);
  reduced_.clear();
  host_.push_event(kReductionEvents, host_.record(reduces_));
}

// The bucket as it is, divided and all-reduced; what it is then multiplied by is 1.
void Zero3::avg_scatter_contiguous_grads() {
  const Bytes bytes = low(bucket_.elements);
  pointwise("div", 2 * bytes, reduces_);
  host_.collective(reduces_, collective(WorkKind::AllReduce, "all_reduce", bytes, DType::bf16),
                   {bucket_buffer_});
  const BufferId product = make(bytes, reduces_, Category::reduce_scatter_buffers);
  reduced_.push_back(product);
  pointwise("mul", 2 * bytes, reduces_);
  for (ParamId p : bucket_params_) {
    const Parameter& x = at(p);
    if (std::min(x.part, x.numel) == x.part) continue;
    reduced_.push_back(make(low(x.part), reduces_, Category::reduce_scatter_buffers));
    zeros(low(x.part), reduces_);
    host_.launch(reduces_, copy(WorkKind::CopyD2D, "pad", low(x.numel)));
  }
}

// reduce_scatter_coalesced: the parts interleaved by rank, those of the last ranks padded.
void Zero3::avg_scatter_grads() {
  std::sort(bucket_params_.begin(), bucket_params_.end(),
            [](ParamId a, ParamId b) { return a.v < b.v; });
  int64_t padded = 0;
  size_t pieces = 0;
  std::vector<BufferId> pads;
  for (ParamId p : bucket_params_) {
    const Parameter& x = at(p);
    padded += x.part * ranks_;
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      const int64_t real = std::clamp<int64_t>(x.numel - rank * x.part, 0, x.part);
      if (real > 0) ++pieces;
      if (real == x.part) continue;
      pads.push_back(make(low(x.part - real), reduces_, Category::reduce_scatter_buffers, x.group));
      ++pieces;
    }
  }
  const Bytes bytes = low(padded);
  const bool in_place = bucket_params_.size() == 1 && pads.empty();
  const BufferId own = in_place ? at(bucket_params_[0]).grad : BufferId{};
  BufferId whole = own.valid() ? own : bucket_buffer_;
  if (!in_place) {
    reduced_.push_back(whole = make(bytes, reduces_, Category::reduce_scatter_buffers));
    cat(reduces_, pieces, bytes, "interleave");
  }
  reduced_.insert(reduced_.end(), pads.begin(), pads.end());
  pointwise("div", 2 * bytes, reduces_);
  host_.collective(reduces_,
                   collective(WorkKind::ReduceScatter, "reduce_scatter", bytes, DType::bf16,
                              bucket_params_.size() == 1 ? at(bucket_params_[0]).group : GroupId{}),
                   {whole});
}

void Zero3::partition_grads() {
  for (ParamId p : bucket_params_) {
    Parameter& x = at(p);
    const Bytes bytes = low(std::min(x.part, x.numel));
    if (micro_step_ == 0)
      host_.launch(reduces_, copy(WorkKind::CopyD2D, "to_partition", bytes, x.group));
    else
      pointwise("add", 3 * bytes, reduces_);
    host_.use_on(x.grad.valid() ? x.grad : bucket_buffer_, reduces_);
    if (x.grad.valid()) host_.free(x.grad);
    x.grad = {};
    x.has_grad = false;
  }
  bucket_params_.clear();
  bucket_.elements = 0;
}

// engine._backward_epilogue.
void Zero3::end_of_backward() {
  reduce_and_partition_ipg_grads();
  host_.stream_sync(reduces_);
  ran_epilogue_ = true;
  release_backward_leftovers();
  in_backward_ = false;
  end_of_loss();
}

}  // namespace shardsim
