// FSDP2 (`fully_shard`) as a program of host calls: the hooks of PyTorch 2.15's FSDPState and
// FSDPParamGroup (torch/distributed/fsdp/_fully_shard), written through a Host. The hooks' names are
// PyTorch's; the rules and their numbers are those of spec/fsdp2-runtime.md section 4.
//
// Worked example, Llama-3-8B on 8 ranks, bf16 compute: a block's group is 218,112,000 elements; its
// unshard casts 54,528,000 B of shard into a buffer, gathers 436,224,000 B on the all-gather stream,
// and its copy-out makes nine parameters on the compute stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sim/plan/plan.h"
#include "sim/schedule/host.h"
#include "sim/schedule/runtime.h"

namespace shardsim {

// Pre- and post-division of gradients (_get_gradient_divide_factors): fp16 divides before and after
// the reduction, bf16 and fp32 let it average. divide_factors(DType::fp16, 8) = {4, 2}.
struct DivideFactors {
  double pre = 1, post = 1;
};
// A custom factor takes the place of the number of ranks; force_sum divides after the reduction.
DivideFactors divide_factors(DType reduce, int64_t ranks, double factor = 0,
                             bool force_sum = false);

class Fsdp2 : public Runtime {
 public:
  Fsdp2(Host& host, const Model& model, const Plan& plan, const Training& training, int sms);

  // Allocates every rank's shards, in the order of the module tree.
  void initialize() override;

  // set_requires_gradient_sync and its like, called before each micro-batch.
  void begin_micro_batch(bool last) override;
  bool syncs_gradients() const override { return sync_; }
  // Whether the gradients come in the reduce type (cast as they arrived) rather than as computed.
  void set_gradients_in_reduce_type(bool yes) override { accumulated_ = yes; }

  // FSDPState's hooks. Inputs that require a gradient get the post-backward node.
  bool differentiates(ParamId p) const override { return !model_.params[p.v].frozen; }
  void root_pre_forward() override;
  bool casts_inputs(uint32_t state) const override {
    return members_run_[state] == 0 || host_.behaviour().casts_for_every_member;
  }
  bool pre_forward(uint32_t state) override;
  bool post_forward(uint32_t state, bool output_requires_grad) override;
  std::vector<uint32_t> complete_list_groups() override;
  void pre_backward(uint32_t state) override;
  void post_backward(uint32_t state) override;
  void end_of_backward() override {
    if (final_queued_) root_post_backward_final_callback();
  }
  void set_unsharded_grad(ParamId param, BufferId buffer, EventId made) override;

  // set_post_optim_event: the next root forward's gathers wait for it instead of the compute stream.
  void set_post_optim_event(EventId e) override { post_optim_event_ = e; }

  const std::vector<Sharded>& sharded() const override { return sharded_; }
  bool has_grad(uint32_t index) const override { return has_grad(sharded_[index].id); }
  std::vector<bool> unsharded() const override;
  void drop_grads() override;
  void clip_grad_norm(const std::vector<uint32_t>& with_grad) override;

 private:
  enum class ShardedState : uint8_t { sharded, post_forward, unsharded };
  enum class TrainingState : uint8_t { idle, forward, pre_backward, post_backward };

  // Works of one all-gather: over the whole group, or over the post-forward mesh.
  struct Gather {
    int64_t ranks = 1;
    std::vector<WorkId> copy_in;  // [flat cast or copy,] copy into the all-gather's input
    size_t flat = 0;              // of them, those that write the flat buffer
    WorkId gather, table, copy_out;
    BufferId flat_buffer, table_buffer;
  };
  // Buffers and works of a reduction over the parameters that have a gradient.
  struct Reduction {
    std::vector<bool> of;          // by position
    std::vector<BufferId> inputs;  // one, and more where earlier ones are still retained
    Bytes input_bytes = 0;
    BufferId table, output, partial;
    BufferId sharded_grad[2];             // equal types: outputs; else their casts
    std::vector<WorkId> cast_in, pad_in;  // in place of chunk_cat: one, two a parameter
    std::vector<BufferId> padded_grads;   // for those
    WorkId table_copy, chunk_cat, pre_divide, reduce_scatter, copy, add_partial, all_reduce,
        post_divide, cast_grad;
    std::vector<WorkId> add_grad;  // one a parameter
  };
  struct ParamGroup {
    const Group* plan = nullptr;
    GroupId id;
    uint32_t state = 0;
    ShardedState sharded_state = ShardedState::sharded;
    TrainingState training_state = TrainingState::idle;

