// FSDP1 (FullyShardedDataParallel) as a program of host calls: the hooks of PyTorch's
// torch/distributed/fsdp/_runtime_utils.py and the handle of _flat_param.py, written through a Host.
// Rules and their numbers: spec/fsdp1-ddp-zero-runtime.md section 2. A unit's parameters are views
// of one flat parameter, so its gradient is one cat on the unshard stream, the backward of those
// views (flat_gradient), and everything after it follows on the post-backward stream.
//
// Worked example, Llama-2-7B on 8 ranks, bf16 compute, fp32 reduce: a block is L = 202,383,360
// elements, S = 25,297,920; its unshard casts 50,595,840 B and gathers 404,766,720 B, its reduction
// scatters 809,533,440 B into 101,191,680 B.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "sim/schedule/runtime.h"

namespace shardsim {

// The default stream is kCompute; FSDP1's own (_init_streams):
inline constexpr StreamId kPreUnshard = 1;
inline constexpr StreamId kUnshard = 2;
inline constexpr StreamId kPostBackward = 3;

// default_hooks' predivide factor: the smallest power of two f with f f >= W or f not dividing W, and
// W / f. predivide(6) = {4, 1.5}.
struct FlatDivide {
  double pre = 1, post = 1;
};
FlatDivide flat_divide(int64_t world);

class Fsdp1 final : public Runtime {
 public:
  Fsdp1(Host& host, const Model& model, const Plan& plan, const Training& training, int sms);

  void initialize() override;
  void begin_micro_batch(bool last) override;
  bool syncs_gradients() const override { return sync_; }
  bool flattens_gradients() const override { return true; }
  StreamId views_stream() const override { return kUnshard; }
  bool differentiates(ParamId p) const override { return units_[piece_of_[p.v].first].trains; }
  bool casts_after_unshard() const override { return true; }

  void root_pre_forward(uint32_t state) override;
  bool pre_forward(uint32_t state) override;
  bool post_forward(uint32_t state, ModuleId member, bool output_requires_grad) override;
  void pre_backward(uint32_t state) override;
  void post_backward(uint32_t state) override;  // _post_backward_reshard_only_hook
  void wait_for_leaves() override;
  void end_of_backward() override;

  void set_unsharded_grad(ParamId param, BufferId buffer, EventId made) override;
  BufferId sum_grads(BufferId first, EventId first_made, BufferId second,
                     EventId second_made) override;
  void flat_gradient(GroupId unit) override;
  void listen(ViewListener* listener) override { listener_ = listener; }
  void set_grad_enabled(bool yes) override { grad_enabled_ = yes; }

  void save() override;

  const std::vector<Sharded>& sharded() const override { return sharded_; }
  bool has_grad(uint32_t index) const override;
  bool offloads() const override { return options_.cpu_offload; }
  void drop_grads() override;
  void clip_grad_norm(const std::vector<uint32_t>& with_grad) override;
  std::vector<bool> unsharded() const override;

 private:
  enum class TrainingState : uint8_t { idle, forward, backward_pre, backward_post };

  // A parameter's piece of the flat parameter, or the padding between two.
  struct Piece {
    ParamId param;  // none: padding
    int64_t numel = 0;
    BufferId zeros;        // of the size, where no gradient came
    BufferId placeholder;  // use_orig_params: an empty .grad of the shard, made under no_sync
    WorkId fill;
    BufferId grad;  // what autograd has left
    EventId made;
  };
  // FlatParamHandle.
  struct Unit {
    const Group* plan = nullptr;
    GroupId id;
    bool root = false, trains = true;
    TrainingState state = TrainingState::idle;
    bool gathered = false;          // its unsharded storage is allocated
    bool points_unsharded = false;  // flat_param.data is not the local shard
    bool low_copy = false;          // NO_SHARD: the low-precision copy is allocated
    bool prefetched = false, needs_pre_forward = false, needs_pre_backward = false;
    bool ran_pre_backward = false;
    int32_t pre_forward_index = -1, post_forward_index = -1;
    std::vector<Piece> pieces;

    BufferId low, full, device_shard, full_stored, flat_grad[2], reduce_copy, pad_copy, reduced,
        sharded[2];
    BufferId low_grad;  // keep_low_precision_grads
    WorkId cast_shard, h2d, d2h, gather, gather_stored, cat, add_flat, cast_grad, pad_fill,
        pad_copy_work, pre_divide, reduce, all_reduce, post_divide, cast_sharded, add_sharded,
        cast_low;

    BufferId unsharded_grad;         // .grad while it is the whole gradient
    BufferId grad;                   // .grad or _saved_grad_shard: the shard
    BufferId kept_flat;              // NO_SHARD with offload: the constructor's, held by its views
    bool grad_of_optimizer = false;  // the optimizer's zero_grad has not dropped it
  };

  void define(Unit& u);
  Unit& unit(uint32_t state) { return units_[plan_.states[state].group.v]; }
  Bytes stored(int64_t numel) const { return numel * bytes_of(stored_); }
  bool shards() const { return shards_; }
  bool mixed() const { return compute_ != stored_; }
  bool reshards_after_forward() const;
  bool frees_in_backward() const { return shards_ && (sync_ || reshards_after_forward()); }

  void unshard(Unit& u);
  void reshard(Unit& u, bool free, StreamId current);
  void prefetch(Unit& u);
  void post_backward_reshard(Unit& u, StreamId current);
  void use_unsharded_grad_views(Unit& u);
  void reduce_grad(Unit& u, BufferId flat);
  void reduce_grad_no_shard(Unit& u, BufferId flat, DType type);
  void cast_buffers();
  void drop_dead_grads();
  void drop_dead_grad(Unit& u);
  void offload_grad(Unit& u, StreamId post);
  void wait_for_limiter();

  // state_dict and summon_full_params (fsdp1_state_dict.cpp).
  bool inside(const Unit& outer, const Unit& inner) const;
  void gather_for_saving(Unit& u);
  void reshard_after_saving(Unit& u);
  void copy_out(Unit& u, std::vector<BufferId>& copies);

  Host& host_;
  const Model& model_;
  const Plan& plan_;
  const Training& training_;
  const Fsdp1Options& options_;
  const int sms_;
  DType stored_, compute_, reduce_;
  bool shards_ = true, hybrid_ = false;
  StreamId leaves_ = kUnshard;            // of the flat parameters' AccumulateGrad
  std::vector<BufferId> module_buffers_;  // the root's
  BufferId zero_scalar_;                  // clip_grad_norm_'s
  CommId shard_comm_, replicate_comm_;

  std::vector<Unit> units_;  // by group
  std::vector<uint32_t> all_handles_;
  std::vector<Sharded> sharded_;
  std::vector<uint32_t> members_run_;
  std::vector<std::pair<uint32_t, uint32_t>> piece_of_;  // by parameter: unit and piece
  ViewListener* listener_ = nullptr;

  std::deque<EventId> free_events_;
  std::vector<uint32_t> pre_forward_order_, post_forward_order_;  // _ExecOrderData
  int64_t iteration_ = 0;
  bool initialized_ = false, callback_queued_ = false, accumulated_ = false;
  bool sync_ = true, grad_enabled_ = true;
};

}  // namespace shardsim
