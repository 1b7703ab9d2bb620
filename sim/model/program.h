// The forward pass of a model as a list of stages, each a short program of operators on slots:
// what Python's forward does, with the points where local variables go out of scope, since those
// decide when memory is freed. Stages that are alike (the blocks of a transformer) share one class.
// Worked example, Llama-3-8B: input, embedding, 32 times the block's class (14 operators), norm,
// head, loss: 37 stages of 6 classes.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/compiled.h"
#include "sim/model/model.h"
#include "sim/model/operators.h"

namespace shardsim {

struct Step {
  enum class What : uint8_t {
    enter,  // a module's forward begins; in[0] is its input, rebound if the module casts it
    exit,   // it ends; out is its output, rebound if the module casts it
    run,    // an operator
    drop,   // the local variable `out` goes out of scope
  } what = What::run;
  OpKind op = OpKind::add;
  uint32_t module = 0;                    // enter, exit: relative to the stage's module
  std::array<int16_t, 3> in{-1, -1, -1};  // slots
  std::array<int16_t, 3> out{-1, -1, -1};
  std::array<int32_t, 2> param{-1, -1};  // relative to the stage's first parameter
  OpShape shape;
};

// Slot 0 is the stage's input. The stage's own module is entered and left by whoever runs the
// stage; steps hold enter and exit of modules below it only.
struct StageClass {
  std::vector<Step> steps;
  int16_t externals = 0;  // slots 1 to here are values that stages share
  int16_t slots = 1;
  int16_t output = 0;
  bool cuttable = false;  // a checkpoint may wrap it
  // Its steps hold enter and exit of the stage's own module too (module 0).
  bool enters_itself = false;
  bool checkpointed = false;              // whatever the blocks are
  std::vector<int16_t> unnamed;           // values of expressions: no variable holds them
  bool holds_input = false;               // the input is a variable of the root's forward
  std::vector<int16_t> published;         // constants that become values for other stages
  std::vector<int16_t> root_locals;       // variables that go when the root's forward returns
  std::optional<CompiledShape> compiled;  // Inductor's graph runs in place of the steps
};

struct Stage {
  uint32_t cls = 0;
  ModuleId module;           // whose forward this is; none for input and loss
  uint32_t first_param = 0;  // that its steps' parameters count from
  bool loss = false;         // after the root's forward has returned
  bool detach = false;       // its output is detached from the graph
  int32_t chunk = -1;        // head and loss of this slice
  bool slices = false;       // it takes that slice of what the stages before the slices made
  bool adds_loss = false;    // its output is added to the losses of the slices before
  bool keeps = false;        // the model keeps its output until the next forward's replaces it
  // Values besides the one that runs through the stages: what this stage takes in its place (0 is the
  // batch), what its output becomes, its externals, and the first that its published slots become.
  int16_t source = -1, becomes = -1, first_published = -1;
  std::array<int16_t, 2> external{-1, -1};
  ModuleId inside;  // without a module of its own: whose forward runs it, if any
};

// What of a training run the forward depends on.
struct ProgramInput {
  int64_t micro_batch = 1;
  int64_t seq_len = 0;
  DType input = DType::fp32;  // stack and bag: type of the batch
  int64_t chunks = 1;         // slices of the sequence that head and loss run on, one after another
  bool float_loss = true;     // the loss is computed in fp32: logits.float(), y.float()
  // The model's forward takes the labels and returns the loss, computed in this way.
  bool loss_in_forward = false;
  enum class Loss : uint8_t { plain, checkpointed, fused, split_logits } loss = Loss::plain;
  bool keep_logits = false, keep_float_logits = false;
  DType storage = DType::fp32;  // of parameters without a type of their own
  bool compile_blocks = false, compile_norm = false, compile_loss = false, compile_model = false;
};

struct Program {
  std::vector<StageClass> classes;
  std::vector<Stage> stages;    // stages[0] makes the batch, the last is the loss
  int64_t tokens = 0;           // rows of one micro-batch
  bool input_is_float = false;  // the root may cast it
  int64_t input_features = 0;
  int16_t values = 1;  // the batch, and what stages share
};

Program build_program(const Model& model, const ProgramInput& input);

// FLOPs of one token in forward and backward, 6 (N - V h) + 12 L n d s: torchtitan's formula since
// 2024-04-26 (embedding not counted, attention not halved for the causal mask; data/README 3). Of a
// mixture of experts N counts those that a token runs through; a token of T5 is one of the source and
// one of the target, with three attentions, 36 L n d s.
// Worked number: Llama-3-8B at s 8192 is 57.91e9.
int64_t model_flops_per_token(const Model& model, int64_t seq_len);

}  // namespace shardsim
