// What a sharding strategy does at the points where PyTorch calls its hooks: one runtime a strategy
// (fsdp2.h, fsdp1.h), each writing host calls through a Host. The training program calls them in
// forward's and autograd's order and knows nothing else of the strategy.
// Worked example, FSDP2's block i in backward: pre_backward(i) unshards it and prefetches i - 1, its
// stage runs, set_unsharded_grad is called for each parameter, post_backward(i) reduces.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/plan/buckets.h"
#include "sim/plan/plan.h"
#include "sim/schedule/host.h"
#include "sim/schedule/streams.h"

namespace shardsim {

// Told when a runtime has made a unit's parameters as views of its flat parameter (FSDP1): the
// autograd node whose backward is flat_gradient() is made at that moment.
class ViewListener {
 public:
  virtual ~ViewListener() = default;
  virtual void views_made(GroupId unit) = 0;
};

class Runtime {
 public:
  virtual ~Runtime() = default;

  // Allocates this rank's shards as the constructor of the strategy does.
  virtual void initialize() = 0;

  // Called before each micro-batch's forward.
  virtual void begin_micro_batch(bool last) = 0;
  virtual bool syncs_gradients() const { return true; }
  virtual bool syncs_gradients_of(GroupId) const { return syncs_gradients(); }
  // FSDP2's manual finalization: the group still has gradients of a synchronized pass before this one.
  virtual bool awaits_post_backward(GroupId) const { return false; }
  // Whether there are gradients that nothing has reduced.
  virtual bool holds_gradients(GroupId) const { return true; }
  // The gradients of a group come in the reduce type (autograd has cast them as they arrived) rather
  // than as computed.
  virtual void set_gradients_in_reduce_type(GroupId, bool) {}
  // Whether a group's gradients are cast to a wider reduce type as they arrive, though they are reduced
  // in this backward.
  virtual bool widens_gradients(GroupId) const { return false; }
  // Nothing is sharded, and AccumulateGrad's rules are all there are: a gradient is stolen where the
  // parameter has none, and added in place where it has.
  virtual bool keeps_gradients_whole() const { return false; }
  // Parameters, their gradients and the optimizer are on the host.
  virtual bool offloads() const { return false; }
  virtual bool holds_gradient(ParamId) const { return false; }
  // By parameter: forward has an operator that takes it, and from there a path to the loss.
  virtual void set_used(std::vector<bool>) {}
  // set_unsharded_grad and gradient_added are called between the operators, as each gradient arrives:
  // stages are laid out where they stand.
  virtual bool hooks_gradients() const { return false; }
  // Explicit unshards, once the batch is there.
  virtual void unshard_before_forward() {}
  // Parameters' gradients go into a flat gradient: autograd hands each over with an event and
  // accumulates nothing by itself.
  virtual bool flattens_gradients() const { return false; }
  virtual StreamId views_stream() const { return kCompute; }  // of the flat gradient
  // Whether backward makes a gradient of this parameter: a view of a flat parameter has one although
  // the parameter itself is frozen.
  virtual bool differentiates(ParamId) const = 0;
  // Inputs are cast once a module is unsharded, not before.
  virtual bool casts_after_unshard() const { return false; }
  // Of the member of a list group that runs now.
  virtual bool casts_inputs(uint32_t) const { return true; }

  // Hooks, by state. A list group's are called for every member.
  // Before the inputs are cast. A checkpoint that reruns a module calls this, pre_forward and
  // post_forward again, inside backward.
  virtual void root_pre_forward(uint32_t state) = 0;
  // True: inputs that require a gradient call post_backward when they have it.
  virtual bool pre_forward(uint32_t state) = 0;
  // True: the output's gradient is to call pre_backward.
  virtual bool post_forward(uint32_t state, ModuleId member, bool output_requires_grad) = 0;
  // States of list groups with members that have not run, whose forward the latest post_forward of
  // the root has ended: the root's output is to call their pre_backward too.
  virtual std::vector<uint32_t> completed_list_groups() { return {}; }
  // The root's post_forward has returned, its output cast.
  virtual void root_forward_returned() {}
  // The root's output is cloned (DDP's _DDPSink), and what runs when its gradient is there.
  virtual bool clones_output() const { return false; }
  virtual void output_gradient() {}
  virtual void pre_backward(uint32_t state) = 0;
  virtual void post_backward(uint32_t state) = 0;
  // Every node of the backward has run.
  // The end of a reentrant checkpoint's own backward.
  virtual void wait_for_leaves() {}
  virtual void end_of_backward() = 0;

