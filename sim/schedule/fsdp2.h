// FSDP2 (`fully_shard`) as a program of host calls: the hooks of PyTorch 2.15's FSDPState and
// FSDPParamGroup (torch/distributed/fsdp/_fully_shard), written through a Host. The hooks' names are
// PyTorch's; the rules and their numbers are those of spec/fsdp2-runtime.md section 4.
//
// Worked example, Llama-3-8B on 8 ranks, bf16 compute: a block's group is 218,112,000 elements; its
// unshard casts 54,528,000 B of shard into a buffer, gathers 436,224,000 B on the all-gather stream,
// and its copy-out makes nine parameters on the compute stream.
#pragma once

#include <array>
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
  bool syncs_gradients_of(GroupId g) const override { return groups_[g.v].sync; }
  bool awaits_post_backward(GroupId g) const override;
  bool holds_gradients(GroupId g) const override;
  void set_gradients_in_reduce_type(GroupId g, bool yes) override {
    groups_[g.v].accumulated = yes;
  }
  void unshard_before_forward() override;

  // FSDPState's hooks. Inputs that require a gradient get the post-backward node.
  bool differentiates(ParamId p) const override { return !model_.params[p.v].frozen; }
  void root_pre_forward(uint32_t state) override;
  bool casts_inputs(uint32_t) const override {
    return first_in_pass_ || host_.behaviour().casts_for_every_member;
  }
  bool pre_forward(uint32_t state) override;
  bool post_forward(uint32_t state, ModuleId member, bool output_requires_grad) override;
  std::vector<uint32_t> completed_list_groups() override { return std::exchange(completed_, {}); }
  bool widens_gradients(GroupId group) const override;
  void root_forward_returned() override;
  void pre_backward(uint32_t state) override;
  void post_backward(uint32_t state) override;
  void end_of_backward() override {
    if (final_queued_) root_post_backward_final_callback();
  }
  void finalize_backward() override;
  void wait_for_gradient_reduction() override;
  void reshard_all() override;
  void set_unsharded_grad(ParamId param, BufferId buffer, EventId made) override;

  // set_post_optim_event: the next root forward's gathers wait for it instead of the compute stream.
  void set_post_optim_event(EventId e) override { post_optim_event_ = e; }

  const std::vector<Sharded>& sharded() const override { return sharded_; }
  bool has_grad(uint32_t index) const override { return has_grad(sharded_[index].id); }
  bool offloads() const override { return training_.fsdp2.cpu_offload != CpuOffload::none; }
  std::vector<bool> unsharded() const override;
  void drop_grads() override;
  void clip_grad_norm(const std::vector<uint32_t>& with_grad) override;
  bool ignored_gradients() const override;
  CommId communicator(GroupId g) const override { return groups_[g.v].comm; }

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
    // Offloaded shards, in place of the flat buffer: one a parameter, the cast where there is one.
    struct Upload {
      WorkId copy, cast;
      BufferId shard, narrow;
    };
    std::vector<Upload> uploads;
    BufferId output;  // where the all-gather writes
  };
  // Parameters on another dimension than 0: what is copied out is put together by a cat.
  struct Reassembly {
    uint32_t position = 0;
    BufferId piece;
    WorkId cat;
  };
  // One rank: a parameter's [upload, cast and] copy in place of the all-gather.
  struct OneRank {
    WorkId upload, cast, copy;
    BufferId shard, narrow;
  };
  struct Gradient {
    BufferId buffer;
    DType type = DType::fp32;
    bool valid() const { return buffer.valid(); }
  };
  // Buffers and works of a reduction over the parameters that have a gradient.
  struct Reduction {
    std::vector<bool> of;          // by position
    std::vector<DType> types;      // by position, where there is one
    std::vector<BufferId> inputs;  // one, and more where earlier ones are still retained
    Bytes input_bytes = 0;
    BufferId table, output, partial;
    BufferId sharded_grad[2];             // equal types: outputs; else their casts
    std::vector<WorkId> cast_in, pad_in;  // in place of chunk_cat: one, two a parameter
    std::vector<BufferId> padded_grads;   // for those
    WorkId table_copy, chunk_cat, pre_divide, reduce_scatter, copy, add_partial, all_reduce,
        post_divide, cast_grad;
    WorkId second_chunk_cat, mixed_table_copy;  // where gradients are of two types
    BufferId mixed_table;
    std::vector<WorkId> add_grad;  // one a parameter
    // By position; none for others: cat of a gradient on another dimension, copy to the host, the
    // optimizer's update.
    struct Each {
      BufferId cat;
      WorkId cat_work, to_host, update;
      uint32_t sum_on_host = 0,
               update_on_host = 0;  // in Schedule::host_works, where there is to_host
    };
    std::vector<Each> each;
  };
  struct ParamGroup {
    const Group* plan = nullptr;
    GroupId id;
    uint32_t state = 0;
    CommId comm, reduce_comm;
    bool last = true;    // of its state's groups
    bool mixed = false;  // its parameters compute in different types
    bool sync = true, all_reduce = true, reshard_after_backward = true;
    bool accumulated = false;   // its gradients are in the reduce type already
    bool defers_cast = false;   // autograd leaves gradients in the type they are computed in
    bool post_pending = false;  // finalize_backward is to run its post_backward
    ShardedState sharded_state = ShardedState::sharded;
    TrainingState training_state = TrainingState::idle;

    Gather whole, partial_mesh;
    std::unique_ptr<Gather> whole_on_compute, partial_on_compute;  // made when first needed
    BufferId gathered_other;  // the all-gather's output while the first is still held
    BufferId gathered;        // of the two, the one that was used last
    std::vector<Reassembly> reassembly;
    uint32_t first_unsharded = 0;  // one buffer a parameter
    uint32_t first_post_forward = 0;
    std::vector<WorkId> clone;      // int reshard, one a parameter
    std::vector<OneRank> one_rank;  // one rank: each parameter's copy

    bool communicates = true;  // one rank may copy instead

    std::vector<Gradient> grads;  // unsharded, by position; none where there is no gradient
    // The same of unsynchronized micro-batches, in the reduce type, where post-backward casts.
    std::vector<Gradient> unsynced;
    std::vector<BufferId> accumulators;  // their buffers
    std::vector<WorkId> accumulate, cast_accumulated;
    std::vector<std::unique_ptr<Reduction>> reductions;

    bool pending = false;          // an all-gather whose result nobody has waited for
    bool pending_partial = false;  // it was over the post-forward mesh
    bool ever_unsharded = false;
    bool storage_kept = false;  // set_keep_unsharded_storage: allocated once
    EventId gathered_event, reshard_event, post_event, all_reduce_event;
    EventId work_end;                       // the pending all-gather's, where it is asynchronous
    BufferId all_reduce_buffer;             // kept to the final callback
    BufferId partial;                       // HSDP: reduced, not yet all-reduced
    std::vector<bool> in_partial;           // by position: part of it
    std::vector<BufferId> sharded_grads;    // by position: the storage that .grad is a view of
    std::vector<bool> has_grad;             // by position: .grad is set
    std::vector<Bytes> pinned_grad;         // by position: bytes of the host block it is in
    StreamId pinned_on = 0;                 // the stream that copied them
    std::vector<EventId> offload_events;    // the host waits for them at the end
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
  std::unique_ptr<Gather> on_compute(const Gather& x);
  void define_each(ParamGroup& g, Reduction& x);
  void unshard(ParamGroup& g, bool async);
  void upload(const Gather& x, StreamId stream);
  void reassemble(ParamGroup& g);
  void wait_for_gather(ParamGroup& g);
  void wait_for_unshard(ParamGroup& g);
  void reshard(ParamGroup& g);
  void release_held(bool compute_waits);
  BufferId wait_for_held();
  void post_backward_group(ParamGroup& g);
  void reduce(ParamGroup& g);
  void set_grad(ParamGroup& g, uint32_t i, BufferId buffer);
  void zero_unused(ParamGroup& g);
  void cat_gradients(ParamGroup& g, Reduction& x);
  void assign_grad(ParamGroup& g, const Reduction& r, BufferId grad, StreamId post);
  void offload_grad(ParamGroup& g, const Reduction& r, StreamId post);
  void free_reduced(ParamGroup& g, BufferId grad);
  static bool holds_grads(const ParamGroup& g, BufferId storage);
  void drop_all_reduce_buffer(ParamGroup& g);
  void wait_for_post_backward(ParamGroup& g);
  void finish_group(ParamGroup& g);
  void use_stray_gather(ParamGroup& g);
  void drop_retained();
  void accumulate_grads(ParamGroup& g);
  void cast_unsynced_grads(ParamGroup& g);
  void take_gathered(ParamGroup& g, const Gather& x);
  void drop_gathered(BufferId b);
  void take_storage(ParamGroup& g, uint32_t i);
  void drop_storage(ParamGroup& g, uint32_t i);
  void end_reduction(ParamGroup& g, StreamId post);
  // The groups of a state, in order; with `reversed` from the last.
  std::array<GroupId, 2> groups_of(uint32_t state, bool reversed = false) const {
    const GroupId a = plan_.states[state].group, b = plan_.states[state].second_group;
    return reversed ? std::array{b, a} : std::array{a, b};
  }
  template <class F>
  void for_groups(uint32_t state, F&& f, bool reversed = false) {
    for (const GroupId g : groups_of(state, reversed))
      if (g.valid()) f(groups_[g.v]);
  }
  void prefetch(ParamGroup& g, TrainingState as);
  void prefetch_backward(ParamGroup& g);
  bool hsdp() const { return plan_.mesh.replicate > 1; }

  Host& host_;
  const Model& model_;
  const Plan& plan_;
  const Training& training_;
  const int sms_;
  DType compute_, reduce_, stored_;

  CommId shard_comm_, replicate_comm_;
  std::vector<ParamGroup> groups_;
  std::vector<Sharded> sharded_;
  std::vector<BufferId> ignored_grad_;  // by parameter
  std::vector<uint32_t> position_;      // by parameter: in its group
  // By state: _modules_to_run_forward, and whether its training state is FORWARD or PRE_BACKWARD (from
  // its pre_backward to the end of the backward).
  std::vector<std::vector<ModuleId>> to_run_;
  std::vector<bool> in_forward_, in_backward_;
  bool first_in_pass_ = false;  // of the state whose pre-forward runs

  // FSDPCommContext.
  Held held_;
  BufferId leaving_;             // of the held output, after its waits
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
  int64_t iteration_root_ = -1;                         // the state whose forward is the outermost
  bool final_queued_ = false;
  bool lazily_initialized_ = false;
  bool last_backward_ = true;
  void end_forward(ParamGroup& g);
  void force_complete_incomplete_states();
  std::vector<uint32_t> completed_;  // by the latest root's post_forward
};

}  // namespace shardsim
