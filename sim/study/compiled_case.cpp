#include "sim/study/case_reader.h"

namespace shardsim {

namespace {

using nlohmann::json;

void read_model(const json& m, Architecture& a) {
  a.naming = Naming::recorder_compiled;
  a.name = a.model_type = "llama";
  a.family = Family::llama;
  read("model.", m,
       {{"hidden", number("model.hidden", a.hidden, 1, kMostHidden)},
        {"ffn", number("model.ffn", a.ffn, 1, kMostFfn)},
        {"layers", number("model.layers", a.layers, 1, kMostBlocks)},
        {"heads", number("model.heads", a.heads, 1, kMostHeads)},
        {"kv_heads", number("model.kv_heads", a.kv_heads, 1, kMostHeads)},
        {"head_dim", number("model.head_dim", a.head_dim, 1, kMostHeads)},
        {"vocab", number("model.vocab", a.vocab, 1, kMostFeatures)},
        {"norm", choice<NormForm>("model.norm", a.norm,
                                  {{"fused", NormForm::fused}, {"hf", NormForm::hf}})},
        {"rope",
         choice<RopeForm>(
             "model.rope", a.rope,
             {{"none", RopeForm::none}, {"complex", RopeForm::complex}, {"hf", RopeForm::hf}})}});
  const auto required = [&](const char* key, bool there) {
    if (!there) skip(std::string("model.") + key, m.value(key, json()));
  };
  required("hidden", a.hidden > 0);
  required("ffn", a.ffn > 0);
  required("layers", a.layers > 0);
  required("vocab", a.vocab > 0);
  required("heads", a.heads > 0 && (a.head_dim > 0 || a.hidden % a.heads == 0));
  required("kv_heads", a.kv_heads > 0 && a.heads % a.kv_heads == 0);
  if (a.head_dim == 0) a.head_dim = a.hidden / a.heads;
}

}  // namespace

void read_compiled_case(const json& c, RecordedProgram& r) {
  Scenario& s = r.scenario;
  Training& t = s.training;
  Fsdp2Options& f = t.fsdp2;
  t.strategy = Strategy::fsdp2;
  t.compile = Compile::blocks;
  t.micro_batch = 1;
  t.seq_len = 128;
  t.mesh.shard = 8;
  using Mode = Checkpointing::Mode;
  const Readers readers{
      {"runner", nothing()},
      {"name", nothing()},
      {"observed", nothing()},
      {"history", nothing()},
      {"keep_calls", nothing()},
      {"keep_allocator", nothing()},
      {"environment", nothing()},
      {"note", nothing()},
      {"strategy", choice<Strategy>("strategy", t.strategy,
                                    {{"none", Strategy::none}, {"fsdp2", Strategy::fsdp2}})},
      {"compile", choice<Compile>("compile", t.compile,
                                  {{"none", Compile::none},
                                   {"per_block", Compile::blocks},
                                   {"wrap_block", Compile::blocks},
                                   {"per_block_and_loss", Compile::blocks_and_loss},
                                   {"model", Compile::model},
                                   {"model_and_loss", Compile::model_and_loss}})},
      {"shard", number("shard", t.mesh.shard, 1, kMostRanks)},
      {"replicate", number("replicate", t.mesh.replicate, 1, kMostRanks)},
      {"storage", [&](const json& v) { t.precision.storage = dtype("storage", v); }},
      {"precision",
       [&](const json& v) {
         read("precision.", v,
              {{"compute", dtype_or_null("precision.compute", t.precision.compute)},
               {"reduce", dtype_or_null("precision.reduce", t.precision.reduce)},
               {"output", dtype_or_null("precision.output", t.precision.output)}});
       }},
      {"model", [&](const json& v) { read_model(v, s.model); }},
      {"wrap_embedding", truth("wrap_embedding", t.wrap.embedding)},
      {"wrap_head", truth("wrap_head", t.wrap.head)},
      {"head_reshard", [&](const json& v) { f.head_reshard = reshard("head_reshard", v); }},
      {"root_reshard", [&](const json& v) { f.root_reshard = reshard("root_reshard", v); }},
      {"reshard_after_forward",
       [&](const json& v) { f.reshard_after_forward = reshard("reshard_after_forward", v); }},
      {"prefetch",
       [&](const json& v) {
         read("prefetch.", v,
              {{"forward", number("prefetch.forward", f.forward_prefetch, 0, kMostBlocks)},
               {"backward", number("prefetch.backward", f.backward_prefetch, 0, kMostBlocks)}});
       }},
      {"activation_checkpointing",
       choice<Mode>(
           "activation_checkpointing", t.checkpointing.mode,
           {{"none", Mode::none}, {"full", Mode::full}, {"selective_op", Mode::selective_op}})},
      {"micro_batch", number("micro_batch", t.micro_batch, 1, kMostMicroBatch)},
      {"seq_len", number("seq_len", t.seq_len, 1, kMostSeqLen)},
      {"grad_accum", number("grad_accum", t.grad_accum, 1, kMostGradAccum)},
      {"steps", number("steps", r.steps, 1, kMostSteps)},
      {"float_logits", truth("float_logits", t.float_logits)},
      {"optimizer",
       [&](const json& v) {
         read("optimizer.", v,
              {{"name", choice<Optimizer::Name>(
                            "optimizer.name", t.optimizer.name,
                            {{"adamw", Optimizer::Name::adamw}, {"none", Optimizer::Name::none}})},
               {"implementation", choice<Optimizer::Implementation>(
                                      "optimizer.implementation", t.optimizer.implementation,
                                      {{"foreach", Optimizer::Implementation::foreach},
                                       {"fused", Optimizer::Implementation::fused}})}});
       }},
      {"benchmarking", truth("benchmarking", t.compile_benchmarks)},
  };
  read("", c, readers);
  if (s.model.rope != RopeForm::none) s.model.rope_positions = t.seq_len;
  if (t.strategy == Strategy::fsdp2) return;
  // What only sharding reads.
  t.mesh = {};
  t.precision.compute = t.precision.reduce = t.precision.output = std::nullopt;
  t.wrap = {};
  t.wrap.policy = WrapPolicy::root_only;
  f = {};
}

}  // namespace shardsim