    Gather whole, partial_mesh;
    BufferId gathered;  // the all-gather's output; the other while that is still held
    BufferId gathered_other;
    uint32_t first_unsharded = 0;  // one buffer a parameter
    uint32_t first_post_forward = 0;
    std::vector<WorkId> clone;  // int reshard, one a parameter
    uint32_t first_cast = 0;    // one rank: each parameter's cast
    std::vector<WorkId> cast_one, copy_one;

    bool communicates = true;  // one rank may copy instead

    std::vector<BufferId> grads;  // unsharded, by position; none where there is no gradient
    // The same of unsynchronized micro-batches, in the reduce type, where post-backward casts.
    std::vector<BufferId> accumulated;
    std::vector<BufferId> accumulators;  // their buffers
    std::vector<WorkId> accumulate, cast_accumulated;
    std::vector<std::unique_ptr<Reduction>> reductions;

    bool pending = false;          // an all-gather whose result nobody has waited for
    bool pending_partial = false;  // it was over the post-forward mesh
    bool ever_unsharded = false;
    bool storage_kept = false;  // set_keep_unsharded_storage: allocated once
    EventId gathered_event, reshard_event, post_event, all_reduce_event;
    BufferId all_reduce_buffer;             // kept to the final callback
    BufferId partial;                       // HSDP: reduced, not yet all-reduced
    BufferId sharded_grad;                  // the storage that the parameters' .grad are views of
    std::vector<bool> has_grad;             // by position: .grad is set
    std::vector<uint32_t> forward_indices;  // into order_, one a forward
  };
  struct Held {
    BufferId buffer;  // none: nothing is held
    EventId event;
  };

  void define(ParamGroup& g);
  void root_post_backward_final_callback();
  bool has_grad(ParamId p) const;
  Reduction& reduction(ParamGroup& g);
  BufferId reduce_input(ParamGroup& g, Reduction& x);
  void define_gather(ParamGroup& g, Gather& gather, CommId comm, bool from_post_forward);
  void unshard(ParamGroup& g);
  void wait_for_unshard(ParamGroup& g);
  void reshard(ParamGroup& g);
  void release_held(bool compute_waits);
  void post_backward_group(ParamGroup& g);
  void reduce(ParamGroup& g, bool cast);
  void assign_grad(ParamGroup& g, const Reduction& r, BufferId grad, StreamId post);
  void drop_all_reduce_buffer(ParamGroup& g);
  void wait_for_post_backward(ParamGroup& g);
  void finalize_backward(ParamGroup& g);
  void use_stray_gather(ParamGroup& g);
  void drop_retained();
  void accumulate_grads(ParamGroup& g);
  void cast_unsynced_grads(ParamGroup& g);
  void take_gathered(ParamGroup& g);
  void drop_gathered(BufferId b);
  void take_storage(ParamGroup& g, uint32_t i);
  void drop_storage(ParamGroup& g, uint32_t i);
  void end_reduction(ParamGroup& g, StreamId post);
  GroupId group_of(uint32_t state) const { return plan_.states[state].group; }
  bool hsdp() const { return plan_.mesh.replicate > 1; }

  Host& host_;
  const Model& model_;
  const Plan& plan_;
  const Training& training_;
  const int sms_;
  DType compute_, reduce_, stored_;

  CommId shard_comm_, replicate_comm_, reduce_comm_;
  std::vector<ParamGroup> groups_;
  std::vector<Sharded> sharded_;
  std::vector<uint32_t> position_;     // by parameter: in its group
  std::vector<uint32_t> members_run_;  // by state: members whose forward has run this pass

  // FSDPCommContext.
  Held held_;
  std::vector<uint32_t> order_;  // groups, as their forwards ended
  struct Retained {
    BufferId input;
    EventId event;
  };
  std::vector<Retained> retained_;  // reduce-scatter inputs, oldest first
  struct Post {
    StreamId stream = 0;
    EventId event;
  };
  std::vector<Post>
      posts_;  // latest e_post of each stream, in order of first use since the last final

  EventId post_optim_event_;
  std::vector<std::pair<Bytes, BufferId>> persistent_;  // custom all-gather: outputs by size
  bool iteration_root_ = false;
  bool final_queued_ = false;
  bool accumulated_ = false;
  void end_forward(ParamGroup& g);
  bool sync_ = true, all_reduce_ = true, last_backward_ = true, reshard_after_backward_ = true;
};

}  // namespace shardsim
