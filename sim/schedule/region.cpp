#include "sim/schedule/region.h"

#include <algorithm>
#include <utility>

#include "sim/base/error.h"
#include "sim/model/autocast.h"
#include "sim/schedule/autograd.h"
#include "sim/schedule/compiled_region.h"
#include "sim/schedule/streams.h"

namespace shardsim {

namespace {

constexpr int kMaxSaved = 8;

Work make_work(const OpAction& m) {
  Work w;
  switch (m.act) {
    case Act::gemm: w.kind = WorkKind::Gemm; break;
    case Act::memset: w.kind = WorkKind::Memset; break;
    case Act::copy_d2d: w.kind = WorkKind::CopyD2D; break;
    default: w.kind = WorkKind::Kernel; break;
  }
  w.dtype = m.dtype;
  w.kernel = m.kernel;
  w.m = m.m;
  w.n = m.n;
  w.k = m.k;
  w.batch = m.batch;
  w.flops = m.flops;
  w.bytes = m.bytes;
  w.name = m.name;
  return w;
}

Work pointwise(const char* name, Bytes bytes, KernelClass cls = KernelClass::pointwise) {
  Work w;
  w.kernel = cls;
  w.bytes = bytes;
  w.name = name;
  return w;
}

}  // namespace

// The eager interpreter. Copied before each backward, so that one forward serves several.
class RegionTape {
 public:
  struct Grad {
    int32_t storage = -1;
    bool view = false;      // of a tensor with another shape: never added into in place
    bool expanded = false;  // one element standing for all
    DType type = DType::fp32;
    Bytes bytes = 0;  // dense
    bool valid() const { return storage >= 0; }
  };

  RegionTape(Host& host, const StageClass& stage, const RegionOptions& options, GroupId group,
             ModuleHooks* hooks)
      : host_(&host), stage_(&stage), options_(options), group_(group), hooks_(hooks) {
    if (options.autocast) {
      autocast_stage_ = std::make_shared<StageClass>(
          under_autocast(stage, *options.autocast, [this](int32_t p) { return type_of(p); }));
      stage_ = autocast_stage_.get();
    }
    values_.resize(static_cast<size_t>(stage_->slots));
    node_of_step_.assign(stage_->steps.size(), Engine::kNone);
    code_of_step_.assign(stage_->steps.size(), 0);
    find_checkpoint();
  }

  void run_forward(BufferId input, Region::Forward& result);
  void run_backward(const GradModes& modes, const GradForm& form, BufferId gradient,
                    Region::Backward& result);

  // A reentrant checkpoint's second forward, on a tape of its own, and its backward.
  void rerun(BufferId input, const GradModes& modes, const GradForm& form, BufferId gradient,
             Region::Backward& result);
  void release_checkpoint() {
    // A tuple of tables stays with the context's other arguments, which go before saved tensors.
    const auto externals = [&](bool constants) {
      for (int e = 0; e < kExternals; ++e) {
        int32_t& s = cut_external_[static_cast<size_t>(e)];
        if (s < 0 || options_.externals[static_cast<size_t>(e)].grad == constants) continue;
        release(s);
        s = -1;
      }
    };
    externals(true);
    if (cut_input_ >= 0) release(cut_input_);
    cut_input_ = -1;
    externals(false);
  }

  void discard(bool keep_input);
  void last_to_hold(uint8_t externals) { last_ = externals; }

  // Called by the engine.
  using Engine = Autograd<Grad>;
  void execute(uint32_t n, Engine::Grads& in, Engine::Grads& out);
  void accumulate(Grad& into, const Grad& g);
  void routed(uint32_t n);

 private:
  struct Storage {
    BufferId buffer;
    Reloc reloc = Reloc::none;
    int32_t refs = 0;
    int8_t external = -1;
  };
  struct Value {
    int32_t storage = -1;
    uint32_t node = Engine::kNone;  // that made it
    uint8_t slot = 0;
    DType type = DType::fp32;
    Bytes bytes = 0;
    bool grad = false;
  };
  enum class NodeKind : uint8_t { boundary, op, post_backward, views };
  struct Node {
    NodeKind kind = NodeKind::op;
    OpKind op = OpKind::input;
    uint32_t step = 0;     // none for a cast: look there only for a linear's or a bag's shape
    uint32_t code = 0;     // index into codes_
    uint32_t module = 0;   // post_backward
    int8_t external = -1;  // boundary
    GroupId unit;          // views
    OpContext context;
    std::array<int32_t, kMaxSaved> saved{};
    int saved_count = 0;
    std::array<Bytes, 3> in_bytes{};
    std::array<int32_t, 2> param{-1, -1};
  };
  struct PreHook {
    uint32_t node = 0;
    uint32_t module = 0;
    bool post_backward = false;
  };
  // A wrapped module whose forward is running: the caller's view of its argument.
  struct Scope {
    int16_t slot = 0;
    bool cast = false;
    Value outer;
  };
  enum class Pass : uint8_t { train, checkpointed, recompute };
  using Slots = std::array<int32_t, kMaxSlots>;

  bool direct() const { return hooks_ != nullptr; }

