#include "sim/schedule/training_program.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "sim/base/error.h"
#include "sim/model/autocast.h"
#include "sim/model/program.h"
#include "sim/plan/compile_rules.h"
#include "sim/plan/param_policy.h"
#include "sim/schedule/autograd.h"
#include "sim/schedule/ddp.h"
#include "sim/schedule/first_compilation.h"
#include "sim/schedule/fsdp1.h"
#include "sim/schedule/fsdp2.h"
#include "sim/schedule/host.h"
#include "sim/schedule/host_optimizer.h"
#include "sim/schedule/optimizer.h"
#include "sim/schedule/region.h"
#include "sim/schedule/runtime.h"
#include "sim/schedule/state_dict.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/whole.h"
#include "sim/schedule/zero1.h"
#include "sim/schedule/zero12.h"
#include "sim/schedule/zero3.h"

namespace shardsim {

namespace {

bool is_float(DType t) { return t == DType::fp32 || t == DType::bf16 || t == DType::fp16; }

bool same(const RegionOptions& a, const RegionOptions& b) {
  return a.input == b.input && a.param == b.param && a.reduce == b.reduce &&
         a.grad_enabled == b.grad_enabled && a.input_grad == b.input_grad &&
         a.input_numel == b.input_numel && a.input_kept == b.input_kept &&
         a.shared_params == b.shared_params && a.flat_grads == b.flat_grads &&
         a.recompute == b.recompute && a.part == b.part && a.frozen == b.frozen &&
         a.kept == b.kept && a.ignored == b.ignored && a.stored == b.stored &&
         a.externals == b.externals && a.autocast == b.autocast &&
         a.autocast_backward == b.autocast_backward && a.sms == b.sms;
}

StageClass cast_class(int64_t numel, DType to) {
  StageClass c;
  Step s;
  s.op = OpKind::cast;
  s.shape.rows = 1;
  s.shape.in = numel;
  s.shape.to = to;
  s.in[0] = 0;
  s.out[0] = 1;
  c.steps.push_back(s);
  c.slots = 2;
  c.output = 1;
  return c;
}

std::unique_ptr<Runtime> make_runtime(Host& host, const Model& model, const Plan& plan,
                                      const Training& training, int sms) {
  if (training.strategy == Strategy::fsdp1)
    return std::make_unique<Fsdp1>(host, model, plan, training, sms);
  if (training.strategy == Strategy::torch_zero1)
    return std::make_unique<Zero1>(host, model, plan, training);
  if (training.strategy == Strategy::ddp) return std::make_unique<Ddp>(host, model, plan, training);
  if (training.strategy == Strategy::none)
    return std::make_unique<Whole>(host, model, plan, training);
  if (training.strategy == Strategy::zero3)
    return std::make_unique<Zero3>(host, model, plan, training, sms);
  if (is_zero(training.strategy)) return std::make_unique<Zero12>(host, model, plan, training, sms);
  return std::make_unique<Fsdp2>(host, model, plan, training, sms);
}

// The class with enter and exit of the stage's own module around its steps.
StageClass with_own(const StageClass& c) {
  StageClass out = c;
  Step enter, exit;
  enter.what = Step::What::enter;
  enter.in[0] = 0;
  exit.what = Step::What::exit;
  exit.out[0] = c.output;
  out.steps.insert(out.steps.begin(), enter);
  out.steps.push_back(exit);
  return out;
}

}  // namespace

class TrainingProgram::Impl : public ViewListener {
 public:
  Impl(const Model& model, const Plan& plan, const Scenario& scenario, Schedule& schedule)
      : model_(model),
        plan_(plan),
        training_(scenario.training),
        host_(schedule, scenario.training.behaviour(), scenario.training.legacy_nccl),
        sms_(scenario.cluster.gpu.sms),
        runtime_(make_runtime(host_, model, plan, scenario.training, sms_)),
        fsdp_(*runtime_),
        program_(build_program(model, input_of(scenario.training))) {
    schedule.streams = {"compute",        "all-gather copy-in", "all-gather",
                        "reduce-scatter", "all-reduce",         "internal"};
    if (training_.strategy == Strategy::fsdp1)
      schedule.streams = {"compute",       "pre-unshard", "unshard",
                          "post-backward", "all-reduce",  "internal"};
    // FSDP2's all-gathers and reduce-scatters; FSDP1's ahead of HSDP's all-reduces
    // (_runtime_utils.py, _init_streams).
    const bool hybrid = training_.strategy == Strategy::fsdp1 && training_.mesh.replicate > 1 &&
                        training_.fsdp1.limit_all_gathers;
    if (training_.strategy == Strategy::fsdp2 || hybrid)
      schedule.high_priority = 1u << kCopyIn | 1u << kAllGather | 1u << kReduceScatter;
    if (keeps_parameters_whole(training_.strategy))
      schedule.streams = {"compute", "side 1", "side 2", "side 3", "side 4", "internal"};
    if (is_zero(training_.strategy))
      schedule.streams = {"compute", "side 1", "all-gather", "reduction", "side 4", "internal"};
    fsdp_.listen(this);
    views_.assign(plan.groups.size(), Engine::kNone);
    policies_ = param_policies(model, training_);
    grad_mode_.assign(plan.groups.size(), GradMode::steal);
    accumulating_.assign(plan.groups.size(), false);
    uses_.assign(model.params.size(), 0);
    for (const Stage& s : program_.stages)
      for (const Step& step : program_.classes[s.cls].steps)
        if (step.what == Step::What::run && step.param[0] >= 0)
          for (int32_t p : step.param)
            if (p >= 0)
              uses_[shared(s.first_param + static_cast<uint32_t>(p)).v] += training_.forwards;
    if (training_.precision.autocast) refuse_shared_copies();
    check_compile(model, plan, training_);
    fsdp_.set_used(used_params());
    pending_grad_.assign(model.params.size(), BufferId{});
    pending_view_.assign(model.params.size(), false);
    pending_made_.assign(model.params.size(), EventId{});
    passes_.resize(static_cast<size_t>(training_.forwards));
    for (Pass& p : passes_) p.stages.resize(program_.stages.size());
    group_of_stage_.resize(program_.stages.size());
    for (size_t i = 0; i < program_.stages.size(); ++i)
      group_of_stage_[i] = group_of(program_.stages[i].module.valid() ? program_.stages[i].module
                                                                      : program_.stages[i].inside);
    OpContext context;
    context.behaviour = &host_.behaviour();
    const OpCode batch = op_code(OpKind::input, input_step().shape, context);
    batch_ = host_.buffer(batch.forward[0].bytes, kCompute, Category::activations);
    Work w;
    w.kind = batch.forward[1].act == Act::memset ? WorkKind::Memset : WorkKind::Kernel;
    w.bytes = batch.forward[1].bytes;
    w.name = "batch";
    batch_work_ = host_.work(w);
    w = {};
    w.bytes = 4;
    w.name = "fill";
    fill_work_ = host_.work(w);
    w.bytes = 12;
    w.name = "add";
    add_losses_work_ = host_.work(w);
    w.bytes = 8;
    w.name = "div";
    divide_work_ = host_.work(w);
    if (training_.loss.labels)
      labels_ = host_.buffer(batch.forward[0].bytes, kCompute, Category::activations);
  }

  void initialize();
  void step();
  void evaluate();
  void save();
  std::vector<bool> unsharded() const { return fsdp_.unsharded(); }
  std::vector<GradientBucket> buckets(bool first) const { return fsdp_.buckets(first); }

  // Called by the engine.
  struct Grad {
    BufferId buffer;
    GradForm form;
    bool valid() const { return buffer.valid(); }
  };
  using Engine = Autograd<Grad>;
  void execute(uint32_t n, Engine::Grads& in, Engine::Grads& out);
  void accumulate(Grad& into, const Grad& g);
  void routed(uint32_t) {}

