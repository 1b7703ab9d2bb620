// One stage of a model's forward and its backward, laid out once and played for every stage that is
// alike: PyTorch's eager execution of the stage's operators, with reference counts deciding when
// each tensor is freed, autograd keeping what backward needs, and checkpointing recomputing it.
//
// A region's buffers are template buffers; another instance plays the same span with its buffers
// shifted (Segment::shift): what the forward made, what the backward made, the stage's input, and
// the gradient that arrives at its output are shifted separately.
// Worked example: a Llama-3-8B block is 62 instructions forward and 118 backward, laid out once and
// played 32 times a pass.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sim/model/program.h"
#include "sim/plan/scenario.h"
#include "sim/schedule/host.h"
#include "sim/schedule/streams.h"

namespace shardsim {

enum class Recompute : uint8_t {
  none,
  full,
  selective_op,
  reentrant,  // the forward makes no graph; in backward it runs again and makes one of its own
};

// How a parameter's gradient is kept.
enum class GradMode : uint8_t {
  steal,  // .grad becomes the tensor that backward made
  first,  // the first unsynchronized micro-batch: cast to the reduce type as it arrives
  add,    // later ones: added in place into that
};

// Of the parameters that are sharded, and of ignored ones.
struct GradModes {
  GradMode sharded = GradMode::steal, ignored = GradMode::steal;
  friend bool operator==(const GradModes&, const GradModes&) = default;
};

// A value that several stages read: slots 1 and on of their classes.
struct External {
  BufferId buffer;  // the same for every instance
  DType type = DType::fp32;
  Bytes bytes = 0;
  bool grad = false;
  friend bool operator==(const External&, const External&) = default;
};
inline constexpr int kExternals = 2;

struct RegionOptions {
  DType input = DType::fp32;
  DType param = DType::fp32;   // the parameters as the forward sees them
  DType reduce = DType::fp32;  // of accumulated gradients (GradMode first and add)
  bool grad_enabled = true;
  int64_t input_numel = 0;     // of an input that is a slice of its buffer; 0: all of it
  bool input_grad = false;     // the input requires a gradient
  bool input_kept = false;     // somebody else holds the input throughout
  bool shared_params = false;  // other stages read its parameters: no gradient is accumulated here
  StreamId views_stream = kCompute;  // flat_grads: of the views' backward
  bool flat_grads = false;  // gradients go into a flat one: handed over as they are, with an event
  Recompute recompute = Recompute::none;
  bool function_linears = false;  // Runtime::linears_are_functions
  uint32_t part = 0;     // the checkpoint goes around this module of the stage; 0: around it all
  uint64_t frozen = 0;   // bit p: parameter p of the stage requires no gradient
  uint64_t kept = 0;     // bit p: it is in the type it is stored in, not in `param`
  uint64_t ignored = 0;  // bit p: nothing shards it, and its gradient stays in its type
  DType stored = DType::fp32;
  std::optional<DType> autocast;   // the forward runs under torch.autocast to this type
  bool autocast_backward = false;  // so does the backward
  // A compiled part's first call: candidates are timed. Laid out for that alone.
  bool times_forward = false, times_backward = false;
  std::array<External, kExternals> externals{};
  int sms = 132;
};

// What happens at a module inside the stage that the runtime has wrapped. Implemented by the
// runtime; a stage with such modules is emitted where it stands and not shared.
class ModuleHooks {
 public:
  virtual ~ModuleHooks() = default;
  virtual bool wrapped(uint32_t module) const = 0;  // relative to the stage's module
  virtual bool casts_input(DType type) const = 0;
  virtual bool casts_output(DType type) const = 0;
  virtual DType output_type() const = 0;
  virtual void set_grad_enabled(bool enabled) = 0;
  virtual bool casts_after_unshard() const = 0;
  // Before the inputs are cast.
  virtual void root_pre_forward(uint32_t module) = 0;
  // True if the inputs that require a gradient get a post-backward node. Called again where a
  // checkpoint reruns the module; its post_forward too, unless the rerun stops inside the module.
  virtual bool pre_forward(uint32_t module) = 0;
  // True if the output's gradient is to call pre_backward.
  virtual bool post_forward(uint32_t module, bool output_requires_grad) = 0;
  virtual void pre_backward(uint32_t module) = 0;
  virtual void post_backward(uint32_t module) = 0;
  // How a parameter's gradient is kept.
  virtual GradMode grad_mode(uint32_t param) const = 0;
  // A parameter's gradient (relative to the stage's first parameter) is in this buffer; flat_grads:
  // `made` was recorded behind its node.
  virtual void set_grad(uint32_t param, BufferId buffer, bool view, EventId made) = 0;
  // One has been added in place to the gradient that the parameter had.
  virtual void gradient_added(uint32_t param) = 0;
  // Flat parameters: those whose views pre_forward has made, once; whether a unit's modules are
  // inside the stage (one of another stage may be prefetched here); that of a parameter; and the
  // backward of the views, nothing where no gradient came.
  virtual std::vector<GroupId> take_views() = 0;
  virtual bool inside(GroupId unit) const = 0;
  virtual GroupId unit_of(uint32_t param) const = 0;
  virtual void flat_gradient(GroupId unit) = 0;
  // The output's gradient is there: what modules around the stage have put on it, behind those inside.
  virtual void output_gradient() = 0;
  // Runtime::outer_pre_backward_first.
  virtual bool outer_pre_backward_first() const = 0;
  // Whether pre_forward's post_backward belongs to the inputs' gradients themselves, not to a node.
  virtual bool post_backward_on_inputs() const = 0;
};

// The form of the gradient that arrives at a region's output.
struct GradForm {
  bool expanded = false;  // one element standing for all
  bool view = false;      // never a target for adding in place
  bool kept = false;      // somebody else holds it throughout
  friend bool operator==(const GradForm&, const GradForm&) = default;
};

// A parameter's gradient after a region's backward.
struct RegionGrad {
  uint32_t param = 0;  // relative to the stage's first parameter
  BufferId buffer;     // template id, made in the backward
  bool view = false;   // never a target for adding in place
  EventId made;        // flat_grads: template id, recorded in the backward
};

class RegionTape;
class CompiledTape;

class Region {
 public:
  // Lays the forward out. `hooks` is null for a region that is shared; `stage` must outlive it.
  // `input` is the buffer that the (first instance's) input is in.
  Region(Host& host, const StageClass& stage, const RegionOptions& options, GroupId group,
         ModuleHooks* hooks = nullptr, BufferId input = {});
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  struct Forward {
    Span span;
    uint32_t begin = 0, end = 0;  // template buffers
    BufferId input;               // template id under Reloc::input
    BufferId output;              // template id, in [begin, end)
    DType type = DType::fp32;     // of the output
    int64_t numel = 0;
    bool requires_grad = false;
    bool input_freed = false;  // nothing holds the input once the caller's variable is gone
    // Variables of the root's forward that nothing else holds: they go when it returns.
    std::vector<BufferId> root_locals;
    // Copies of parameters that only autocast's cache holds: they go when its context ends.
    std::vector<BufferId> cached;
    std::vector<BufferId> published;  // of the class's published slots, held by the root's forward
    std::vector<DType> published_types;
    uint8_t holds = 0;  // bit e: the graph holds external e
  };
  const Forward& forward() const { return forward_; }

