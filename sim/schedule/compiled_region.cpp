#include "sim/schedule/compiled_region.h"

#include <algorithm>
#include <string>

#include "sim/base/error.h"
#include "sim/schedule/first_compilation.h"

namespace shardsim {

namespace {

CompiledContext context_of(CompiledShape::What what, const RegionOptions& o,
                           const Behaviour& behaviour) {
  CompiledContext x;
  x.type = what == CompiledShape::What::model ? o.param : o.input;
  x.tables = o.externals[0].type;
  x.training = o.grad_enabled;
  x.frozen = o.frozen;
  switch (o.recompute) {
    case Recompute::full: x.checkpoint = GraphCheckpoint::full; break;
    case Recompute::selective_op: x.checkpoint = GraphCheckpoint::selective_op; break;
    default: break;
  }
  if ((what == CompiledShape::What::block || what == CompiledShape::What::norm) &&
      o.param != o.input)
    throw Error::at("training.precision",
                    "a compiled block's weights are " + std::string(name_of(o.param)) +
                        " and its input " + std::string(name_of(o.input)),
                    "this build compiles parts whose input and weights have one type");
  x.op.param = o.param;
  x.op.sms = o.sms;
  x.op.behaviour = &behaviour;
  return x;
}

Category category_of(CompiledPass::Made made, bool workspace, bool backward) {
  if (workspace) return Category::workspace;
  switch (made) {
    case CompiledPass::Made::recomputed: return Category::recomputed_activations;
    case CompiledPass::Made::gradient: return Category::unsharded_gradients;
    case CompiledPass::Made::temporary: return Category::temporary;
    case CompiledPass::Made::value: break;
  }
  return backward ? Category::backward : Category::activations;
}

Work work_of(const OpAction& a) {
  Work w;
  w.kind = a.act == Act::gemm       ? WorkKind::Gemm
           : a.act == Act::memset   ? WorkKind::Memset
           : a.act == Act::copy_d2d ? WorkKind::CopyD2D
                                    : WorkKind::Kernel;
  w.dtype = a.dtype;
  w.kernel = a.kernel;
  w.m = a.m;
  w.n = a.n;
  w.k = a.k;
  w.batch = a.batch;
  w.flops = a.flops;
  w.bytes = a.bytes;
  w.name = a.name;
  w.recomputed = a.recomputed;
  return w;
}

}  // namespace

CompiledTape::CompiledTape(Host& host, const StageClass& stage, const RegionOptions& options,
                           GroupId group, ModuleHooks* hooks)
    : host_(&host),
      stage_(&stage),
      options_(options),
      group_(group),
      hooks_(hooks),
      graph_(std::make_shared<CompiledGraph>(
          compile(*stage.compiled, context_of(stage.compiled->what, options, host.behaviour())))) {}

int32_t CompiledTape::storage(BufferId b, Reloc reloc) {
  storages_.push_back({b, local(reloc), 1, -1});
  return static_cast<int32_t>(storages_.size() - 1);
}

int32_t CompiledTape::allocate(Bytes bytes, Category category, Reloc reloc) {
  const BufferId b = host_->buffer(bytes, kCompute, category, group_);
  const int32_t s = storage(b, reloc);
  host_->alloc(b, storages_[s].reloc);
  if (category == Category::backward || category == Category::temporary ||
      category == Category::workspace)
    host_->schedule().buffers[b.v].unwinds = Unwinds::always;
  return s;
}

void CompiledTape::release(int32_t s) {
  Storage& x = storages_[static_cast<size_t>(s)];
  SHARDSIM_ASSERT(x.refs > 0, "a storage is released once for each reference");
  if (--x.refs > 0) return;
  if (x.external < 0 || (last_ >> x.external & 1) != 0) host_->free(x.buffer, x.reloc);
}

void CompiledTape::play(const CompiledPass& pass, bool backward, std::vector<int32_t>& slots) {
  slots.resize(pass.made.size(), -1);
  const Reloc reloc = backward ? Reloc::backward : Reloc::forward;
  const bool times = backward ? options_.times_backward : options_.times_forward;
  auto pointwise = pass.pointwise.begin();
  for (size_t i = 0; i < pass.actions.size(); ++i) {
    const OpAction& a = pass.actions[i];
    if (pointwise != pass.pointwise.end() && pointwise->action == i) {
      if (times) time_candidates(*host_, work_of(a), pointwise->overwritten);
      ++pointwise;
    }
    switch (a.act) {
      case Act::alloc:
        slots[a.slot] =
            allocate(a.bytes, category_of(pass.made[a.slot], a.workspace, backward), reloc);
        break;
      case Act::free:
        if (slots[a.slot] >= 0) release(slots[a.slot]);
        slots[a.slot] = -1;
        break;
      case Act::keep_workspace:
        host_->keep_workspace(backward ? Host::Thread::backward : Host::Thread::forward);
        break;
      default: host_->launch(kCompute, host_->work(work_of(a)));
    }
  }
}

void CompiledTape::run_forward(BufferId input, Region::Forward& result) {
  std::vector<int32_t> slots;
  input_ = storage(input, Reloc::input);
  if (options_.input_kept) ++storages_[static_cast<size_t>(input_)].refs;
  slots.push_back(input_);
  for (int e = 0; e < stage_->externals; ++e) {
    const int32_t s = storage(options_.externals[static_cast<size_t>(e)].buffer, Reloc::none);
    storages_[static_cast<size_t>(s)].reloc = Reloc::none;
    storages_[static_cast<size_t>(s)].external = e;
    slots.push_back(s);
  }
  // A buffer of the model, which nobody frees.
  const bool frequencies = stage_->compiled->rope == RopeForm::complex &&
                           stage_->compiled->what == CompiledShape::What::block;
  if (frequencies) slots.push_back(-1);
  play(graph_->forward, false, slots);
  for (uint16_t slot : graph_->saved) {
    const int32_t s = slots[slot];
    if (s >= 0) ++storages_[static_cast<size_t>(s)].refs;
    saved_.push_back(s);
  }
  const size_t inputs = 1 + static_cast<size_t>(stage_->externals);
  for (size_t i = inputs; i < slots.size(); ++i)
    if (slots[i] >= 0 && i != graph_->output) --storages_[static_cast<size_t>(slots[i])].refs;
  result.input = input;
  result.output = storages_[static_cast<size_t>(slots[graph_->output])].buffer;
  result.type = graph_->out;
  result.numel = host_->schedule().buffers[result.output.v].bytes / bytes_of(graph_->out);
  result.requires_grad = options_.grad_enabled;
  for (int e = 0; e < stage_->externals; ++e)
    if (--storages_[static_cast<size_t>(slots[static_cast<size_t>(1 + e)])].refs > 0)
      result.holds = static_cast<uint8_t>(result.holds | 1 << e);
  result.input_freed = --storages_[static_cast<size_t>(input_)].refs == 0;
}

void CompiledTape::discard(bool keep_input) {
  if (keep_input) ++storages_[static_cast<size_t>(input_)].refs;
  for (int32_t s : saved_)
    if (s >= 0) release(s);
}

GradMode CompiledTape::mode_of(uint32_t param, const GradModes& modes) const {
  if (direct()) return hooks_->grad_mode(param);
  return ignored(param) ? modes.ignored : modes.sharded;
}

// The type that a gradient is accumulated in.
DType CompiledTape::accumulated_type(uint32_t param) const {
  return ignored(param) ? options_.param : options_.reduce;
}

// Nodes that accumulate come before any other, all with the same number: what a heap of equals makes of
// them (std::priority_queue in torch/csrc/autograd/engine.h). The input's node is second.
std::vector<uint32_t> CompiledTape::accumulation_order() const {
  struct Ready {
    uint32_t param;
    bool accumulates;
  };
  const auto later = [](const Ready& a, const Ready& b) { return a.accumulates < b.accumulates; };
  std::vector<Ready> heap;
  const auto push = [&](Ready r) {
    heap.push_back(r);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  for (uint32_t p = 0; p < graph_->param_grads.size(); ++p) {
    if (graph_->param_grads[p] != UINT16_MAX) push({p, true});
    if (p == 0 && options_.input_grad) push({0, false});
  }
  std::vector<uint32_t> order;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    if (heap.back().accumulates) order.push_back(heap.back().param);
    heap.pop_back();
  }
  return order;
}

void CompiledTape::accumulate(uint32_t param, int32_t s, const GradModes& modes,
                              Region::Backward& result) {
  const auto buffer = [&] { return storages_[static_cast<size_t>(s)].buffer; };
  if (options_.flat_grads) {
    const Reloc reloc = local(Reloc::backward);
    const EventId made = host_->record(kCompute, reloc);
    if (host_->behaviour().waits_behind_producer) host_->wait(options_.views_stream, made, reloc);
    if (direct())
      hooks_->set_grad(param, buffer(), false, made);
    else
      result.grads.push_back({param, buffer(), false, made});
    return;
  }
  if (mode_of(param, modes) == GradMode::add && !options_.shared_params) {
    const Bytes bytes = host_->schedule().buffers[buffer().v].bytes;
    const int64_t numel = bytes / bytes_of(options_.param);
    Work add;
    add.bytes = bytes + 2 * numel * bytes_of(accumulated_type(param));
    add.name = "add";
    host_->launch(kCompute, host_->work(add));
    release(s);
    if (direct()) hooks_->gradient_added(param);
    return;
  }
  if (direct())
    hooks_->set_grad(param, buffer(), false, {});
  else
    result.grads.push_back({param, buffer(), false, {}});
}

void CompiledTape::run_backward(const GradModes& modes, const GradForm& form, BufferId gradient,
                                uint8_t last, Region::Backward& result) {
  last_ = last;
  if (direct()) hooks_->output_gradient();
  std::vector<int32_t> slots = saved_;
  const int32_t incoming = storage(gradient, Reloc::gradient);
  if (form.kept) ++storages_[static_cast<size_t>(incoming)].refs;
  SHARDSIM_ASSERT(!form.expanded, "a compiled part's output has a gradient of its own");
  slots.push_back(incoming);
  play(graph_->backward, true, slots);
  // Autograd casts a gradient to its accumulator's type where it leaves the node.
  for (uint32_t p = 0; p < graph_->param_grads.size(); ++p) {
    if (graph_->param_grads[p] == UINT16_MAX || options_.flat_grads) continue;
    const GradMode mode = mode_of(p, modes);
    const DType type = accumulated_type(p);
    const bool narrow = bytes_of(type) <= bytes_of(options_.param) && type != options_.param;
    if (type == options_.param || mode == GradMode::steal) continue;
    if (mode == GradMode::add && (!narrow || options_.shared_params)) continue;
    int32_t& s = slots[graph_->param_grads[p]];
    const Bytes from = host_->schedule().buffers[storages_[static_cast<size_t>(s)].buffer.v].bytes;
    const Bytes to = from / bytes_of(options_.param) * bytes_of(type);
    const int32_t made = allocate(to, Category::unsharded_gradients, Reloc::backward);
    Work cast;
    cast.bytes = from + to;
    cast.name = "cast";
    host_->launch(kCompute, host_->work(cast));
    release(s);
    s = made;
  }
  for (uint32_t p : accumulation_order())
    accumulate(p, slots[graph_->param_grads[p]], modes, result);
  result.gradient = gradient;
  result.has_input_gradient = options_.input_grad && graph_->input_grad != UINT16_MAX;
  if (graph_->input_grad == UINT16_MAX) return;
  const int32_t dx = slots[graph_->input_grad];
  if (!result.has_input_gradient) return release(dx);
  result.passes_gradient = dx == incoming;
  result.input_gradient = storages_[static_cast<size_t>(dx)].buffer;
}

}  // namespace shardsim