 private:
  struct Value {
    BufferId buffer;
    DType type = DType::fp32;
    int64_t numel = 0;
    uint32_t node = Engine::kNone;
    bool grad = false;
    bool kept = false;  // a slice of a tensor that somebody else holds
  };
  // A region shared by the stages that are alike.
  struct Shared {
    const StageClass* cls = nullptr;
    RegionOptions options;
    int64_t cast_numel = 0;  // casts: elements, and the type
    DType cast_to = DType::fp32;
    std::unique_ptr<Region> region;
    bool first_used = false;
    struct Variant {
      GradModes modes;
      GradForm form;
      uint8_t last = 0;  // of the externals
      Region::Backward code;
      bool first_used = false;
    };
    std::vector<Variant> variants;
    std::array<std::unique_ptr<Region::Backward>, 2> discard;  // second: the input is kept
  };
  // Where one stage's buffers are.
  struct Instance {
    int32_t shared = -1;
    uint32_t begin = 0;
    struct Backward {
      uint32_t variant = 0, begin = 0, first_event = 0;
    };
    std::vector<Backward> backward;
  };
  struct StageInstances {
    Instance main, cast_in, cast_out;
    std::unique_ptr<Region> direct;
    std::unique_ptr<ModuleHooks> hooks;
    BufferId sum;                          // of the losses up to this stage's
    std::unique_ptr<StageClass> with_own;  // the class with its own module's enter and exit
  };
  class Hooks;
  struct Node {
    enum class Kind : uint8_t {
      leaf,
      region,
      direct,
      post_backward,
      views,
      sink,    // DDP's, of the root's output
      add,     // of two losses, or of one and 0
      divide,  // of a loss by a number
      split    // the root's output into slices
    } kind = Kind::leaf;
    Region* region_of = nullptr;  // direct, with its hooks
    Hooks* hooks = nullptr;
    Instance* instance = nullptr;
    uint32_t stage = 0;        // region, direct
    uint32_t state = 0;        // post_backward
    GroupId unit;              // views
    uint8_t holds = 0;         // bit e: the stage's external e
    uint32_t first_value = 0;  // of the pass, in values_
    bool rerun = false;        // direct: a reentrant checkpoint
    BufferId input, output;
  };
  struct PreHook {
    uint32_t node = 0;
    uint32_t state = 0;
    bool post_backward = false;
  };
  void views_made(GroupId unit) override;
  void run_pre_hooks(uint32_t n);
  void edges_to_views(uint32_t stage, Engine::Edges& edges) const;
  // What stages share besides the value that runs through them.
  struct SharedValue {
    Value value;
    int holders = 0;  // the root's variable, and graphs
  };
  void publish(uint32_t id, const Value& v);
  void publish_all(uint32_t stage, const Region::Forward& f, uint32_t shift);
  void hold_externals(uint32_t stage, uint8_t held, Node& n, Engine::Edges& edges);
  uint8_t let_go(const Node& n);
  // What one of the forwards before a backward has of its own.
  struct Pass {
    std::vector<StageInstances> stages;
    StageInstances root;
    std::map<uint32_t, StageInstances> ancestors;  // by module, below the root
    BufferId total;                                // of its loss and those before it
    BufferId mean;                                 // of its slices' losses
    BufferId clone;                                // of the root's output
    // Of a stage whose output outlives its forward, by turns with the other.
    std::map<uint32_t, StageInstances> other;
  };

  static ProgramInput input_of(const Training& t) {
    ProgramInput in;
    in.micro_batch = t.micro_batch;
    in.seq_len = t.seq_len;
    in.input = t.input_dtype;
    in.chunks = t.loss_chunks;
    in.float_loss = t.float_logits && t.float_loss;
    in.loss_in_forward = t.loss.in_forward;
    in.loss = t.loss.kind == Loss::Kind::fused          ? ProgramInput::Loss::fused
              : t.loss.kind == Loss::Kind::split_logits ? ProgramInput::Loss::split_logits
              : t.loss.kind == Loss::Kind::checkpointed ? ProgramInput::Loss::checkpointed
                                                        : ProgramInput::Loss::plain;
    in.keep_logits = t.loss.keep_logits == Loss::KeepLogits::as_made;
    in.keep_float_logits = t.loss.keep_logits == Loss::KeepLogits::fp32;
    in.storage = t.precision.storage;
    const bool one_graph = compiles_model(t.compile) && t.strategy == Strategy::none;
    in.compile_model = one_graph;
    in.compile_blocks = compiles_blocks(t.compile) && !one_graph;
    in.compile_norm = compiles_model(t.compile) && !one_graph;
    in.compile_loss = compiles_loss(t.compile);
    return in;
  }
  const Step& input_step() const { return program_.classes[program_.stages[0].cls].steps[0]; }
  ParamId shared(uint32_t p) const {
    return model_.params[p].alias.valid() ? model_.params[p].alias : ParamId{p};
  }
  SharedValue& value(int16_t id) {
    return values_[pass_ * static_cast<size_t>(program_.values) + static_cast<size_t>(id)];
  }
  GroupId group_of(ModuleId m) const {
    for (; m.valid(); m = model_.modules[m.v].parent)
      if (plan_.state_of[m.v] >= 0) return plan_.states[plan_.state_of[m.v]].group;
    return {};
  }
  bool needs_cast(const Value& x) const {
    const Precision& p = training_.precision;
    return p.compute && is_float(x.type) && x.type != *p.compute;
  }
  bool casts(const Value& x) const {
    return training_.precision.cast_forward_inputs && needs_cast(x);
  }
  bool casts_output(const Value& x) const {
    const Precision& p = training_.precision;
    return p.output && is_float(x.type) && x.type != *p.output;
  }

  std::vector<bool> used_params() const;
  Value forward(int64_t passes);
  void clone_output(Value& x);
  void begin_slices(const Stage& stage, const Value& x);
  Value slice(const Stage& stage, const Value& x) const;
  Value add_losses(const Value* total, const Value& loss, BufferId& sum);
  Value divide(const Value& loss, BufferId& quotient, bool of_slices);
  void discard_graph(uint32_t node);
  void compile(const CompiledShape& part);
  void choose_timing(uint32_t index, RegionOptions& o);
  void micro_batch(int step, int64_t k, bool last);
  void enter(ModuleId m, Value& x, StageInstances& at, std::vector<Value>& leaving);
  void exit(ModuleId m, Value& x, StageInstances& at);
  void run_stage(uint32_t index, Value& x);
  void post_backward_behind(Value& x, uint32_t state);
  void enter_wrapper(ModuleId block, Value& x);
  void exit_wrapper(ModuleId block, const Value& x);
  uint32_t wrapper_state(ModuleId block) const {
    return static_cast<uint32_t>(plan_.states.size()) +
           static_cast<uint32_t>(plan_.state_of[block.v]);
  }
  void cast(Value& x, DType to, Instance& at, GroupId group, std::vector<Value>& leaving);
  Value play_forward(Instance& at, const StageClass* cls, const RegionOptions& options,
                     const Value& x, uint32_t stage, GroupId group, int64_t cast_numel,
                     DType cast_to, bool& input_freed);
  int32_t find_shared(const StageClass* cls, const RegionOptions& options, const Value& x,
                      GroupId group, int64_t cast_numel, DType cast_to);
  void drop_input(const Value& x);
  void leave_autocast();
  void refuse_shared_copies() const;
  bool interior_wraps(const Stage& s, bool own) const;
  void choose_checkpoint(ModuleId block, RegionOptions& o) const;
  void deliver(uint32_t stage, const RegionGrad& g, uint32_t shift, uint32_t event_shift);
  GradMode mode_of(GroupId g) const {
    if (!g.valid()) return GradMode::steal;
    GradMode m = grad_mode_[g.v];
    // What there was may have been reduced in this backward already.
    if (m == GradMode::add && !fsdp_.holds_gradients(g))
      m = fsdp_.syncs_gradients_of(g) ? GradMode::steal : GradMode::first;
    return m == GradMode::steal && fsdp_.widens_gradients(g) ? GradMode::first : m;
  }
  GradMode mode_of(ParamId p) const {
    const int32_t g = plan_.group_of_param[p.v];
    return g < 0 ? ignored_mode_ : mode_of(GroupId{static_cast<uint32_t>(g)});
  }
  void choose_grad_modes();
  std::vector<StateTensor> state_tensors(bool optimizer) const;
  uint32_t add_node(const Engine::Edges& edges, const Node& node) {
    nodes_.push_back(node);
    previous_.push_back(edges[0].node);
    return engine_.add(edges);
  }

  const Model& model_;
  const Plan& plan_;
  const Training& training_;
  Host host_;
  const int sms_;
  std::unique_ptr<Runtime> runtime_;
  Runtime& fsdp_;
  Program program_;
  std::unique_ptr<OptimizerStep> optimizer_;
  std::unique_ptr<HostOptimizer> host_optimizer_;  // in its place where parameters are on the host
  std::vector<uint32_t> uses_;                     // by parameter: operators that read it
  std::vector<uint32_t> seen_;                     // by parameter: gradients so far
  std::vector<BufferId> pending_grad_;             // of parameters read more than once
  std::vector<bool> pending_view_;     // that gradient is a view: the next is not added in place
  std::vector<EventId> pending_made_;  // flattens_gradients only
  std::vector<Pass> passes_;
  size_t pass_ = 0;
  std::vector<GroupId> group_of_stage_;
  std::vector<std::unique_ptr<StageClass>> cast_classes_;
  std::vector<Shared> shared_;

