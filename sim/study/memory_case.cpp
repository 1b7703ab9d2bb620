#include "sim/base/error.h"
#include "sim/study/case_reader.h"

namespace shardsim {

namespace {

using nlohmann::json;

Reader probability(const char* key, double& to) {
  return [key, &to](const json& v) {
    if (!v.is_number() || v < 0 || v >= 1) skip(key, v);
    to = v.get<double>();
  };
}

void add_llama(Readers& readers, Architecture& a) {
  readers["ffn"] = number("model.ffn", a.ffn, 1, kMostFfn);
  readers["kv_heads"] = number("model.kv_heads", a.kv_heads, 1, kMostHeads);
  readers["head_dim"] = number("model.head_dim", a.head_dim, 1, kMostHeads);
  readers["attention_bias"] = truth("model.attention_bias", a.qkv_bias);
  readers["norm"] =
      choice<NormForm>("model.norm", a.norm, {{"fused", NormForm::fused}, {"hf", NormForm::hf}});
  readers["rope"] = choice<RopeForm>(
      "model.rope", a.rope,
      {{"none", RopeForm::none}, {"complex", RopeForm::complex}, {"hf", RopeForm::hf}});
  readers["repeat_kv"] = truth("model.repeat_kv", a.repeat_kv);
  readers["experts"] = number("model.experts", a.experts, 0, kMostParameters);
  readers["topk"] = number("model.topk", a.topk, 1, kMostParameters);
}

void add_t5(Readers& readers, Architecture& a) {
  readers["ffn"] = number("model.ffn", a.ffn, 1, kMostFfn);
  readers["head_dim"] = number("model.head_dim", a.head_dim, 1, kMostHeads);
  readers["dropout"] = probability("model.dropout", a.dropout);
}

void add_gpt2(Readers& readers, Architecture& a) {
  readers["positions"] = number("model.positions", a.max_positions, 1, kMostFeatures);
  readers["ffn"] = number("model.ffn", a.ffn, 1, kMostFfn);
  readers["dropout"] = probability("model.dropout", a.dropout);
  readers["bias"] = [&a](const json& v) { a.no_bias = !flag("model.bias", v); };
  readers["gelu"] = [](const json& v) {
    if (v != "none" && v != "tanh") skip("model.gelu", v);
  };
}

void read_model(const json& m, Scenario& s) {
  if (!m.is_object()) skip("model", m);
  Architecture& a = s.model;
  a.naming = Naming::recorder_memory;
  a.name = a.model_type = word("kind", m, "llama");
  choice<Family>(
      "model.kind", a.family,
      {{"llama", Family::llama}, {"gpt2", Family::gpt2}, {"t5", Family::t5}})(json(a.name));
  const bool llama = a.family == Family::llama, t5 = a.family == Family::t5;
  a.tied = !llama;
  Readers readers{{"kind", nothing()},
                  {"hidden", number("model.hidden", a.hidden, 1, kMostHidden)},
                  {"layers", number("model.layers", a.layers, 1, kMostBlocks)},
                  {"heads", number("model.heads", a.heads, 1, kMostHeads)},
                  {"vocab", number("model.vocab", a.vocab, 1, kMostFeatures)},
                  {"attention", choice<AttentionForm>("model.attention", a.attention,
                                                      {{"sdpa", AttentionForm::sdpa},
                                                       {"eager", AttentionForm::eager}})},
                  {"tied", truth("model.tied", a.tied)}};
  if (llama)
    add_llama(readers, a);
  else if (t5)
    add_t5(readers, a);
  else
    add_gpt2(readers, a);
  read("model.", m, readers);

  const auto required = [&](const char* key, bool there) {
    if (!there) skip(std::string("model.") + key, m.value(key, json()));
  };
  required("hidden", a.hidden > 0);
  required("layers", a.layers > 0);
  required("vocab", a.vocab > 0);
  required("heads", a.heads > 0 && (a.head_dim > 0 || a.hidden % a.heads == 0));
  if (a.head_dim == 0) a.head_dim = t5 ? 64 : a.hidden / a.heads;
  if (a.kv_heads == 0) a.kv_heads = a.heads;
  if (t5) {
    required("ffn", a.ffn > 0);
    return;
  }
  if (!llama) {
    required("positions", a.max_positions > 0);
    if (a.ffn == 0) a.ffn = 4 * a.hidden;
    return;
  }
  required("ffn", a.ffn > 0);
  required("kv_heads", a.heads % a.kv_heads == 0);
}

void read_optimizer(const json& v, Optimizer& o) {
  using Name = Optimizer::Name;
  using Implementation = Optimizer::Implementation;
  read("optimizer.", v,
       {{"name", choice<Name>("optimizer.name", o.name,
                              {{"adamw", Name::adamw},
                               {"adam", Name::adam},
                               {"sgd", Name::sgd},
                               {"none", Name::none}})},
        {"implementation", choice<Implementation>("optimizer.implementation", o.implementation,
                                                  {{"default", Implementation::foreach},
                                                   {"foreach", Implementation::foreach},
                                                   {"fused", Implementation::fused},
                                                   {"forloop", Implementation::forloop}})},
        {"amsgrad", truth("optimizer.amsgrad", o.amsgrad)},
        {"momentum",
         [&](const json& x) {
           if (!x.is_number() || x < 0) skip("optimizer.momentum", x);
           o.momentum = x > 0;
         }},
        {"weight_decay", [&](const json& x) {
           if (!x.is_number() || x < 0) skip("optimizer.weight_decay", x);
           o.weight_decay = x.get<double>();
         }}});
  // What the runner does not hand to this optimizer.
  const bool adam = o.name == Name::adam;
  if (!adam && o.name != Name::sgd) o.weight_decay = 0;
  if (o.name != Name::sgd) o.momentum = false;
  if (!adam && o.name != Name::adamw) o.amsgrad = false;
}

}  // namespace

void read_memory_case(const json& c, RecordedProgram& r) {
  Scenario& s = r.scenario;
  Training& t = s.training;
  Fsdp2Options& f = t.fsdp2;
  choice<Strategy>("strategy", t.strategy, {{"none", Strategy::none}, {"fsdp2", Strategy::fsdp2}})(
      c.value("strategy", json()));
  const bool alone = t.strategy == Strategy::none;
  t.micro_batch = 1;
  t.seq_len = 128;
  t.mesh.shard = 8;
  t.loss.in_forward = true;
  t.loss.divided = true;
  r.most_shapes = 60;
  using Mode = Checkpointing::Mode;
  const bool per_block = [&] {
    const std::string wrap = word("wrap", c, "per_block");
    return wrap == "per_block" || wrap == "torchtitan";
  }();
  t.wrap.policy = per_block && !alone ? WrapPolicy::per_block : WrapPolicy::root_only;
  const Readers readers{
      {"strategy", nothing()},
      {"name", nothing()},
      {"runner", nothing()},
      {"observed", nothing()},
      {"attribute", nothing()},
      {"history", nothing()},
      {"keep_calls", nothing()},
      {"keep_allocator", nothing()},
      {"environment", nothing()},
      {"note", nothing()},
      {"preserve_rng", nothing()},  // on the host
      {"wrap", nothing()},
      {"shard", number("shard", t.mesh.shard, 1, kMostRanks)},
      {"replicate", number("replicate", t.mesh.replicate, 1, kMostRanks)},
      {"model", [&](const json& v) { read_model(v, s); }},
      {"steps", number("steps", r.steps, 1, kMostSteps)},
      {"micro_batch", number("micro_batch", t.micro_batch, 1, kMostMicroBatch)},
      {"seq_len", number("seq_len", t.seq_len, 1, kMostSeqLen)},
      {"grad_accum", number("grad_accum", t.grad_accum, 1, kMostGradAccum)},
      {"storage", [&](const json& v) { t.precision.storage = dtype("storage", v); }},
      {"precision",
       [&](const json& v) {
         read("precision.", v,
              {{"compute", dtype_or_null("precision.compute", t.precision.compute)},
               {"reduce", dtype_or_null("precision.reduce", t.precision.reduce)}});
       }},
      {"wrap_embedding", truth("wrap_embedding", t.wrap.embedding)},
      {"wrap_head", truth("wrap_head", t.wrap.head)},
      {"head_reshard", [&](const json& v) { f.head_reshard = reshard("head_reshard", v); }},
      {"reshard_after_forward",
       [&](const json& v) { f.reshard_after_forward = reshard("reshard_after_forward", v); }},
      {"last_block_keeps", nothing()},
      {"no_sync",
       [&](const json& v) {
         f.requires_gradient_sync = flag("no_sync", v) ? Micro::last : Micro::each;
       }},
      {"offload",
       [&](const json& v) {
         if (flag("offload", v)) f.cpu_offload = CpuOffload::pinned;
       }},
      {"autocast",
       [&](const json& v) {
         if (flag("autocast", v)) t.precision.autocast = DType::bf16;
       }},
      {"activation_checkpointing",
       [&](const json& v) {
         choice<Mode>("activation_checkpointing", t.checkpointing.mode,
                      {{"none", Mode::none},
                       {"full", Mode::full},
                       {"every_2", Mode::every_k},
                       {"selective_op", Mode::selective_op}})(v);
         t.checkpointing.every = 2;
       }},
      {"sdpa",
       [&](const json& v) {
         if (unset(v)) return;
         choice<Sdpa>(
             "sdpa", s.model.sdpa,
             {{"flash", Sdpa::flash}, {"efficient", Sdpa::efficient}, {"math", Sdpa::math}})(v);
       }},
      {"float_logits", truth("float_logits", t.float_logits)},
      {"labels", truth("labels", t.loss.labels)},
      {"hf_loss", nothing()},  // alone, without keep_logits, it changes nothing
      {"keep_logits",
       [&](const json& v) {
         if (v == "fp32")
           t.loss.keep_logits = Loss::KeepLogits::fp32;
         else if (flag("keep_logits", v) && c.contains("hf_loss") && flag("hf_loss", c["hf_loss"]))
           t.loss.keep_logits = Loss::KeepLogits::as_made;
       }},
      {"loss", choice<Loss::Kind>("loss", t.loss.kind,
                                  {{"plain", Loss::Kind::plain},
                                   {"chunked", Loss::Kind::checkpointed},
                                   {"fused", Loss::Kind::fused},
                                   {"chunked_logits", Loss::Kind::split_logits}})},
      {"loss_chunks", number("loss_chunks", t.loss_chunks, 1, 4096)},
      {"clip_foreach",
       [&](const json& v) {
         if (v == false) skip("clip_foreach", v);
       }},
      {"optimizer", [&](const json& v) { read_optimizer(v, t.optimizer); }},
      {"set_to_none", truth("set_to_none", t.optimizer.set_to_none)},
      {"clip_grad", [&](const json& v) { t.clip_grad_norm = flag("clip_grad", v) ? 1.0 : 0.0; }},
  };
  read("", c, readers);
  if (s.model.rope != RopeForm::none) s.model.rope_positions = t.seq_len;
  if (t.loss.kind == Loss::Kind::plain)
    t.loss_chunks = 1;
  else if (!c.contains("loss_chunks"))
    t.loss_chunks = 8;
  if (t.loss.kind != Loss::Kind::plain) t.loss.keep_logits = Loss::KeepLogits::no;
  if (alone) {
    // What only sharding reads.
    t.mesh = {};
    t.precision.compute = t.precision.reduce = std::nullopt;
    t.wrap = {};
    t.wrap.policy = WrapPolicy::root_only;
    f = {};
    s.model.tied = false;  // to_empty makes two parameters of one, and nothing ties them again
    return;
  }
  // The embedding keeps the default; blocks have what the case says.
  if (t.wrap.embedding) f.overrides.push_back({"embed_tokens", {}});
  if (c.contains("last_block_keeps") && flag("last_block_keeps", c["last_block_keeps"]) &&
      per_block)
    f.overrides.push_back({"layers." + std::to_string(s.model.layers - 1), {Reshard::Kind::no, 0}});
}

}  // namespace shardsim