  int32_t storage(BufferId b, Reloc reloc) {
    storages_.push_back({b, reloc, 1, -1});
    return static_cast<int32_t>(storages_.size() - 1);
  }
  int32_t allocate(Bytes bytes, Category category) {
    const BufferId b = host_->buffer(bytes, kCompute, category, group_);
    const int32_t s = storage(b, direct() ? Reloc::none : local_);
    host_->alloc(b, storages_[s].reloc);
    const bool passes = category == Category::backward || category == Category::temporary ||
                        category == Category::workspace;
    if (local_ == Reloc::backward && passes)
      host_->schedule().buffers[b.v].unwinds = Unwinds::always;
    return s;
  }
  void hold(int32_t s) { ++storages_[s].refs; }
  void release(int32_t s) {
    Storage& x = storages_[s];
    SHARDSIM_ASSERT(x.refs > 0, "a storage is released once for each reference");
    if (--x.refs > 0) return;
    if (x.external < 0 || (last_ >> x.external & 1) != 0) host_->free(x.buffer, x.reloc);
  }
  void launch(const Work& w) { host_->launch(kCompute, host_->work(w)); }

  Slots play(const std::vector<OpAction>& micros, Category made, bool saves);
  Slots play_backward(const std::vector<OpAction>& micros, Node& node, Engine::Grads& in);
  Slots play(const std::vector<OpAction>& micros, Category made, bool saves, Node* node,
             Engine::Grads* in);
  void run_step(uint32_t index, Pass pass);
  Value run_op(OpKind op, const OpShape& shape, const std::array<int16_t, 3>& in,
               const std::array<int16_t, 3>& out, const std::array<int32_t, 2>& param,
               uint32_t step, Pass pass);
  void run_cast(int16_t slot, DType to, Pass pass);
  void find_checkpoint();
  bool reentrant() const {
    return options_.recompute == Recompute::reentrant && options_.grad_enabled;
  }
  bool makes_graph() const { return options_.grad_enabled && !reentrant(); }
  bool recomputes() const {
    return options_.recompute == Recompute::full || options_.recompute == Recompute::selective_op;
  }
  bool in_checkpoint(uint32_t step) const {
    return recomputes() && step >= cut_begin_ && step < cut_end_;
  }
  void recompute();
  bool must_save(uint32_t step) const;
  void collect(uint32_t param, const Grad& g);
  // The type that parameter p of the stage is used in.
  DType type_of(int32_t p) const {
    return p >= 0 && p < 64 && (options_.kept >> p & 1) != 0 ? options_.stored : options_.param;
  }
  bool trains(int32_t p) const { return p >= 64 || (options_.frozen >> p & 1) == 0; }
  void leave_autocast();
  EventId record_made();
  void run_views_behind(int64_t n);
  // A checkpoint's hooks see what autograd keeps, parameters too.
  static bool packs(const OpCode& code) { return !code.saved.empty() || code.saves_parameter; }
  bool ignored(uint32_t param) const { return param < 64 && (options_.ignored >> param & 1) != 0; }
  GradMode mode_of(uint32_t param) const {
    if (direct()) return hooks_->grad_mode(param);
    return ignored(param) ? modes_.ignored : modes_.sharded;
  }

  Host* host_;
  const StageClass* stage_;
  std::shared_ptr<const StageClass> autocast_stage_;
  RegionOptions options_;
  GroupId group_;
  ModuleHooks* hooks_;
  Reloc local_ = Reloc::forward;

  std::vector<Storage> storages_;
  std::vector<Value> values_;  // by slot
  std::vector<Node> nodes_;
  std::vector<PreHook> pre_hooks_;
  uint32_t output_node_ = Engine::kNone;  // until the output's gradient has called its hooks
  std::vector<std::pair<GroupId, uint32_t>> views_;  // unit and node
  // Of units that other stages use: unit, and the first node that was made after them.
  std::vector<std::pair<GroupId, uint32_t>> views_elsewhere_;
  std::vector<Scope> scopes_;
  Engine engine_;
  std::vector<std::pair<uint32_t, Slots>> cached_;  // selective: step and its slots
  std::vector<int32_t> autocast_cache_;             // storages
  std::vector<uint32_t> node_of_step_, code_of_step_;
  std::shared_ptr<std::vector<OpCode>> codes_ = std::make_shared<std::vector<OpCode>>();
  uint32_t cut_begin_ = 0, cut_end_ = 0;  // the checkpoint's steps
  int16_t cut_slot_ = 0;                  // its input
  int32_t cut_input_ = -1;                // held by it
  std::array<int32_t, kExternals> external_storage_{-1, -1};
  std::array<int32_t, kExternals> cut_external_{-1, -1};  // held by the checkpoint
  std::array<Grad, kExternals> external_gradient_;
  uint8_t last_ = 0;
  uint32_t last_saving_step_ = 0;
  uint32_t first_saving_node_ = 0;  // the last to run backward: the checkpoint's frame goes with it
  bool anything_saved_ = false;
  bool recompute_pending_ = false;
  bool rerun_ = false;
  int32_t input_storage_ = -1;
  Category made_ = Category::activations;