  Engine engine_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> previous_;  // by node: the one before it in the chain
  std::vector<PreHook> pre_hooks_;
  std::vector<SharedValue> values_;  // by pass, then number
  std::vector<uint32_t> views_;      // by unit: the node of its views in this forward
  Hooks* inside_ = nullptr;          // of the stage that is being emitted where it stands
  std::vector<ModuleId> open_;       // modules whose forward is running, above the stages
  BufferId batch_, ones_, input_grad_, labels_, quotient_;
  BufferId slices_grad_;  // of their sum, until the last of them has taken it
  BufferId kept_logits_;  // by the model, until the next forward's replace them
  bool other_turn_ = false;
  Value whole_;  // the root's output, of which head and loss take slices
  uint32_t split_ = Engine::kNone;
  std::vector<Grad> slice_grads_;  // but the first that arrived
  BufferId whole_grad_;
  std::vector<BufferId> root_locals_;     // freed when the root's forward returns
  std::vector<BufferId> autocast_cache_;  // freed when autocast's context ends
  BufferId root_input_;  // a cast of the batch, held until the root's forward returns
  bool root_input_unsaved_ = false;
  WorkId batch_work_, fill_work_, add_losses_work_, divide_work_, cat_work_;
  std::vector<ParamPolicy> policies_;  // by parameter
  std::vector<GradMode> grad_mode_;    // by group
  GradMode ignored_mode_ = GradMode::steal;
  std::vector<bool> accumulating_;  // by group
  bool grad_enabled_ = true;
  bool compiled_ = false, compiled_loss_ = false;  // anything, the loss
  std::vector<bool> timed_;                        // by class: its kernels' candidates
  BufferId loss_;
  int steps_ = 0;
};

// Hooks of wrapped modules inside a stage.
class TrainingProgram::Impl::Hooks : public ModuleHooks {
 public:
  Hooks(Impl& program, uint32_t stage, bool own)
      : p_(program), stage_(stage), top_(program.program_.stages[stage].module), own_(own) {}
  bool wrapped(uint32_t m) const override { return p_.plan_.state_of[top_.v + m] >= 0; }
  bool casts_input(DType type) const override {
    Value v;
    v.type = type;
    return p_.casts(v);
  }
  bool casts_output(DType type) const override {
    Value v;
    v.type = type;
    return p_.casts_output(v);
  }
  DType output_type() const override { return *p_.training_.precision.output; }
  void set_grad_enabled(bool enabled) override { p_.fsdp_.set_grad_enabled(enabled); }
  bool casts_after_unshard() const override { return p_.fsdp_.casts_after_unshard(); }
  void root_pre_forward(uint32_t m) override { p_.fsdp_.root_pre_forward(state(m)); }
  bool pre_forward(uint32_t m) override { return p_.fsdp_.pre_forward(state(m)); }
  bool post_forward(uint32_t m, bool output_requires_grad) override {
    const bool hooked = p_.fsdp_.post_forward(state(m), ModuleId{top_.v + m}, output_requires_grad);
    p_.fsdp_.root_forward_returned();
    return hooked;
  }
  void pre_backward(uint32_t m) override { p_.fsdp_.pre_backward(state(m)); }
  void post_backward(uint32_t m) override { p_.fsdp_.post_backward(state(m)); }
  GradMode grad_mode(uint32_t param) const override {
    return p_.mode_of(p_.shared(p_.program_.stages[stage_].first_param + param));
  }
  void set_grad(uint32_t param, BufferId buffer, bool view, EventId made) override {
    p_.deliver(stage_, {param, buffer, view, made}, 0, 0);
  }
  void gradient_added(uint32_t param) override {
    p_.fsdp_.gradient_added(p_.shared(p_.program_.stages[stage_].first_param + param));
  }
  std::vector<GroupId> take_views() override { return std::exchange(made_, {}); }
  GroupId unit_of(uint32_t param) const override {
    const ParamId p = p_.shared(p_.program_.stages[stage_].first_param + param);
    return {static_cast<uint32_t>(p_.plan_.group_of_param[p.v])};
  }
  void flat_gradient(GroupId unit) override { p_.fsdp_.flat_gradient(unit); }
  void defer(uint32_t node) { node_ = node; }
  void output_gradient() override {
    if (node_ != Engine::kNone) p_.run_pre_hooks(node_);
    node_ = Engine::kNone;
  }
  bool post_backward_on_inputs() const override { return p_.fsdp_.flattens_gradients(); }
  bool outer_pre_backward_first() const override { return p_.fsdp_.outer_pre_backward_first(); }
  void take(GroupId unit) { made_.push_back(unit); }
  bool inside(GroupId unit) const override {
    for (ModuleId m : p_.plan_.groups[unit.v].modules)
      if (m.v < top_.v + (own_ ? 0 : 1) || m.v >= p_.model_.modules[top_.v].end) return false;
    return true;
  }