  struct Backward {
    Span span;
    uint32_t begin = 0, end = 0;           // template buffers
    uint32_t events = 0, first_event = 0;  // template events
    BufferId gradient;                     // template id under Reloc::gradient
    std::vector<RegionGrad> grads;         // in the order they were accumulated; none with hooks
    BufferId input_gradient;               // template id, unless it is the incoming one
    bool passes_gradient = false;  // the input's gradient is in the incoming gradient's buffer
    GradForm input_form;
    bool has_input_gradient = false;
    struct ExternalGrad {
      BufferId gradient;  // template id; none: it has no gradient
      GradForm form;
    };
    std::array<ExternalGrad, kExternals> externals;
  };
  // Lays out what happens when the graph goes without a backward: what was saved is freed.
  Backward discard(bool keep_input);
  // Lays the backward out for a gradient of this form, in this buffer (the first instance's). With
  // hooks it is played where it stands, and they say each parameter's mode. `last`: bit e: the graph is
  // the last to hold external e.
  Backward backward(const GradModes& modes, const GradForm& form, BufferId gradient,
                    uint8_t last = 0);

 private:
  Host& host_;
  const StageClass* stage_;
  RegionOptions options_;
  GroupId group_;
  ModuleHooks* hooks_;  // none: shared
  void run_backward(const GradModes& modes, const GradForm& form, BufferId gradient, uint8_t last,
                    Backward& result);

  std::unique_ptr<RegionTape> tape_;        // as the forward left it
  std::unique_ptr<CompiledTape> compiled_;  // in its place
  Forward forward_;
};

}  // namespace shardsim