  GradModes modes_;
  std::vector<std::pair<uint32_t, Grad>> pending_;  // parameter gradients of the node that ran
  EventId made_early_;  // behind the one that was made before the rest of the node
  Region::Backward* result_ = nullptr;
  Grad input_gradient_;
  int32_t incoming_ = -1;
};

RegionTape::Slots RegionTape::play(const std::vector<OpAction>& micros, Category made, bool saves) {
  return play(micros, made, saves, nullptr, nullptr);
}

RegionTape::Slots RegionTape::play_backward(const std::vector<OpAction>& micros, Node& node,
                                            Engine::Grads& in) {
  return play(micros, Category::backward, false, &node, &in);
}

// `node` is the one whose backward it is, with the gradients that arrive there; null in a forward,
// where `saves` says whether autograd keeps anything.
RegionTape::Slots RegionTape::play(const std::vector<OpAction>& micros, Category made, bool saves,
                                   Node* node, Engine::Grads* in) {
  Slots slots;
  slots.fill(-1);
  // By the checkpoint that the node is in.
  const bool unpacked = node != nullptr && in_checkpoint(node->step);
  for (size_t i = 0; i < micros.size(); ++i) {
    const OpAction& m = micros[i];
    if (m.act == Act::release || (m.act == Act::release_unpacked && unpacked)) {
      if (node->saved[m.slot] >= 0) release(node->saved[m.slot]);
      node->saved[m.slot] = -1;
      continue;
    }
    if (m.act == Act::release_unpacked || (m.act == Act::free_unsaved && saves)) continue;
    if (m.act == Act::take_gradient) {
      release((*in)[0].storage);
      (*in)[0] = {};
      continue;
    }
    if (m.act == Act::parameter_done) {
      if (options_.flat_grads) made_early_ = record_made();
      continue;
    }
    if (m.act == Act::free || m.act == Act::free_unsaved) {
      release(slots[m.slot]);
      slots[m.slot] = -1;
      continue;
    }
    if (m.act == Act::keep_workspace) {
      host_->keep_workspace(local_ == Reloc::backward ? Host::Thread::backward
                                                      : Host::Thread::forward);
      continue;
    }
    if (m.act != Act::alloc) {
      Work w = make_work(m);
      w.recomputed = made == Category::recomputed_activations;
      launch(w);
      continue;
    }
    Category category = made;
    if (m.workspace) {
      category = Category::workspace;
    } else if (node && m.slot >= kParamGrad && m.slot < kBackwardTemp) {
      category = Category::unsharded_gradients;
    } else {
      for (size_t j = i + 1; j < micros.size(); ++j)
        if (micros[j].act == Act::free && micros[j].slot == m.slot) {
          category = Category::temporary;
          break;
        }
    }
    slots[m.slot] = allocate(m.bytes, category);
  }
  return slots;
}

bool RegionTape::must_save(uint32_t step) const {
  const Step& s = stage_->steps[step];
  if (s.op == OpKind::attention) return true;
  if (s.op != OpKind::linear || s.shape.bias) return false;
  int count = 0;
  for (uint32_t i = cut_begin_; i <= step; ++i) {
    const Step& t = stage_->steps[i];
    if (t.what == Step::What::run && t.op == OpKind::linear && !t.shape.bias) ++count;
  }
  return count % 2 == 1;
}

RegionTape::Value RegionTape::run_op(OpKind op, const OpShape& shape,
                                     const std::array<int16_t, 3>& in,
                                     const std::array<int16_t, 3>& out,
                                     const std::array<int32_t, 2>& param, uint32_t step,
                                     Pass pass) {
  const bool first_run = pass != Pass::recompute;
  uint32_t node = step < node_of_step_.size() ? node_of_step_[step] : Engine::kNone;
  uint32_t code_index = 0;
  if (first_run) {
    OpContext x;
    bool any_grad = false;
    for (int i = 0; i < 3; ++i) {
      if (in[i] < 0) continue;
      const Value& v = values_[in[i]];
      x.in[i] = v.type;
      x.has_in[i] = true;
      x.in_grad[i] = v.grad && makes_graph();
      any_grad = any_grad || x.in_grad[i];
    }
    x.param = type_of(param[0]);
    x.has_bias = param[1] >= 0;
    x.param_grad = param[0] >= 0 && makes_graph() && trains(param[0]);
    x.autocast_backward = options_.autocast_backward;
    x.sms = options_.sms;
    x.function_linear = options_.function_linears;
    x.behaviour = &host_->behaviour();
    any_grad = any_grad || x.param_grad;
    codes_->push_back(op_code(op, shape, x));
    code_index = static_cast<uint32_t>(codes_->size() - 1);
    if (any_grad && op != OpKind::input && !codes_->back().makes_constant) {
      Engine::Edges edges;
      Node n;
      n.op = op;
      n.step = step;
      n.code = code_index;
      n.context = x;
      n.param = param;
      for (int i = 0; i < 3; ++i) {
        if (in[i] < 0) continue;
        const Value& v = values_[in[i]];
        n.in_bytes[i] = v.bytes;
        if (x.in_grad[i]) edges[i] = {v.node, v.slot};
      }
      // An operator has three inputs at most, so the last edge is free.
      if (x.param_grad && !views_.empty()) {
        const GroupId unit = hooks_->unit_of(static_cast<uint32_t>(param[0]));
        for (const auto& [u, views] : views_)
          if (u == unit) edges[Engine::kMax - 1] = {views, 0};
      }
      node = engine_.add(edges);
      nodes_.push_back(n);
      if (step < node_of_step_.size()) node_of_step_[step] = node;
      if (packs((*codes_)[code_index]) && in_checkpoint(step)) {
        if (!anything_saved_) first_saving_node_ = node;
        last_saving_step_ = step;
        anything_saved_ = true;
      }
    }
    if (step < code_of_step_.size()) code_of_step_[step] = code_index;
  } else if (step < code_of_step_.size()) {
    code_index = code_of_step_[step];
  } else {
    OpContext x;
    x.in[0] = values_[in[0]].type;
    codes_->push_back(op_code(op, shape, x));
    code_index = static_cast<uint32_t>(codes_->size() - 1);
  }
  const OpCode& code = (*codes_)[code_index];

  Slots slots;
  bool from_cache = false;
  if (pass == Pass::recompute && options_.recompute == Recompute::selective_op)
    for (auto& [s, kept] : cached_)
      if (s == step) {
        slots = kept;
        s = UINT32_MAX;
        from_cache = true;
      }
  if (!from_cache)
    slots = play(code.forward, pass == Pass::recompute ? Category::recomputed_activations : made_,
                 pass != Pass::checkpointed);
  if (code.aliases_input) {
    slots.fill(-1);
    for (int i = 0; i < code.outputs; ++i) {
      slots[i] = values_[in[0]].storage;
      hold(slots[i]);
    }
  }
  if (pass == Pass::checkpointed && options_.recompute == Recompute::selective_op &&
      must_save(step)) {
    for (int32_t s : slots)
      if (s >= 0) hold(s);
    cached_.emplace_back(step, slots);
  }
  if (node != Engine::kNone && pass != Pass::checkpointed) {
    Node& n = nodes_[node];
    for (uint8_t what : code.saved) {
      const int32_t s = what < kSavedSlot ? values_[in[what]].storage : slots[what - kSavedSlot];
      hold(s);
      n.saved[n.saved_count++] = s;
    }
  }
  for (int i = code.outputs; i < kMaxSlots; ++i)
    if (slots[i] >= 0) release(slots[i]);
  // Autocast's cache takes lower copies of leaves that train; a view of a flat parameter is no leaf.
  if (op == OpKind::cast_param && shape.to == options_.autocast && trains(param[0]) &&
      !options_.flat_grads) {
    hold(slots[0]);
    autocast_cache_.push_back(slots[0]);
  }

  // A rerun's cast makes no node; what it casts tells.
  const bool grad =
      node != Engine::kNone || (!first_run && step >= code_of_step_.size() && values_[in[0]].grad);
  Value result;
  for (int i = 0; i < code.outputs; ++i) {
    Value v;
    v.storage = slots[i];
    v.node = grad ? node : Engine::kNone;
    v.slot = code.split_gradient ? static_cast<uint8_t>(i) : uint8_t{0};
    v.type = code.out;
    v.grad = grad;
    v.bytes = code.aliases_input ? values_[in[0]].bytes / code.outputs
                                 : host_->schedule().buffers[storages_[slots[i]].buffer.v].bytes;
    if (std::find(stage_->unnamed.begin(), stage_->unnamed.end(), out[i]) != stage_->unnamed.end())
      host_->schedule().buffers[storages_[slots[i]].buffer.v].unwinds = Unwinds::in_its_region;
    if (out[i] >= 0) values_[out[i]] = v;
    if (i == 0) result = v;
  }
  return result;
}

// A checkpoint around one module of the stage goes from its enter to its exit, hooks outside.
void RegionTape::find_checkpoint() {
  cut_end_ = static_cast<uint32_t>(stage_->steps.size());
  if (options_.part == 0) return;
  for (uint32_t i = 0; i < stage_->steps.size(); ++i) {
    const Step& s = stage_->steps[i];
    if (s.module != options_.part) continue;
    if (s.what == Step::What::enter) {
      cut_begin_ = i + 1;
      cut_slot_ = s.in[0];
    } else if (s.what == Step::What::exit) {
      cut_end_ = i;
    }
  }
}

void RegionTape::run_cast(int16_t slot, DType to, Pass pass) {
  OpShape s;
  s.rows = 1;
  s.in = values_[slot].bytes / bytes_of(values_[slot].type);
  s.to = to;
  run_op(OpKind::cast, s, {slot, -1, -1}, {slot, -1, -1}, {-1, -1}, UINT32_MAX,
         pass == Pass::recompute ? pass : Pass::train);
}

void RegionTape::run_step(uint32_t index, Pass pass) {
  const Step& step = stage_->steps[index];
  switch (step.what) {
    case Step::What::run:
      if (step.op == OpKind::cast) {
        const Value& v = values_[step.in[0]];
        OpShape all = step.shape;
        if (step.in[1] >= 0) all.to = values_[step.in[1]].type;
        if (v.type == all.to) {
          hold(v.storage);
          values_[step.out[0]] = v;
          return;
        }
        all.rows = 1;
        all.in = v.bytes / bytes_of(v.type);
        run_op(step.op, all, {step.in[0], -1, -1}, step.out, step.param, index, pass);
        return;
      }
      run_op(step.op, step.shape, step.in, step.out, step.param, index, pass);
      return;
    case Step::What::drop: {
      Value& v = values_[step.out[0]];
      if (v.storage >= 0) release(v.storage);
      v.storage = -1;
      return;
    }
    case Step::What::enter: {
      if (!direct() || !hooks_->wrapped(step.module)) return;
      // Inside the module the argument is another tensor: its cast, behind a post-backward node.
      const int16_t in = step.in[0];
      scopes_.push_back({in, false, values_[in]});
      const auto cast_argument = [&] {
        if (!hooks_->casts_input(values_[in].type)) return;
        run_cast(in, options_.param, pass);
        scopes_.back().cast = true;
      };
      const bool late = hooks_->casts_after_unshard();
      hooks_->root_pre_forward(step.module);
      if (!late) cast_argument();
      const bool post_backward = hooks_->pre_forward(step.module);
      const std::vector<GroupId> made = hooks_->take_views();
      if (late) cast_argument();
      if (pass == Pass::recompute) return;  // its graph is thrown away
      for (GroupId unit : made) {
        if (!hooks_->inside(unit)) {
          views_elsewhere_.emplace_back(unit, static_cast<uint32_t>(engine_.size()));
          continue;
        }
        views_.emplace_back(unit, engine_.add({}));
        Node n;
        n.kind = NodeKind::views;
        n.unit = unit;
        nodes_.push_back(n);
      }
      if (!post_backward || !values_[in].grad) return;
      if (hooks_->post_backward_on_inputs()) {
        pre_hooks_.push_back({values_[in].node, step.module, true});
      } else {
        Engine::Edges edges;
        edges[0] = {values_[in].node, values_[in].slot};
        Node n;
        n.kind = NodeKind::post_backward;
        n.module = step.module;
        values_[in].node = engine_.add(edges);
        values_[in].slot = 0;
        nodes_.push_back(n);
      }
      return;
    }
    case Step::What::exit: {
      if (!direct() || !hooks_->wrapped(step.module)) return;
      const int16_t out = step.out[0];
      if (hooks_->post_forward(step.module, values_[out].grad) && values_[out].grad &&
          pass != Pass::recompute)
        pre_hooks_.push_back({values_[out].node, step.module, false});
      if (hooks_->casts_output(values_[out].type)) {
        const int32_t narrow = values_[out].storage;
        run_cast(out, hooks_->output_type(), pass);
        release(narrow);
      }
      const Scope scope = scopes_.back();
      scopes_.pop_back();
      if (scope.cast) release(values_[scope.slot].storage);
      values_[scope.slot] = scope.outer;
      return;
    }
  }
}

void RegionTape::run_forward(BufferId input, Region::Forward& result) {
  Value& x = values_[0];
  input_storage_ = storage(input, direct() ? Reloc::none : Reloc::input);
  if (options_.input_kept) hold(input_storage_);
  x.storage = input_storage_;
  x.type = options_.input;
  x.bytes = options_.input_numel > 0 ? options_.input_numel * bytes_of(options_.input)
                                     : host_->schedule().buffers[input.v].bytes;
  x.grad = options_.input_grad && makes_graph();
  if (x.grad) {
    x.node = engine_.add({});
    Node n;
    n.kind = NodeKind::boundary;
    nodes_.push_back(n);
  }
  for (int e = 0; e < stage_->externals; ++e) {
    const External& external = options_.externals[e];
    Value& v = values_[static_cast<size_t>(1 + e)];
    v.storage = external_storage_[e] = storage(external.buffer, Reloc::none);
    storages_[v.storage].external = static_cast<int8_t>(e);
    v.type = external.type;
    v.bytes = external.bytes;
    v.grad = external.grad && makes_graph();
    if (!v.grad) continue;
    v.node = engine_.add({});
    Node n;
    n.kind = NodeKind::boundary;
    n.external = static_cast<int8_t>(e);
    nodes_.push_back(n);
  }
  const bool checkpointed = recomputes() && options_.grad_enabled;
  if (checkpointed || (reentrant() && options_.input_grad))
    for (int e = 0; e < stage_->externals; ++e) {
      cut_external_[e] = external_storage_[e];
      hold(cut_external_[e]);
    }
  // Without an input that requires a gradient there is no node to keep it.
  if (reentrant() && options_.input_grad) {
    cut_input_ = input_storage_;
    hold(cut_input_);
  }
  for (uint32_t i = 0; i < stage_->steps.size(); ++i) {
    const bool inside = checkpointed && in_checkpoint(i);
    if (inside && i == cut_begin_) {
      cut_input_ = values_[cut_slot_].storage;
      hold(cut_input_);
    }
    run_step(i, inside ? Pass::checkpointed : Pass::train);
  }
  recompute_pending_ = checkpointed && anything_saved_;

  // Where the context outlasts backward, what it holds is never the graph's to free.
  for (int32_t s : autocast_cache_)
    if (options_.autocast_backward || --storages_[s].refs == 0)
      result.cached.push_back(storages_[s].buffer);
  autocast_cache_.clear();
  const Value& y = values_[stage_->output];
  result.input = input;
  result.output = storages_[y.storage].buffer;
  result.type = y.type;
  result.numel = y.bytes / bytes_of(y.type);
  result.requires_grad = reentrant() ? options_.input_grad : y.grad;
  for (int16_t slot : stage_->root_locals) {
    Value& v = values_[slot];
    if (--storages_[v.storage].refs == 0) result.root_locals.push_back(storages_[v.storage].buffer);
    v.storage = -1;
  }
  for (int16_t slot : stage_->published) {
    result.published.push_back(storages_[values_[slot].storage].buffer);
    result.published_types.push_back(values_[slot].type);
    values_[slot].storage = -1;
  }
  for (int e = 0; e < stage_->externals; ++e)
    if (--storages_[external_storage_[e]].refs > 0)
      result.holds = static_cast<uint8_t>(result.holds | 1 << e);
  // The caller's variable goes when the stage has returned; the caller frees the buffer itself.
  result.input_freed = --storages_[input_storage_].refs == 0;
  values_[0].storage = -1;
}

// The checkpointed function runs again up to the last tensor that backward needs (early stop), and
// its local variables go with it.
void RegionTape::recompute() {
  recompute_pending_ = false;
  for (Value& v : values_) v.storage = -1;
  values_[cut_slot_].storage = cut_input_;
  hold(cut_input_);
  for (int e = 0; e < stage_->externals; ++e) {
    values_[static_cast<size_t>(1 + e)].storage = external_storage_[e];
    hold(external_storage_[e]);
  }
  scopes_.clear();
  for (uint32_t i = cut_begin_; i <= last_saving_step_; ++i) {
    const Step& step = stage_->steps[i];
    if (i == last_saving_step_ && step.what == Step::What::run) {
      // Saved inputs are packed before the operator runs: it stops there if it saves nothing else.
      const Node& n = nodes_[node_of_step_[i]];
      bool only_inputs = true;
      for (uint8_t what : (*codes_)[n.code].saved) only_inputs = only_inputs && what < kSavedSlot;
      // A function's forward has run before it saves anything.
      if (options_.function_linears && n.op == OpKind::linear) only_inputs = false;
      if (only_inputs) {
        Node& m = nodes_[node_of_step_[i]];
        for (uint8_t what : (*codes_)[n.code].saved) {
          const int32_t s = values_[step.in[what]].storage;
          hold(s);
          m.saved[m.saved_count++] = s;
        }
        break;
      }
    }
    run_step(i, Pass::recompute);
  }
  for (Value& v : values_) {
    if (v.storage >= 0) release(v.storage);
    v.storage = -1;
  }
  leave_autocast();
  // It stopped inside these modules: their callers' arguments go too.
  for (const Scope& s : scopes_)
    if (s.cast) release(s.outer.storage);
  scopes_.clear();
}

void RegionTape::leave_autocast() {
  for (int32_t s : autocast_cache_) release(s);
  autocast_cache_.clear();
}

// The stages that use these units have run. Those made behind node n come before it.
void RegionTape::run_views_behind(int64_t n) {
  while (!views_elsewhere_.empty() && views_elsewhere_.back().second > n) {
    hooks_->flat_gradient(views_elsewhere_.back().first);
    views_elsewhere_.pop_back();
  }
}

void RegionTape::execute(uint32_t n, Engine::Grads& in, Engine::Grads& out) {
  run_views_behind(n);
  const auto call = [&](const PreHook& h) {
    if (h.node != n) return;
    if (h.post_backward)
      hooks_->post_backward(h.module);
    else
      hooks_->pre_backward(h.module);
  };
  if (hooks_ != nullptr && hooks_->outer_pre_backward_first())
    std::for_each(pre_hooks_.rbegin(), pre_hooks_.rend(), call);
  else
    std::for_each(pre_hooks_.begin(), pre_hooks_.end(), call);
  if (n == output_node_) {
    output_node_ = Engine::kNone;
    hooks_->output_gradient();
  }
  Node& node = nodes_[n];
  if (node.kind == NodeKind::views) {
    hooks_->flat_gradient(node.unit);
    return;
  }
  if (node.kind == NodeKind::boundary && node.external >= 0) {
    external_gradient_[node.external] = in[0];
    return;
  }
  if (node.kind == NodeKind::boundary) {
    input_gradient_ = in[0];
    // The rerun's input is a leaf: AccumulateGrad takes what is nobody else's, and copies the rest.
    if (rerun_ && (in[0].expanded || storages_[in[0].storage].refs > 1)) {
      input_gradient_ = {allocate(in[0].bytes, Category::backward), false, false, in[0].type,
                         in[0].bytes};
      launch(pointwise("copy", 2 * in[0].bytes));
      release(in[0].storage);
    }
    return;
  }
  if (node.kind == NodeKind::post_backward) {
    hooks_->post_backward(node.module);
    out[0] = in[0];
    return;
  }
  const bool unpacked = in_checkpoint(node.step);
  if (recompute_pending_ && unpacked && packs((*codes_)[node.code])) recompute();
  const OpCode* code = &(*codes_)[node.code];
  OpCode for_expanded;
  if (in[0].expanded && node.op == OpKind::linear) {
    OpContext x = node.context;
    x.expanded_grad = true;
    for_expanded = op_code(OpKind::linear, stage_->steps[node.step].shape, x);
    code = &for_expanded;
  }
  const Slots slots = play_backward(code->backward, node, in);
  for (int i = 0; i < 3; ++i) {
    if (!node.context.in_grad[i]) {
      if (slots[i] >= 0) release(slots[i]);
      continue;
    }
    if (code->passes_gradient && slots[i] < 0) {
      out[i] = in[0];
      out[i].bytes = node.in_bytes[i];
      out[i].type = node.context.in[i];
      out[i].expanded = out[i].expanded || code->gradient_is_expanded;
      hold(in[0].storage);
      continue;
    }
    out[i] = {slots[i], code->gradient_is_view, false, node.context.in[i], node.in_bytes[i]};
  }
  const bool function = options_.function_linears && node.op == OpKind::linear;
  for (int k = 1; k >= 0; --k) {
    const int i = function ? 1 - k : k;  // a function's in the order of its inputs
    if (node.param[i] < 0 || slots[kParamGrad + i] < 0) continue;
    // A linear's weight gradient is a transposed view of what the product made.
    Grad g{slots[kParamGrad + i], node.op == OpKind::linear && i == 0 && !function, false,
           node.context.param, 0};
    if (node.op == OpKind::bag) {
      const OpShape& s = stage_->steps[node.step].shape;
      g.bytes = s.out * bytes_of(node.context.param);
      g.expanded = !s.scale;
    } else {
      g.bytes = host_->schedule().buffers[storages_[g.storage].buffer.v].bytes;
    }
    pending_.emplace_back(node.param[i], g);
  }
  // A recomputed tensor belongs to the local variable that unpacked it, and locals go last made first
  // when the function returns; an ordinary saved tensor goes with release_variables, after the
  // incoming gradient.
  if (unpacked)
    for (int i = node.saved_count - 1; i >= 0; --i)
      if (node.saved[i] >= 0) release(node.saved[i]);
  // Autograd casts to the accumulator's type where a gradient leaves its node; a linear's weight has
  // a transposition in between, whose node runs when this one has let go.
  if (modes_.sharded == GradMode::first || direct()) {
    const bool transposed = node.op == OpKind::linear;
    std::erase_if(pending_, [&](const auto& p) {
      if (mode_of(p.first) != GradMode::first) return false;
      if (transposed && static_cast<int32_t>(p.first) == node.param[0]) return false;
      collect(p.first, p.second);
      return true;
    });
  }
  for (int i = kBackwardTemp; i < kMaxSlots; ++i)
    if (slots[i] >= 0) release(slots[i]);
  for (const Grad& g : in)
    if (g.valid()) release(g.storage);
  if (!unpacked)
    for (int i = 0; i < node.saved_count; ++i)
      if (node.saved[i] >= 0) release(node.saved[i]);
  node.saved_count = 0;
  if (n == first_saving_node_) release_checkpoint();
}

void RegionTape::accumulate(Grad& into, const Grad& g) {
  const Work add = pointwise("add", 3 * into.bytes);
  if (!into.view && !into.expanded && storages_[into.storage].refs == 1) {
    launch(add);
    release(g.storage);
    return;
  }
  const int32_t sum = allocate(into.bytes, Category::backward);
  launch(add);
  release(into.storage);
  release(g.storage);
  into = {sum, false, false, into.type, into.bytes};
}

void RegionTape::routed(uint32_t) {
  for (const auto& [param, g] : pending_) collect(param, g);
  pending_.clear();
}

// The event behind the node that made a parameter's gradient.
EventId RegionTape::record_made() {
  const Reloc reloc = direct() ? Reloc::none : Reloc::backward;
  const EventId made = host_->record(kCompute, reloc);
  if (host_->behaviour().waits_behind_producer) host_->wait(options_.views_stream, made, reloc);
  return made;
}

void RegionTape::collect(uint32_t param, const Grad& g) {
  if (options_.flat_grads) {
    const BufferId made_in = storages_[g.storage].buffer;
    const EventId made = made_early_.valid() ? std::exchange(made_early_, {}) : record_made();
    if (direct())
      hooks_->set_grad(param, made_in, g.view, made);
    else
      result_->grads.push_back({param, made_in, g.view, made});
    return;
  }
  const int64_t numel = g.bytes / bytes_of(g.type);
  const GradMode mode = mode_of(param);
  const bool adds = mode == GradMode::add && !options_.shared_params;
  // A wider accumulator takes the gradient as it is; to another type it is cast first.
  const DType reduce = ignored(param) ? g.type : options_.reduce;
  const bool narrow = bytes_of(reduce) <= bytes_of(g.type) && reduce != g.type;
  Grad kept = g;
  const DType type = mode == GradMode::first || (adds && narrow) ? reduce : g.type;
  const bool cast = type != g.type;
  bool view = g.view;
  if (cast || (g.expanded && !adds)) {
    view = false;
    const Bytes bytes = numel * bytes_of(type);
    kept.storage = allocate(bytes, Category::unsharded_gradients);
    launch(pointwise(cast ? "cast" : "copy", g.bytes + bytes));
    release(g.storage);
  }
  if (adds) {
    launch(pointwise("add", (bytes_of(type) + 2 * bytes_of(reduce)) * numel));
    release(kept.storage);
    if (direct()) hooks_->gradient_added(param);
    return;
  }
  const BufferId buffer = storages_[kept.storage].buffer;
  if (direct())
    hooks_->set_grad(param, buffer, view, {});
  else
    result_->grads.push_back({param, buffer, view, {}});
}

void RegionTape::run_backward(const GradModes& modes, const GradForm& form, BufferId gradient,
                              Region::Backward& result) {
  modes_ = modes;
  result_ = &result;
  local_ = Reloc::backward;
  const Value& y = values_[stage_->output];
  Grad g;
  g.storage = incoming_ = storage(gradient, direct() ? Reloc::none : Reloc::gradient);
  if (form.kept) hold(incoming_);
  g.expanded = form.expanded;
  g.view = form.view;
  g.type = y.type;
  g.bytes = y.bytes;
  if (direct()) output_node_ = y.node;
  engine_.backward(y.node, g, *this);
  run_views_behind(-1);
  for (const auto& [step, slots] : cached_)
    if (step != UINT32_MAX)
      for (int32_t s : slots)
        if (s >= 0) release(s);
  release_checkpoint();
  result.gradient = gradient;
  for (int e = 0; e < kExternals; ++e)
    if (const Grad& of = external_gradient_[e]; of.valid())
      result.externals[e] = {storages_[of.storage].buffer, {of.expanded, of.view, false}};
  result.has_input_gradient = input_gradient_.valid();
  if (input_gradient_.valid()) {
    result.passes_gradient = input_gradient_.storage == incoming_;
    result.input_gradient = storages_[input_gradient_.storage].buffer;
    result.input_form = {input_gradient_.expanded, input_gradient_.view,
                         result.passes_gradient && form.kept};
  }
}

// torch.utils.checkpoint's CheckpointFunction.backward, whose frame holds the gradient and the output.
void RegionTape::rerun(BufferId input, const GradModes& modes, const GradForm& form,
                       BufferId gradient, Region::Backward& result) {
  rerun_ = true;
  made_ = Category::recomputed_activations;
  local_ = Reloc::backward;
  Region::Forward forward;
  run_forward(input, forward);
  for (BufferId b : forward.cached) host_->free(b, direct() ? Reloc::none : local_);
  const int32_t output = values_[stage_->output].storage;
  GradForm held = form;
  held.kept = true;
  run_backward(modes, held, gradient, result);
  release(output);
  if (!form.kept) release(incoming_);
}

// Nodes go from the last to the first, each with what it saved.
void RegionTape::discard(bool keep_input) {
  if (keep_input) hold(input_storage_);
  for (auto n = nodes_.rbegin(); n != nodes_.rend(); ++n)
    for (int i = 0; i < n->saved_count; ++i)
      if (n->saved[i] >= 0) release(n->saved[i]);
  for (const auto& [step, slots] : cached_)
    for (int32_t s : slots)
      if (s >= 0) release(s);
  release_checkpoint();
}

Region::Region(Host& host, const StageClass& stage, const RegionOptions& options, GroupId group,
               ModuleHooks* hooks, BufferId input)
    : host_(host), stage_(&stage), options_(options), group_(group), hooks_(hooks) {
  if (stage.compiled)
    compiled_ = std::make_unique<CompiledTape>(host, stage, options, group, hooks);
  else
    tape_ = std::make_unique<RegionTape>(host, stage, options, group, hooks);
  const auto run_forward = [&] {
    if (compiled_)
      compiled_->run_forward(input, forward_);
    else
      tape_->run_forward(input, forward_);
  };
  if (hooks_) {
    const bool graph = options.grad_enabled && options.recompute != Recompute::reentrant;
    hooks_->set_grad_enabled(graph);
    run_forward();
    hooks_->set_grad_enabled(options.grad_enabled);
    return;
  }
  // `input` is the first instance's: its size is what counts.
  const uint32_t span = host.begin_span();
  forward_.begin = host.buffers();
  run_forward();
  forward_.end = host.buffers();
  forward_.span = host.end_span(span);
}

Region::~Region() = default;

Region::Backward Region::discard(bool keep_input) {
  Backward result;
  result.gradient = forward_.output;
  if (hooks_) {
    if (compiled_)
      compiled_->discard(keep_input);
    else
      tape_->discard(keep_input);
    return result;
  }
  const uint32_t span = host_.begin_span();
  result.begin = host_.buffers();
  if (compiled_)
    CompiledTape(*compiled_).discard(keep_input);
  else
    RegionTape(*tape_).discard(keep_input);
  result.end = host_.buffers();
  result.span = host_.end_span(span);
  return result;
}

// Several backwards may be laid out from one forward: each on a copy.
void Region::run_backward(const GradModes& modes, const GradForm& form, BufferId gradient,
                          uint8_t last, Backward& result) {
  if (compiled_) {
    CompiledTape(*compiled_).run_backward(modes, form, gradient, last, result);
    return;
  }
  std::optional<RegionTape> copy;
  if (!hooks_) copy.emplace(*tape_);
  RegionTape& tape = hooks_ ? *tape_ : *copy;
  tape.last_to_hold(last);
  if (options_.recompute != Recompute::reentrant) {
    tape.run_backward(modes, form, gradient, result);
    return;
  }
  RegionOptions o = options_;
  o.recompute = Recompute::none;
  o.input_kept = true;
  RegionTape again(host_, *stage_, o, group_, hooks_);
  again.last_to_hold(0);
  again.rerun(forward_.input, modes, form, gradient, result);
  tape.release_checkpoint();
}

Region::Backward Region::backward(const GradModes& modes, const GradForm& form, BufferId gradient,
                                  uint8_t last) {
  Backward result;
  if (hooks_) {
    run_backward(modes, form, gradient, last, result);
    return result;
  }
  const uint32_t span = host_.begin_span();
  result.begin = host_.buffers();
  result.first_event = host_.events();
  run_backward(modes, form, gradient, last, result);
  result.end = host_.buffers();
  result.events = host_.events() - result.first_event;
  result.span = host_.end_span(span);
  return result;
}

}  // namespace shardsim