 private:
  uint32_t state(uint32_t m) const { return static_cast<uint32_t>(p_.plan_.state_of[top_.v + m]); }
  Impl& p_;
  uint32_t stage_;
  ModuleId top_;
  bool own_;  // the stage's own module is entered inside it
  std::vector<GroupId> made_;
  uint32_t node_ = Engine::kNone;  // of the stage, whose own hooks are to run
};

// Those behind the last output that is detached.
std::vector<bool> TrainingProgram::Impl::used_params() const {
  std::vector<bool> used(model_.params.size(), false);
  for (auto s = program_.stages.rbegin(); s != program_.stages.rend() && !s->detach; ++s)
    for (const Step& step : program_.classes[s->cls].steps)
      for (int32_t p : step.param)
        if (p >= 0) used[shared(s->first_param + static_cast<uint32_t>(p)).v] = true;
  return used;
}

void TrainingProgram::Impl::views_made(GroupId unit) {
  if (inside_ != nullptr) {
    inside_->take(unit);
    return;
  }
  Node n;
  n.kind = Node::Kind::views;
  n.unit = unit;
  views_[unit.v] = add_node({}, n);
}

// The views that the stage's trainable parameters are, where they were made outside it.
void TrainingProgram::Impl::edges_to_views(uint32_t stage, Engine::Edges& edges) const {
  if (!fsdp_.flattens_gradients()) return;
  int slot = 1 + kExternals;
  std::vector<uint32_t> seen;
  for (const Step& step : program_.classes[program_.stages[stage].cls].steps) {
    if (step.what != Step::What::run) continue;
    for (int32_t q : step.param) {
      if (q < 0) continue;
      const ParamId p = shared(program_.stages[stage].first_param + static_cast<uint32_t>(q));
      const auto unit = static_cast<size_t>(plan_.group_of_param[p.v]);
      if (views_[unit] == Engine::kNone) continue;
      if (std::find(seen.begin(), seen.end(), views_[unit]) != seen.end()) continue;
      SHARDSIM_ASSERT(slot < Engine::kMax, "a stage uses two units made outside it at most");
      edges[static_cast<size_t>(slot++)] = {views_[unit], 0};
      seen.push_back(views_[unit]);
    }
  }
}

void TrainingProgram::Impl::initialize() {
  // The first tensor that a process makes on the device leaves a small segment behind.
  const BufferId first = host_.buffer(4, kCompute, Category::temporary);
  host_.alloc(first);
  host_.free(first);
  fsdp_.initialize();
  if (const Bytes bytes = buffer_bytes(model_.architecture); bytes > 0)
    host_.alloc(host_.buffer(bytes, kCompute, Category::buffers));
  std::vector<OptimizerParam> params;
  for (const Runtime::Sharded& p : fsdp_.sharded())
    params.push_back({p.local, p.group, model_.params[p.id.v].dtype});
  if (fsdp_.offloads())
    host_optimizer_ = std::make_unique<HostOptimizer>(
        host_, training_.optimizer, training_.precision.storage, std::move(params));
  else
    optimizer_ = std::make_unique<OptimizerStep>(host_, training_.optimizer,
                                                 training_.precision.storage, std::move(params));
  host_.mark("after_init", -1, true);
  host_.flush();
}

bool TrainingProgram::Impl::interior_wraps(const Stage& s, bool own) const {
  if (!s.module.valid()) return false;
  for (uint32_t m = s.module.v + (own ? 0 : 1); m < model_.modules[s.module.v].end; ++m)
    if (plan_.state_of[m] >= 0) return true;
  return false;
}

int32_t TrainingProgram::Impl::find_shared(const StageClass* cls, const RegionOptions& options,
                                           const Value& x, GroupId group, int64_t cast_numel,
                                           DType cast_to) {
  for (size_t i = 0; i < shared_.size(); ++i) {
    const Shared& s = shared_[i];
    if (!same(s.options, options)) continue;
    if (cls ? s.cls == cls : s.cast_numel == cast_numel && s.cast_to == cast_to && cast_numel > 0)
      return static_cast<int32_t>(i);
  }
  Shared s;
  s.cls = cls;
  s.options = options;
  s.cast_numel = cast_numel;
  s.cast_to = cast_to;
  const StageClass* code = cls;
  if (!cls) {
    cast_classes_.push_back(std::make_unique<StageClass>(cast_class(cast_numel, cast_to)));
    code = cast_classes_.back().get();
  }
  s.region = std::make_unique<Region>(host_, *code, options, group, nullptr, x.buffer);
  shared_.push_back(std::move(s));
  return static_cast<int32_t>(shared_.size() - 1);
}

TrainingProgram::Impl::Value TrainingProgram::Impl::play_forward(
    Instance& at, const StageClass* cls, const RegionOptions& options, const Value& x,
    uint32_t stage, GroupId group, int64_t cast_numel, DType cast_to, bool& input_freed) {
  const int32_t index = find_shared(cls, options, x, group, cast_numel, cast_to);
  Shared& s = shared_[static_cast<size_t>(index)];
  const Region::Forward& f = s.region->forward();
  if (at.shared != index) {
    at = {};
    at.shared = index;
    at.begin = s.first_used ? host_.repeat_buffers(f.begin, f.end, group) : f.begin;
    s.first_used = true;
  }
  std::array<uint32_t, kRelocs> shift{};
  shift[static_cast<size_t>(Reloc::forward)] = at.begin - f.begin;
  shift[static_cast<size_t>(Reloc::input)] = x.buffer.v - f.input.v;
  host_.play(f.span, shift, group);
  input_freed = f.input_freed;
  for (BufferId b : f.root_locals) root_locals_.push_back({b.v + at.begin - f.begin});
  for (BufferId b : f.cached) autocast_cache_.push_back({b.v + at.begin - f.begin});
  if (!f.published.empty()) {
    publish_all(stage, f, at.begin - f.begin);
    return x;
  }
  Value y;
  y.buffer = {f.output.v + at.begin - f.begin};
  y.type = f.type;
  y.numel = f.numel;
  y.grad = f.requires_grad;
  if (y.grad) {
    Engine::Edges edges;
    if (x.grad) edges[0] = {x.node, 0};
    if (stage != UINT32_MAX) edges_to_views(stage, edges);
    Node n;
    n.kind = Node::Kind::region;
    if (stage != UINT32_MAX) hold_externals(stage, f.holds, n, edges);
    n.instance = &at;
    n.stage = stage;
    n.input = x.buffer;
    n.output = y.buffer;
    y.node = add_node(edges, n);
  }
  return y;
}

void TrainingProgram::Impl::publish(uint32_t id, const Value& v) {
  value(static_cast<int16_t>(id)) = {v, 1};
}

// What a stage makes for others: its buffers are `shift` behind those it was laid out with.
void TrainingProgram::Impl::publish_all(uint32_t stage, const Region::Forward& f, uint32_t shift) {
  const auto first = static_cast<uint32_t>(program_.stages[stage].first_published);
  for (size_t i = 0; i < f.published.size(); ++i) {
    Value v;
    v.buffer = {f.published[i].v + shift};
    v.type = f.published_types[i];
    v.numel = host_.schedule().buffers[v.buffer.v].bytes / bytes_of(v.type);
    publish(first + static_cast<uint32_t>(i), v);
  }
}

// The stage's graph holds these of its externals, and sends gradients to where they were made.
void TrainingProgram::Impl::hold_externals(uint32_t stage, uint8_t held, Node& n,
                                           Engine::Edges& edges) {
  n.holds = 0;
  n.first_value = static_cast<uint32_t>(pass_) * static_cast<uint32_t>(program_.values);
  const Stage& s = program_.stages[stage];
  for (size_t e = 0; e < s.external.size(); ++e) {
    if (s.external[e] < 0) continue;
    SharedValue& v = value(s.external[e]);
    if ((held >> e & 1) != 0) {
      ++v.holders;
      n.holds = static_cast<uint8_t>(n.holds | 1 << e);
    }
    if (v.value.grad) edges[1 + e] = {v.value.node, 0};
  }
}

// Bit e: nobody else holds external e any more.
uint8_t TrainingProgram::Impl::let_go(const Node& n) {
  uint8_t last = 0;
  for (size_t e = 0; e < kExternals; ++e)
    if ((n.holds >> e & 1) != 0 &&
        --values_[n.first_value + static_cast<size_t>(program_.stages[n.stage].external[e])]
                .holders == 0)
      last = static_cast<uint8_t>(last | 1 << e);
  return last;
}

// The caller's variable goes; the batch stays with the training loop, a cast of it with the root.
void TrainingProgram::Impl::drop_input(const Value& x) {
  if (x.buffer == batch_ || x.kept) return;
  if (x.buffer == root_input_) {
    root_input_unsaved_ = true;
    return;
  }
  host_.free(x.buffer);
}

// Autocast's cache would hand the copy of a weight that several stages' products read from one stage
// to the next.
void TrainingProgram::Impl::refuse_shared_copies() const {
  std::vector<bool> cast(model_.params.size(), false);
  for (const Stage& s : program_.stages)
    for (const Step& step : program_.classes[s.cls].steps) {
      if (step.what != Step::What::run || step.param[0] < 0 ||
          autocast_policy(step.op) != AutocastPolicy::lower)
        continue;
      const ParamId p = shared(s.first_param + static_cast<uint32_t>(step.param[0]));
      if (cast[p.v])
        throw Error::at(
            "training.precision.autocast",
            "this build cannot play a weight that several matrix products of one forward read (" +
                model_.param_name(p) + ")",
            "leave out loss.chunks, or set precision.compute: bf16 in place of autocast");
      cast[p.v] = true;
    }
}

void TrainingProgram::Impl::leave_autocast() {
  for (BufferId b : autocast_cache_) host_.free(b);
  autocast_cache_.clear();
}

// What it frees is left in `leaving`: whoever holds that variable lets it go.
void TrainingProgram::Impl::cast(Value& x, DType to, Instance& at, GroupId group,
                                 std::vector<Value>& leaving) {
  RegionOptions o;
  o.input = x.type;
  o.input_grad = x.grad;
  o.input_kept = x.buffer == batch_ || x.kept;
  if (x.kept) o.input_numel = x.numel;
  o.grad_enabled = grad_enabled_;
  o.sms = sms_;
  bool freed = false;
  const Value old = x;
  x = play_forward(at, nullptr, o, x, UINT32_MAX, group, x.numel, to, freed);
  if (freed) leaving.push_back(old);
}

void TrainingProgram::Impl::enter(ModuleId m, Value& x, StageInstances& at,
                                  std::vector<Value>& leaving) {
  const int32_t s = plan_.state_of[m.v];
  if (s < 0) return;
  const auto state = static_cast<uint32_t>(s);
  const bool root = plan_.states[state].root, late = fsdp_.casts_after_unshard();
  fsdp_.root_pre_forward(state);
  const bool cast_now = late ? root && training_.fsdp1.cast_root_forward_inputs && needs_cast(x)
                             : casts(x) && fsdp_.casts_inputs(state);
  if (cast_now) {
    cast(x, *training_.precision.compute, at.cast_in, plan_.states[state].group, leaving);
    if (plan_.states[state].root) root_input_ = x.buffer;
  }
  const bool post_backward = fsdp_.pre_forward(state);
  if (late && casts(x)) {
    cast(x, *training_.precision.compute, at.cast_in, plan_.states[state].group, leaving);
    if (root) root_input_ = x.buffer;
  }
  if (!post_backward || !x.grad) return;
  if (fsdp_.flattens_gradients()) {
    pre_hooks_.push_back({x.node, state, true});
  } else {
    post_backward_behind(x, state);
  }
}

void TrainingProgram::Impl::post_backward_behind(Value& x, uint32_t state) {
  Engine::Edges edges;
  edges[0] = {x.node, 0};
  Node n;
  n.kind = Node::Kind::post_backward;
  n.state = state;
  x.node = add_node(edges, n);
}

// The module that checkpoint_wrapper makes of a block.
void TrainingProgram::Impl::enter_wrapper(ModuleId block, Value& x) {
  if (fsdp_.pre_forward(wrapper_state(block)) && x.grad)
    post_backward_behind(x, wrapper_state(block));
}

void TrainingProgram::Impl::exit_wrapper(ModuleId block, const Value& x) {
  if (fsdp_.post_forward(wrapper_state(block), block, x.grad) && x.grad)
    pre_hooks_.push_back({x.node, wrapper_state(block), false});
}

void TrainingProgram::Impl::exit(ModuleId m, Value& x, StageInstances& at) {
  if (m.v == 0) {
    for (BufferId b : root_locals_) host_.free(b);
    root_locals_.clear();
    for (int16_t i = 1; i < program_.values; ++i)
      if (SharedValue& v = value(i); v.holders > 0 && --v.holders == 0) host_.free(v.value.buffer);
  }
  const int32_t s = plan_.state_of[m.v];
  if (s < 0) return;
  const auto state = static_cast<uint32_t>(s);
  if (fsdp_.post_forward(state, m, x.grad) && x.grad) pre_hooks_.push_back({x.node, state, false});
  for (uint32_t list : fsdp_.completed_list_groups())
    if (x.grad) pre_hooks_.push_back({x.node, list, false});
  if (casts_output(x)) {
    std::vector<Value> leaving;
    cast(x, *training_.precision.output, at.cast_out, plan_.states[state].group, leaving);
    for (const Value& v : leaving) drop_input(v);
  }
  fsdp_.root_forward_returned();
  if (plan_.states[state].root && fsdp_.clones_output()) clone_output(x);
  if (plan_.states[state].root && root_input_.valid()) {
    if (root_input_unsaved_) host_.free(root_input_);
    root_input_ = {};
    root_input_unsaved_ = false;
  }
}

void TrainingProgram::Impl::clone_output(Value& x) {
  BufferId& clone = passes_[pass_].clone;
  const Bytes bytes = x.numel * bytes_of(x.type);
  if (!clone.valid()) clone = host_.buffer(bytes, kCompute, Category::activations);
  host_.alloc(clone);
  Work w;
  w.kind = WorkKind::CopyD2D;
  w.bytes = bytes;
  w.name = "clone_output";
  host_.launch(kCompute, host_.work(w));
  drop_input(x);
  x.buffer = clone;
  x.kept = false;
  if (!x.grad) return;
  Engine::Edges edges;
  edges[0] = {x.node, 0};
  Node n;
  n.kind = Node::Kind::sink;
  x.node = add_node(edges, n);
}

void TrainingProgram::Impl::choose_checkpoint(ModuleId block, RegionOptions& o) const {
  const Checkpointing& c = training_.checkpointing;
  const auto index =
      std::find(model_.blocks.begin(), model_.blocks.end(), block) - model_.blocks.begin();
  switch (c.mode) {
    case Checkpointing::Mode::none: return;
    case Checkpointing::Mode::full: o.recompute = Recompute::full; break;
    case Checkpointing::Mode::selective_op: o.recompute = Recompute::selective_op; break;
    case Checkpointing::Mode::every_k:
      if (index % c.every != 0) return;
      o.recompute = Recompute::full;
      break;
  }
  if (c.reentrant) o.recompute = Recompute::reentrant;
  if (c.part.empty()) return;
  const ModuleId part = model_.child(block, c.part);
  SHARDSIM_ASSERT(part.valid(), "the plan has refused a part that is not there");
  o.part = part.v - block.v;
}

// Before a compiled part's first call.
void TrainingProgram::Impl::compile(const CompiledShape& part) {
  if (!std::exchange(compiled_, true)) {
    first_compilation(host_);
    if (part.what == CompiledShape::What::model) first_model_compilation(host_);
  }
  if (part.what == CompiledShape::What::loss && !std::exchange(compiled_loss_, true))
    first_loss_compilation(host_);
}

// A class's first forward is its first stage's, its first backward that of its last stage.
void TrainingProgram::Impl::choose_timing(uint32_t index, RegionOptions& o) {
  const uint32_t cls = program_.stages[index].cls;
  timed_.resize(program_.classes.size(), false);
  if (!training_.compile_benchmarks || !grad_enabled_ || timed_[cls]) return;
  const auto alike = [&](const Stage& s) { return s.cls == cls; };
  const auto first = std::find_if(program_.stages.begin(), program_.stages.end(), alike);
  o.times_forward = first - program_.stages.begin() == index;
  o.times_backward =
      std::none_of(program_.stages.begin() + index + 1, program_.stages.end(), alike);
  timed_[cls] = o.times_backward;
}

void TrainingProgram::Impl::run_stage(uint32_t index, Value& x) {
  const Stage& stage = program_.stages[index];
  const StageClass& cls = program_.classes[stage.cls];
  if (stage.inside.valid() && cls.steps[0].op == OpKind::cast && x.type == cls.steps[0].shape.to)
    return;
  StageInstances& at =
      stage.keeps && other_turn_ ? passes_[pass_].other[index] : passes_[pass_].stages[index];
  const GroupId group = group_of_stage_[index];
  std::vector<Value> leaving;
  RegionOptions o;
  if (cls.cuttable) choose_checkpoint(stage.module, o);
  if (cls.checkpointed) o.recompute = Recompute::full;
  // The hooks of the stage's own module are called among its steps.
  const bool wrapper = fsdp_.hooks_checkpoints() && cls.cuttable && o.recompute != Recompute::none;
  const bool around =
      (training_.checkpointing.around || wrapper) && o.recompute != Recompute::none && o.part == 0;
  const bool outside = stage.module.valid() && !around && !cls.enters_itself;
  if (wrapper) enter_wrapper(stage.module, x);
  if (outside) enter(stage.module, x, at, leaving);

  o.input = x.type;
  o.param = training_.precision.compute.value_or(training_.precision.storage);
  o.reduce = reduce_dtype(training_);
  if (stage.module.valid() && fsdp_.keeps_gradients_whole()) {
    const Module& m = model_.modules[stage.module.v];
    if (m.end_param > m.first_param) o.param = model_.params[m.first_param].dtype.value_or(o.param);
    o.reduce = o.param;
  }
  o.input_grad = x.grad;
  o.input_kept = x.buffer == batch_ || x.kept;
  if (stage.chunk >= 0 && x.buffer == whole_.buffer) o.input_numel = x.numel;
  o.grad_enabled = grad_enabled_;
  o.autocast = training_.precision.autocast;
  o.autocast_backward = o.autocast && training_.precision.autocast_backward;
  o.sms = sms_;
  o.flat_grads = fsdp_.flattens_gradients();
  o.function_linears = fsdp_.linears_are_functions();
  o.views_stream = fsdp_.views_stream();
  o.stored = training_.precision.storage;
  if (stage.module.valid()) {
    const Module& m = model_.modules[stage.module.v];
    for (uint32_t p = m.first_param; p < m.end_param && p < m.first_param + 64; ++p) {
      const uint64_t bit = uint64_t{1} << (p - m.first_param);
      if (!training_.frozen.empty() && !fsdp_.differentiates({p})) o.frozen |= bit;
      if (policies_[p].ignored) o.ignored |= bit;
      if ((policies_[p].ignored || policies_[p].keeps_dtype) && o.param != o.stored) o.kept |= bit;
    }
  }
  for (size_t e = 0; e < stage.external.size(); ++e)
    if (stage.external[e] >= 0) {
      const Value& v = value(stage.external[e]).value;
      o.externals[e] = {v.buffer, v.type, v.numel * bytes_of(v.type), v.grad};
    }
  if (!cls.published.empty()) o.input_kept = true;
  for (const Step& step : cls.steps)
    if (step.what == Step::What::run && step.param[0] >= 0 &&
        uses_[shared(stage.first_param + static_cast<uint32_t>(step.param[0])).v] > 1)
      o.shared_params = true;
  if (cls.compiled) {
    compile(*cls.compiled);
    choose_timing(index, o);
  }
  const Value in = x;
  bool input_freed = false;
  // Wrapped modules inside, parameters whose gradients meet those of other stages, hooks on gradients:
  // the runtime has its say between the stage's operators, so it is emitted where it stands.
  // Wrapped modules inside, or parameters whose gradients meet those of other stages: the runtime has
  // its say between the stage's operators, so it is emitted where it stands.
  if (interior_wraps(stage, !outside) || o.shared_params || fsdp_.hooks_gradients() ||
      o.times_forward || o.times_backward) {
    at.hooks = std::make_unique<Hooks>(*this, index, !outside);
    if (around && !at.with_own) at.with_own = std::make_unique<StageClass>(with_own(cls));
    inside_ = static_cast<Hooks*>(at.hooks.get());
    at.direct = std::make_unique<Region>(host_, around ? *at.with_own : cls, o, group,
                                         at.hooks.get(), x.buffer);
    inside_ = nullptr;
    const Region::Forward& f = at.direct->forward();
    input_freed = f.input_freed;
    root_locals_.insert(root_locals_.end(), f.root_locals.begin(), f.root_locals.end());
    autocast_cache_.insert(autocast_cache_.end(), f.cached.begin(), f.cached.end());
    if (!f.published.empty()) {
      publish_all(index, f, 0);
    } else {
      Engine::Edges edges;
      if (x.grad) edges[0] = {x.node, 0};
      edges_to_views(index, edges);
      Node n;
      n.kind = Node::Kind::direct;
      n.region_of = at.direct.get();
      n.hooks = static_cast<Hooks*>(at.hooks.get());
      n.stage = index;
      n.rerun = o.recompute == Recompute::reentrant;
      if (f.requires_grad) hold_externals(index, f.holds, n, edges);
      n.input = x.buffer;
      x.buffer = f.output;
      x.kept = false;
      x.type = f.type;
      x.numel = f.numel;
      x.grad = f.requires_grad;
      if (x.grad) x.node = add_node(edges, n);
    }
  } else {
    x = play_forward(at.main, &cls, o, x, index, group, 0, DType::fp32, input_freed);
  }
  if (outside) exit(stage.module, x, at);
  if (stage.keeps) {
    if (kept_logits_.valid()) host_.free(kept_logits_);
    kept_logits_ = x.buffer;
    x.kept = true;
  }
  if (wrapper) exit_wrapper(stage.module, x);
  if (stage.detach && x.grad) {
    discard_graph(x.node);
    x.grad = false;
    x.node = Engine::kNone;
  }
  // The batch of an evaluation is nobody's but the function's that makes the loss.
  if (stage.loss && !grad_enabled_) {
    host_.free(batch_);
    if (labels_.valid()) host_.free(labels_);
  }
  if (input_freed && cls.holds_input)
    root_locals_.push_back(in.buffer);
  else if (input_freed)
    drop_input(in);
  for (const Value& v : leaving) drop_input(v);
}

// A gradient of a parameter that several stages read meets the others before its AccumulateGrad.
void TrainingProgram::Impl::deliver(uint32_t stage, const RegionGrad& g, uint32_t shift,
                                    uint32_t event_shift) {
  const ParamId p = shared(program_.stages[stage].first_param + g.param);
  const BufferId buffer{g.buffer.v + shift};
  if (uses_[p.v] <= 1) {
    fsdp_.set_unsharded_grad(p, buffer, {g.made.v + event_shift});
    return;
  }
  const Buffer b = host_.schedule().buffers[buffer.v];
  Work add;
  add.bytes = 3 * b.bytes;
  add.name = "add";
  if (++seen_[p.v] == 1) {
    pending_grad_[p.v] = buffer;
    pending_view_[p.v] = g.view;
    pending_made_[p.v] = {g.made.v + event_shift};
    return;
  }
  if (fsdp_.flattens_gradients()) {
    pending_grad_[p.v] =
        fsdp_.sum_grads(pending_grad_[p.v], pending_made_[p.v], buffer, {g.made.v + event_shift});
    pending_made_[p.v] = {};
  } else if (!pending_view_[p.v]) {
    host_.launch(kCompute, host_.work(add));
    host_.free(buffer);
  } else {
    const BufferId sum = host_.buffer(b.bytes, kCompute, b.category, b.group);
    host_.alloc(sum);
    host_.launch(kCompute, host_.work(add));
    host_.free(pending_grad_[p.v]);
    host_.free(buffer);
    pending_grad_[p.v] = sum;
    pending_view_[p.v] = false;
  }
  if (seen_[p.v] < uses_[p.v]) return;
  if (mode_of(p) == GradMode::add) {
    host_.launch(kCompute, host_.work(add));
    host_.free(pending_grad_[p.v]);
    fsdp_.gradient_added(p);
  } else {
    fsdp_.set_unsharded_grad(p, pending_grad_[p.v], {});
  }
}

// Slices' gradients wait for each other at the split; those of the batch are added.
void TrainingProgram::Impl::accumulate(Grad& into, const Grad& g) {
  if (whole_.buffer.valid()) {
    slice_grads_.push_back(g);
    return;
  }
  const Buffer& b = host_.schedule().buffers[into.form.expanded ? batch_.v : into.buffer.v];
  Work w;
  w.bytes = 3 * b.bytes;
  w.name = "add";
  Grad sum = into;
  const bool in_place = !into.form.expanded && !into.form.view && !into.form.kept;
  if (!in_place) {
    sum = {host_.buffer(b.bytes, kCompute, Category::gradients), {}};
    host_.alloc(sum.buffer);
  }
  host_.launch(kCompute, host_.work(w));
  if (!in_place && !into.form.kept) host_.free(into.buffer);
  if (!g.form.kept) host_.free(g.buffer);
  into = sum;
}

void TrainingProgram::Impl::run_pre_hooks(uint32_t n) {
  const auto call = [&](const PreHook& h) {
    if (h.node != n) return;
    if (h.post_backward)
      fsdp_.post_backward(h.state);
    else
      fsdp_.pre_backward(h.state);
  };
  if (fsdp_.outer_pre_backward_first())
    std::for_each(pre_hooks_.rbegin(), pre_hooks_.rend(), call);
  else
    std::for_each(pre_hooks_.begin(), pre_hooks_.end(), call);
}

void TrainingProgram::Impl::execute(uint32_t n, Engine::Grads& in, Engine::Grads& out) {
  const Node node = nodes_[n];
  const bool of_stage = node.kind == Node::Kind::direct || node.kind == Node::Kind::region;
  if (of_stage && slices_grad_.valid() && in[0].buffer == slices_grad_ &&
      node.stage != UINT32_MAX && program_.stages[node.stage].chunk == 0) {
    in[0].form.kept = false;  // the last that takes it
    slices_grad_ = {};
  }
  // A stage with wrapped modules inside has their hooks on the same tensor, and they came first. A
  // reentrant checkpoint is one node, whatever it reruns.
  const bool behind = node.kind == Node::Kind::direct && !training_.checkpointing.reentrant &&
                      !fsdp_.outer_pre_backward_first();
  if (behind)
    node.hooks->defer(n);
  else
    run_pre_hooks(n);
  switch (node.kind) {
    case Node::Kind::views: fsdp_.flat_gradient(node.unit); return;
    case Node::Kind::leaf: {
      input_grad_ = in[0].buffer;
      if (in[0].form.expanded) {
        const Buffer& b = host_.schedule().buffers[batch_.v];
        input_grad_ = host_.buffer(b.bytes, kCompute, Category::gradients);
        host_.alloc(input_grad_);
        Work w;
        w.bytes = 2 * b.bytes;
        w.name = "copy";
        host_.launch(kCompute, host_.work(w));
        if (!in[0].form.kept) host_.free(in[0].buffer);
      }
      return;
    }
    case Node::Kind::sink:
      fsdp_.output_gradient();
      out[0] = in[0];
      return;
    case Node::Kind::post_backward:
      fsdp_.post_backward(node.state);
      out[0] = in[0];
      return;
    case Node::Kind::direct: {
      inside_ = node.hooks;
      const Region::Backward b =
          node.region_of->backward({}, in[0].form, in[0].buffer, let_go(node));
      inside_ = nullptr;
      if (node.rerun) fsdp_.wait_for_leaves();
      for (size_t e = 0; e < kExternals; ++e)
        if (b.externals[e].gradient.valid())
          out[1 + e] = {b.externals[e].gradient, b.externals[e].form};
      if (b.has_input_gradient) out[0] = {b.input_gradient, b.input_form};
      return;
    }
    case Node::Kind::add: out[0] = out[1] = in[0]; return;
    case Node::Kind::divide: {
      const BufferId grad = host_.buffer(bytes_of(DType::fp32), kCompute, Category::backward);
      host_.alloc(grad);
      host_.launch(kCompute, divide_work_);
      if (!in[0].form.kept) host_.free(in[0].buffer);
      out[0] = {grad, {}};
      // The slices' losses all take it.
      if (whole_.buffer.valid() && !slices_grad_.valid() && node.input.valid()) {
        out[0].form.kept = true;
        slices_grad_ = grad;
      }
      return;
    }
    case Node::Kind::split: {
      if (!whole_grad_.valid()) {
        Bytes bytes = host_.schedule().buffers[in[0].buffer.v].bytes;
        for (const Grad& g : slice_grads_) bytes += host_.schedule().buffers[g.buffer.v].bytes;
        whole_grad_ = host_.buffer(bytes, kCompute, Category::backward);
        Work w;
        w.kernel = KernelClass::cat;
        w.bytes = 2 * bytes;
        w.name = "cat";
        cat_work_ = host_.work(w);
      }
      host_.alloc(whole_grad_);
      host_.launch(kCompute, cat_work_);
      host_.free(in[0].buffer);
      for (const Grad& g : slice_grads_) host_.free(g.buffer);
      slice_grads_.clear();
      out[0] = {whole_grad_, {}};
      return;
    }
    case Node::Kind::region: break;
  }
  Instance& at = *node.instance;
  Shared& s = shared_[static_cast<size_t>(at.shared)];
  const GroupId group = node.stage == UINT32_MAX ? GroupId{} : group_of_stage_[node.stage];
  const GradModes modes{mode_of(group), ignored_mode_};
  const uint8_t last = node.stage == UINT32_MAX ? uint8_t{0} : let_go(node);
  size_t v = 0;
  while (v < s.variants.size() && !(s.variants[v].modes == modes && s.variants[v].last == last &&
                                    s.variants[v].form == in[0].form))
    ++v;
  if (v == s.variants.size()) {
    Shared::Variant variant;
    variant.modes = modes;
    variant.form = in[0].form;
    variant.last = last;
    variant.code = s.region->backward(modes, in[0].form, in[0].buffer, last);
    s.variants.push_back(std::move(variant));
  }
  Shared::Variant& variant = s.variants[v];
  const Region::Backward& b = variant.code;
  const auto found = std::find_if(at.backward.begin(), at.backward.end(),
                                  [&](const Instance::Backward& x) { return x.variant == v; });
  Instance::Backward where;
  if (found != at.backward.end()) {
    where = *found;
  } else {
    where = {static_cast<uint32_t>(v), b.begin, b.first_event};
    if (variant.first_used) {
      where.begin = host_.repeat_buffers(b.begin, b.end, group);
      where.first_event = host_.repeat_events(b.events);
    }
    variant.first_used = true;
    at.backward.push_back(where);
  }
  const uint32_t begin = where.begin, event_shift = where.first_event - b.first_event;
  const Region::Forward& f = s.region->forward();
  std::array<uint32_t, kRelocs> shift{};
  shift[static_cast<size_t>(Reloc::forward)] = at.begin - f.begin;
  shift[static_cast<size_t>(Reloc::input)] = node.input.v - f.input.v;
  shift[static_cast<size_t>(Reloc::backward)] = begin - b.begin;
  shift[static_cast<size_t>(Reloc::gradient)] = in[0].buffer.v - b.gradient.v;
  host_.play(b.span, shift, group, event_shift);
  if (node.stage != UINT32_MAX)
    for (const RegionGrad& g : b.grads) deliver(node.stage, g, begin - b.begin, event_shift);
  if (b.has_input_gradient)
    out[0] = {b.passes_gradient ? in[0].buffer : BufferId{b.input_gradient.v + begin - b.begin},
              b.input_form};
  for (size_t e = 0; e < kExternals; ++e)
    if (b.externals[e].gradient.valid())
      out[1 + e] = {BufferId{b.externals[e].gradient.v + begin - b.begin}, b.externals[e].form};
}

// The root has returned `x`, which head and loss take slices of. The first slice, whose head runs last
// in backward, keeps it where it is kept for that; slices that are copied do not.
void TrainingProgram::Impl::begin_slices(const Stage& stage, const Value& x) {
  whole_ = x;
  const bool casts_it = stage.module.valid() && plan_.state_of[stage.module.v] >= 0 && casts(x);
  const bool copied = program_.classes[stage.cls].steps[0].op == OpKind::contiguous;
  whole_.kept = !grad_enabled_ || !stage.module.valid() || casts_it || copied ||
                model_.params[stage.first_param].frozen;
  split_ = Engine::kNone;
  if (!x.grad) return;
  Engine::Edges edges;
  edges[0] = {x.node, 0};
  Node n;
  n.kind = Node::Kind::split;
  n.output = x.buffer;
  split_ = add_node(edges, n);
}

TrainingProgram::Impl::Value TrainingProgram::Impl::slice(const Stage& stage,
                                                          const Value& x) const {
  const auto& steps = program_.classes[stage.cls].steps;
  const OpShape& shape = std::find_if(steps.begin(), steps.end(), [](const Step& s) {
                           return s.what == Step::What::run;
                         })->shape;
  Value y = x;
  y.numel = shape.rows * shape.in;
  y.node = split_;
  y.kept = x.kept || stage.chunk > 0;
  return y;
}

// `total` is null for Python's sum, which starts from 0.
TrainingProgram::Impl::Value TrainingProgram::Impl::add_losses(const Value* total,
                                                               const Value& loss, BufferId& sum) {
  if (!sum.valid()) sum = host_.buffer(bytes_of(loss.type), kCompute, Category::activations);
  Value out = loss;
  out.buffer = sum;
  host_.alloc(sum);
  host_.launch(kCompute, add_losses_work_);
  host_.free(loss.buffer);
  if (total) host_.free(total->buffer);
  if (!loss.grad) return out;
  Engine::Edges edges;
  edges[0] = {loss.node, 0};
  if (total) edges[1] = {total->node, 0};
  Node n;
  n.kind = Node::Kind::add;
  out.node = add_node(edges, n);
  return out;
}

// loss / n. What is divided stays with its own variable.
TrainingProgram::Impl::Value TrainingProgram::Impl::divide(const Value& loss, BufferId& quotient,
                                                           bool of_slices) {
  if (!quotient.valid())
    quotient = host_.buffer(bytes_of(loss.type), kCompute, Category::activations);
  Value out = loss;
  out.buffer = quotient;
  host_.alloc(quotient);
  host_.launch(kCompute, divide_work_);
  if (!loss.grad) return out;
  Engine::Edges edges;
  edges[0] = {loss.node, 0};
  Node n;
  n.kind = Node::Kind::divide;
  if (of_slices) n.input = loss.buffer;
  out.node = add_node(edges, n);
  return out;
}

// From making the batch to the loss, or the sum of several passes' losses.
TrainingProgram::Impl::Value TrainingProgram::Impl::forward(int64_t passes) {
  engine_.clear();
  nodes_.clear();
  previous_.clear();
  pre_hooks_.clear();
  seen_.assign(model_.params.size(), 0);
  input_grad_ = {};
  views_.assign(views_.size(), Engine::kNone);
  values_.assign(passes_.size() * static_cast<size_t>(program_.values), {});
  fsdp_.set_grad_enabled(grad_enabled_);

  host_.alloc(batch_);
  host_.launch(kCompute, batch_work_);
  if (labels_.valid()) {
    host_.alloc(labels_);
    host_.launch(kCompute, batch_work_);
  }
  if (grad_enabled_) fsdp_.unshard_before_forward();
  Value batch;
  batch.buffer = batch_;
  const OpShape& shape = input_step().shape;
  batch.type = shape.to;
  batch.numel = shape.rows * shape.in;
  if (model_.architecture.input_grad && grad_enabled_) {
    batch.grad = true;
    batch.node = add_node({}, {});
  }
  Value x;
  // Modules above the stages, but the first of them.
  const auto leave = [&](size_t but) {
    while (open_.size() > but) {
      StageInstances& at =
          open_.back().v == 0 ? passes_[pass_].root : passes_[pass_].ancestors[open_.back().v];
      exit(open_.back(), x, at);
      open_.pop_back();
    }
  };
  const auto ancestors_to = [&](const Stage& s) {
    // Modules above the stage: leave those it is not in, enter the others.
    std::vector<ModuleId> path;
    for (ModuleId a = s.chunk >= 0       ? s.inside
                      : s.module.valid() ? model_.modules[s.module.v].parent
                                         : s.inside;
         a.valid(); a = model_.modules[a.v].parent)
      path.push_back(a);
    std::reverse(path.begin(), path.end());
    size_t common = 0;
    while (common < open_.size() && common < path.size() && open_[common] == path[common]) ++common;
    leave(common);
    for (size_t i = common; i < path.size(); ++i) {
      StageInstances& at =
          path[i].v == 0 ? passes_[pass_].root : passes_[pass_].ancestors[path[i].v];
      std::vector<Value> leaving;
      enter(path[i], x, at, leaving);
      for (const Value& v : leaving) drop_input(v);
      open_.push_back(path[i]);
    }
  };
  Value total;
  for (pass_ = 0; pass_ < static_cast<size_t>(passes); ++pass_) {
    x = batch;
    value(0).value = batch;
    whole_ = {};
    Value loss;  // of the slices so far
    for (uint32_t i = 1; i < program_.stages.size(); ++i) {
      const Stage& stage = program_.stages[i];
      ancestors_to(stage);
      if (stage.slices && stage.chunk == 0) begin_slices(stage, x);
      if (stage.slices) x = slice(stage, whole_);
      if (stage.source >= 0) {
        Value y = value(stage.source).value;
        run_stage(i, y);
        if (stage.becomes >= 0)
          publish(static_cast<uint32_t>(stage.becomes), y);
        else
          x = y;
      } else {
        run_stage(i, x);
        if (stage.becomes >= 0) publish(static_cast<uint32_t>(stage.becomes), x);
      }
      if (stage.adds_loss)
        x = loss = add_losses(stage.chunk > 0 ? &loss : nullptr, x, passes_[pass_].stages[i].sum);
    }
    if (training_.loss.kind == Loss::Kind::split_logits) {
      host_.free(whole_.buffer);
      whole_.kept = false;
    }
    if (training_.loss.kind == Loss::Kind::checkpointed ||
        training_.loss.kind == Loss::Kind::split_logits) {
      const BufferId sum = x.buffer;
      x = divide(x, passes_[pass_].mean, true);
      host_.free(sum);
    }
    leave(0);
    other_turn_ = !other_turn_;
    if (whole_.buffer.valid() && whole_.kept) host_.free(whole_.buffer);
    total = pass_ == 0 ? x : add_losses(&total, x, passes_[pass_].total);
  }
  pass_ = 0;
  loss_ = total.buffer;
  return total;
}

// The graph that ends at this node goes without a backward, from its end to its beginning.
void TrainingProgram::Impl::discard_graph(uint32_t n) {
  for (; n != Engine::kNone; n = previous_[n]) {
    const Node& node = nodes_[n];
    // A cast of the batch stays with the root, whose forward is running.
    const bool keeps_input = node.input == root_input_;
    if (node.kind == Node::Kind::direct) node.region_of->discard(keeps_input);
    if (node.kind != Node::Kind::region) continue;
    if (keeps_input) root_input_unsaved_ = true;
    if (node.stage != UINT32_MAX) let_go(node);
    Shared& s = shared_[static_cast<size_t>(node.instance->shared)];
    std::unique_ptr<Region::Backward>& gone = s.discard[keeps_input ? 1 : 0];
    if (!gone) gone = std::make_unique<Region::Backward>(s.region->discard(keeps_input));
    const Region::Forward& f = s.region->forward();
    std::array<uint32_t, kRelocs> shift{};
    shift[static_cast<size_t>(Reloc::forward)] = node.instance->begin - f.begin;
    shift[static_cast<size_t>(Reloc::input)] = node.input.v - f.input.v;
    host_.play(gone->span, shift,
               node.stage == UINT32_MAX ? GroupId{} : group_of_stage_[node.stage]);
  }
}

// Gradients of unsynchronized micro-batches gather in the reduce type until one synchronizes. A type
// that is no wider than the gradient's is cast to as the gradient arrives in any case.
void TrainingProgram::Impl::choose_grad_modes() {
  const DType reduce = reduce_dtype(training_);
  // Post-backward casts and adds them itself.
  const bool late =
      host_.behaviour().casts_unsynced_late && reduce != compute_dtype(training_.precision);
  const auto narrows = [&](DType t) { return reduce != t && bytes_of(reduce) <= bytes_of(t); };
  for (uint32_t g = 0; g < plan_.groups.size(); ++g) {
    bool narrow = narrows(compute_dtype(training_.precision));
    for (const ShardedParam& q : plan_.groups[g].params)
      narrow = narrow || (q.kept && narrows(training_.precision.storage));
    if (fsdp_.keeps_gradients_whole()) {
      const auto& params = plan_.groups[g].params;
      const bool held = std::any_of(params.begin(), params.end(), [&](const ShardedParam& q) {
        return fsdp_.holds_gradient(q.id);
      });
      grad_mode_[g] = held ? GradMode::add : GradMode::steal;
      continue;
    }
    const bool syncs = fsdp_.syncs_gradients_of({g});
    grad_mode_[g] = fsdp_.flattens_gradients() || late                    ? GradMode::steal
                    : accumulating_[g] || fsdp_.awaits_post_backward({g}) ? GradMode::add
                    : !syncs || narrow                                    ? GradMode::first
                                                                          : GradMode::steal;
    fsdp_.set_gradients_in_reduce_type({g}, grad_mode_[g] != GradMode::steal);
    accumulating_[g] = !syncs;
  }
  ignored_mode_ = fsdp_.ignored_gradients() ? GradMode::add : GradMode::steal;
}

void TrainingProgram::Impl::micro_batch(int step, int64_t k, bool last) {
  fsdp_.begin_micro_batch(last);
  choose_grad_modes();
  const Value loss = forward(training_.forwards);
  if (!training_.precision.autocast_backward) leave_autocast();
  const std::string name = "step" + std::to_string(step) + "." + std::to_string(k) + ".";
  host_.mark(name + "after_forward", step, false);

  if (!loss.grad)
    throw Error::at(
        training_.checkpointing.reentrant ? "training.activation_checkpointing.reentrant"
                                          : "training",
        "the loss requires no gradient",
        "PyTorch's backward raises RuntimeError: element 0 of tensors does not require grad; a "
        "reentrant checkpoint makes no graph where its input requires no gradient");
  fsdp_.scale_loss();
  if (!ones_.valid()) ones_ = host_.buffer(bytes_of(loss.type), kCompute, Category::backward);
  const bool divided = training_.loss.divided && training_.grad_accum > 1;
  const Value root = divided ? divide(loss, quotient_, false) : loss;
  host_.alloc(ones_);
  host_.launch(kCompute, fill_work_);
  Grad g;
  g.buffer = fsdp_.scaled_gradient(ones_);
  g.form.kept = g.buffer == ones_;
  engine_.backward(root.node, g, *this);
  fsdp_.end_of_backward();
  host_.free(ones_);
  if (divided) host_.free(quotient_);
  leave_autocast();
  host_.free(loss.buffer);
  if (input_grad_.valid()) host_.free(input_grad_);
  host_.free(batch_);
  if (labels_.valid()) host_.free(labels_);
  host_.mark(name + "after_backward", step, false);
  if (!fsdp_.steps_itself()) return;
  fsdp_.engine_step();
  host_.mark(name + "after_step", step, last);
}

void TrainingProgram::Impl::step() {
  const int step = steps_++;
  for (int64_t k = 0; k < training_.grad_accum; ++k)
    micro_batch(step, k, k + 1 == training_.grad_accum);
  if (fsdp_.steps_itself()) {
    host_.flush();
    return;
  }
  const std::string name = "step" + std::to_string(step) + ".";
  if (const ManualFinalization f = training_.fsdp2.manual_finalization;
      f != ManualFinalization::no) {
    fsdp_.finalize_backward();
    if (f == ManualFinalization::async) host_.mark(name + "after_finalize", step, false);
    fsdp_.wait_for_gradient_reduction();
    host_.mark(name + "after_finalize_wait", step, false);
  }
  const std::vector<uint32_t> with_grad = [&] {
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < fsdp_.sharded().size(); ++i)
      if (fsdp_.has_grad(i)) out.push_back(i);
    return out;
  }();
  if (training_.clip_grad_norm > 0) {
    fsdp_.clip_grad_norm(with_grad);
    host_.mark(name + "after_clip", step, false);
  }
  const Optimizer& o = training_.optimizer;
  if (o.name != Optimizer::Name::none && !o.in_backward) {
    if (host_optimizer_)
      host_optimizer_->step(fsdp_.optimized(with_grad));
    else
      optimizer_->step(fsdp_.optimized(with_grad));
    fsdp_.optimizer_stepped();
    host_.mark(name + "after_optimizer", step, false);
  }
  if (training_.fsdp2.post_optim_event) fsdp_.set_post_optim_event(host_.record(kCompute));
  if (o.set_to_none)
    fsdp_.drop_grads();
  else if (host_optimizer_)
    host_optimizer_->zero(with_grad);
  else
    optimizer_->zero(with_grad);
  host_.mark(name + "after_zero_grad", step, true);
  host_.flush();
}