  // FSDP2's finalize_backward (set_manual_backward_finalization), and the wait for what it has issued.
  virtual void finalize_backward() {}
  virtual void wait_for_gradient_reduction() {}
  // state_dict()'s pre-hooks: no parameter stays unsharded.
  virtual void reshard_all() {}

  // autograd has left a gradient of this parameter in this buffer; `made` has been recorded after
  // the node that did (flattens_gradients only).
  virtual void set_unsharded_grad(ParamId param, BufferId buffer, EventId made) = 0;
  // A gradient has been added in place to the one that the parameter had.
  virtual void gradient_added(ParamId) {}
  // The sum of two gradients of one parameter where it is read twice (flattens_gradients only): on
  // the stream of its view, as the second arrives. Frees both.
  virtual BufferId sum_grads(BufferId, EventId, BufferId, EventId) { return {}; }
  // The backward of a unit's views.
  virtual void flat_gradient(GroupId) {}
  virtual void listen(ViewListener*) {}
  virtual void set_grad_enabled(bool) {}

  // Linear layers are one autograd function each, which makes the input's gradient first and keeps its
  // input whatever is frozen (DeepSpeed's zero/linear.py).
  virtual bool linears_are_functions() const { return false; }
  // Pre-backward hooks are nodes around the output, the outermost module's first, and not hooks on it.
  virtual bool outer_pre_backward_first() const { return false; }
  // A checkpoint's wrapper is a module with hooks of its own, around a block whose hooks the rerun calls
  // again; its state comes behind the plan's, by the block's.
  virtual bool hooks_checkpoints() const { return false; }

  // DeepSpeed's engine.backward scales the loss before its backward; the gradient that then arrives at
  // the loss, made from the ones that backward starts with. Its step() follows each micro-batch.
  virtual void scale_loss() {}
  virtual BufferId scaled_gradient(BufferId ones) { return ones; }
  virtual bool steps_itself() const { return false; }
  virtual void engine_step() {}

  // The trainable tensors that the optimizer sees on this rank, in parameters() order.
  struct Sharded {
    ParamId id;         // flat parameters: of the first
    int64_t local = 0;  // elements without padding
    GroupId group;      // none: nothing shards it
  };
  virtual const std::vector<Sharded>& sharded() const = 0;
  virtual bool has_grad(uint32_t index) const = 0;  // of sharded()
  // Those of them that this rank's optimizer updates, in its order.
  virtual std::vector<uint32_t> optimized(const std::vector<uint32_t>& with_grad) const {
    return with_grad;
  }
  virtual void optimizer_stepped() {}
  // zero_grad(set_to_none=True).
  virtual void drop_grads() = 0;
  // state_dict() and the like after the last step, with their marks.
  virtual void save() {}
  virtual void clip_grad_norm(const std::vector<uint32_t>& with_grad) = 0;
  virtual void set_post_optim_event(EventId) {}
  virtual bool ignored_gradients() const { return false; }   // any of those that nothing shards
  virtual CommId communicator(GroupId) const { return {}; }  // that gathers the group
  // DDP's, in the order in which they are reduced: as they are now, or of the first iteration.
  virtual std::vector<GradientBucket> buckets(bool) const { return {}; }
  virtual std::vector<bool> unsharded() const = 0;  // by group: its parameters are whole now
};

}  // namespace shardsim
