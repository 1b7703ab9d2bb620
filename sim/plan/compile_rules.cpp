#include "sim/plan/compile_rules.h"

#include <string>

#include "sim/base/error.h"

namespace shardsim {

namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error::at("training.compile", what, hint);
}

void check_model(const Architecture& a) {
  const std::string other = "leave compile out";
  if (a.family != Family::llama)
    refuse("this build has no compiled graph of a " + a.model_type + " block",
           "it compiles Llama's block and its relatives; " + other);
  if (a.experts > 0) refuse("this build has no compiled graph of a mixture of experts", other);
  if (a.gelu) refuse("this build has no compiled graph of GeGLU", other);
  if (a.qkv_bias || a.o_bias || a.mlp_bias)
    refuse("this build has no compiled graph of a block whose linears have a bias", other);
  if (a.qk_norm) refuse("this build has no compiled graph of norms on q and k", other);
  if (a.attention == AttentionForm::eager || a.sdpa == Sdpa::math)
    refuse("this build has no compiled graph of attention written out",
           "use scaled_dot_product_attention's flash or efficient kernel, or " + other);
  if (a.repeat_kv && a.kv_heads != a.heads)
    refuse("this build has no compiled graph of repeated keys and values",
           "set model.repeat_kv: false (enable_gqa), or " + other);
}

}  // namespace

void check_compile(const Model& model, const Plan& plan, const Training& t) {
  if (!compiles_blocks(t.compile)) return;
  check_model(model.architecture);
  if (t.precision.autocast)
    refuse("this build has no compiled graph under autocast",
           "set precision.compute: bf16 in place of autocast, or leave compile out");
  const Checkpointing& c = t.checkpointing;
  if (c.reentrant)
    refuse(
        "a reentrant checkpoint breaks the graph",
        "PyTorch raises torch._dynamo.exc.Unsupported under fullgraph=True; leave reentrant out");
  if (!c.part.empty())
    refuse("this build compiles checkpoints around whole blocks only",
           "leave out activation_checkpointing.part");
  if (c.around && c.mode != Checkpointing::Mode::none && t.strategy != Strategy::none)
    refuse("the hooks of a wrapped block inside its checkpoint break the graph",
           "leave out activation_checkpointing.around");
  for (ModuleId block : model.blocks)
    for (uint32_t m = block.v + 1; m < model.modules[block.v].end; ++m)
      if (plan.state_of[m] >= 0)
        refuse("the hooks of the wrapped module '" + model.module_name({m}) +
                   "' are inside the compiled block '" + model.module_name(block) + "'",
               "PyTorch raises torch._dynamo.exc.Unsupported under fullgraph=True; use wrap: "
               "{policy: per_block} or another that leaves blocks whole");
  if (!t.precision.keep.empty() || !t.fsdp2.ignored_params.empty())
    refuse("this build compiles parts whose weights all have one type",
           "leave out precision.keep and fsdp2.ignored_params");
  if (compiles_model(t.compile) && t.strategy != Strategy::none && t.strategy != Strategy::fsdp2)
    refuse("this build compiles a whole model with strategy none and fsdp2 only",
           "use compile: blocks or blocks_and_loss");
  if (compiles_model(t.compile) && t.strategy == Strategy::none) {
    const char* const blocks = "use compile: blocks_and_loss";
    if (c.mode != Checkpointing::Mode::none)
      refuse("this build has no graph of a whole model with checkpoints", blocks);
    if (model.architecture.rope == RopeForm::complex)
      refuse("this build has no graph of a whole model with complex RoPE",
             "set model.rope: hf or none, or use compile: blocks_and_loss");
    if (model.architecture.tied || !t.frozen.empty())
      refuse("this build has no graph of a whole model with tied or frozen parameters", blocks);
    if (t.loss.in_forward || t.loss_chunks > 1)
      refuse("this build has no graph of a whole model with its loss inside or in chunks", blocks);
  }
  if (compiles_loss(t.compile) && (t.loss.in_forward || t.loss_chunks > 1))
    refuse("this build compiles a loss outside the model, of all logits at once",
           "leave out loss.in_forward and loss.chunks, or use compile: blocks");
}

}  // namespace shardsim