void TrainingProgram::Impl::evaluate() {
  grad_enabled_ = false;
  forward(1);
  leave_autocast();
  host_.mark("after_eval", -1, training_.fsdp2.state_dict != SavedState::none);
  host_.free(loss_);
  grad_enabled_ = true;
  host_.flush();
}

// The tensors of a state dict in its order, tied names each.
std::vector<StateTensor> TrainingProgram::Impl::state_tensors(bool optimizer) const {
  const int64_t o = bytes_of(training_.precision.storage);
  const bool on_host = training_.fsdp2.cpu_offload != CpuOffload::none;
  std::vector<StateTensor> out;
  for (uint32_t i = 0; i < model_.params.size(); ++i) {
    const Param& p = model_.params[i];
    if (optimizer && (p.alias.valid() || p.frozen)) continue;
    const int32_t g = plan_.group_of_param[i];
    StateTensor t;
    t.on_host = on_host;
    t.numel_bytes = p.shape.numel() * o;
    if (g >= 0) {
      const Group& group = plan_.groups[static_cast<size_t>(g)];
      const Shape& s = p.shape;
      t.group = {static_cast<uint32_t>(g)};
      t.comm = fsdp_.communicator(t.group);
      t.local = padded_shard(s, policies_[i].dim, group.ranks) * o;
      t.whole = t.local * group.ranks;
      t.other_dim = policies_[i].dim > 0;
    }
    const int copies = optimizer ? state_copies(training_.optimizer) : 1;
    if (optimizer && training_.optimizer.implementation == Optimizer::Implementation::fused) {
      StateTensor counter;  // the step, on the device
      counter.numel_bytes = 4;
      counter.group = t.group;
      counter.on_host = on_host;
      out.push_back(counter);
    }
    for (int c = 0; c < copies; ++c) out.push_back(t);
  }
  return out;
}

void TrainingProgram::Impl::save() {
  if (training_.strategy == Strategy::fsdp1) {
    fsdp_.save();
    host_.flush();
    return;
  }
  const Fsdp2Options& f = training_.fsdp2;
  host_.mark("before_state_dict", -1, false);
  fsdp_.reshard_all();
  if (f.state_dict == SavedState::sharded) {
    host_.mark("after_sharded_state_dict", -1, false);
  } else {
    const bool offload = f.state_dict == SavedState::full_offload;
    full_state_dict(host_, state_tensors(false), offload);
    host_.mark("after_full_state_dict", -1, false);
    if (f.optimizer_state_dict) {
      full_state_dict(host_, state_tensors(true), offload);
      host_.mark("after_full_optimizer_state_dict", -1, false);
    }
  }
  host_.flush();
}

TrainingProgram::TrainingProgram(const Model& model, const Plan& plan, const Scenario& scenario,
                                 Schedule& schedule)
    : impl_(std::make_unique<Impl>(model, plan, scenario, schedule)) {}
TrainingProgram::~TrainingProgram() = default;
void TrainingProgram::initialize() { impl_->initialize(); }
void TrainingProgram::step() { impl_->step(); }
void TrainingProgram::evaluate() { impl_->evaluate(); }
void TrainingProgram::save() { impl_->save(); }
std::vector<GradientBucket> TrainingProgram::buckets(bool first_iteration) const {
  return impl_->buckets(first_iteration);
}
std::vector<bool> TrainingProgram::unsharded() const { return impl_->unsharded(); }

}  // namespace shardsim
