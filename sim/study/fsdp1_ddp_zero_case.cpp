#include "sim/base/error.h"
#include "sim/study/case_reader.h"
#include "sim/study/deepspeed_case.h"

namespace shardsim {

namespace {

using nlohmann::json;

void add_decoder(Readers& readers, Architecture& a) {
  readers["layers"] = number("model.layers", a.layers, 1, kMostBlocks);
  readers["heads"] = number("model.heads", a.heads, 1, kMostHeads);
  readers["vocab"] = number("model.vocab", a.vocab, 1, kMostFeatures);
  if (a.family == Family::gpt2) {
    readers["positions"] = number("model.positions", a.max_positions, 1, kMostFeatures);
    return;
  }
  readers["ffn"] = number("model.ffn", a.ffn, 1, kMostFfn);
  readers["kv_heads"] = number("model.kv_heads", a.kv_heads, 1, kMostHeads);
  readers["head_dim"] = number("model.head_dim", a.head_dim, 1, kMostHeads);
  readers["tied"] = truth("model.tied", a.tied);
}

void add_stack(Readers& readers, Architecture& a) {
  readers["bias"] = truth("model.bias", a.bias);
  readers["pre"] = [&a](const json& v) { a.root_first = linear("model.pre", v); };
  readers["head"] = [&a](const json& v) { a.root_last = linear("model.head", v); };
  readers["head_bias"] = [&a](const json& v) { a.root_last_bias = flag("model.head_bias", v); };
  readers["blocks"] = [&a](const json& v) {
    size_t count = 0;
    for (const json& block : list("model.blocks", v, 1, kMostBlocks)) {
      count += list("model.blocks", block, 1, kMostParameters).size();
      if (count > kMostParameters)
        throw Skip{"model.blocks = " + std::to_string(count) + " parameters and more"};
      auto& b = a.linear_blocks.emplace_back();
      for (const json& l : block) b.push_back(linear("model.blocks", l));
    }
  };
  readers["buffers"] = [&a](const json& v) {
    for (const json& n : list("model.buffers", v, 0, kMostParameters))
      a.buffers.push_back(whole("model.buffers", n, 1, kMostFeatures));
  };
  readers["unused"] = [&a](const json& v) {
    for (const json& l : list("model.unused", v, 0, kMostParameters))
      a.unused.push_back(linear("model.unused", l));
  };
}

void add_vectors(Readers& readers, Architecture& a) {
  readers["units"] = [&a](const json& v) {
    size_t count = 0;
    for (const json& unit : list("model.units", v, 1, kMostBlocks)) {
      count += list("model.units", unit, 1, kMostParameters).size();
      if (count > kMostParameters)
        throw Skip{"model.units = " + std::to_string(count) + " parameters and more"};
      auto& b = a.bag_blocks.emplace_back();
      for (const json& n : unit) b.push_back({whole("model.units", n, 1, kMostFeatures)});
    }
  };
  readers["root"] = [&a](const json& v) {
    for (const json& n : list("model.root", v, 0, kMostParameters))
      a.root_vectors.push_back(whole("model.root", n, 1, kMostFeatures));
  };
}

void read_model(const json& m, Scenario& s) {
  if (!m.is_object()) skip("model", m);
  Architecture& a = s.model;
  a.naming = Naming::recorder_fsdp1;
  a.name = a.model_type = word("kind", m, "llama");
  choice<Family>("model.kind", a.family,
                 {{"llama", Family::llama},
                  {"gpt2", Family::gpt2},
                  {"stack", Family::stack},
                  {"vectors", Family::vectors}})(json(a.name));
  const bool decoder = a.family == Family::llama || a.family == Family::gpt2;
  if (!decoder) a.hidden = 4;
  Readers readers{{"kind", nothing()},
                  {"hidden", number("model.hidden", a.hidden, 1, kMostHidden)}};
  if (a.family == Family::stack)
    readers["dtypes"] = [&](const json& v) {
      if (!v.is_object() || v.size() > kMostParameters) skip("model.dtypes", v);
      for (const auto& [part, type] : v.items())
        s.training.param_dtypes.emplace_back("*" + part + "*", dtype("model.dtypes", type));
    };
  readers["frozen"] = [&](const json& v) {
    for (const json& part : list("model.frozen", v, 0, kMostParameters)) {
      if (!part.is_string()) skip("model.frozen", part);
      s.training.frozen.push_back("*" + part.get<std::string>() + "*");
    }
  };
  if (decoder)
    add_decoder(readers, a);
  else if (a.family == Family::stack)
    add_stack(readers, a);
  else
    add_vectors(readers, a);
  read("model.", m, readers);

  const auto required = [&](const char* key, bool there) {
    if (!there) skip(std::string("model.") + key, m.value(key, json()));
  };
  if (!decoder) {
    required(a.family == Family::stack ? "blocks" : "units",
             !a.linear_blocks.empty() || !a.bag_blocks.empty());
    if (!m.contains("head_bias")) a.root_last_bias = a.bias;
    a.root_first_bias = a.bias;
    return;
  }
  required("hidden", a.hidden > 0);
  required("layers", a.layers > 0);
  required("vocab", a.vocab > 0);
  required("heads", a.heads > 0 && (a.head_dim > 0 || a.hidden % a.heads == 0));
  if (a.head_dim == 0) a.head_dim = a.hidden / a.heads;
  if (a.family == Family::gpt2) {
    required("positions", a.max_positions > 0);
    a.kv_heads = a.heads;
    a.ffn = 4 * a.hidden;
    a.tied = true;
    return;
  }
  required("ffn", a.ffn > 0);
  required("kv_heads", a.kv_heads > 0 && a.heads % a.kv_heads == 0);
}

void read_wrap(const json& v, Wrap& wrap) {
  const std::string w = v.is_string() ? v.get<std::string>() : "";
  const auto tail = [&](size_t from) {
    if (w.size() <= from || w.size() > from + 12 ||
        w.find_first_not_of("0123456789", from) != std::string::npos)
      skip("wrap", v);
    const int64_t n = std::stoll(w.substr(from));
    if (n < 1) skip("wrap", v);
    return n;
  };
  if (w == "root_only") {
    wrap.policy = WrapPolicy::root_only;
  } else if (w.starts_with("every_")) {
    wrap.policy = WrapPolicy::every_k;
    wrap.every = tail(6);
  } else if (w.starts_with("size_")) {
    wrap.policy = WrapPolicy::size;
    wrap.min_params = tail(5);
  } else if (!w.empty()) {
    wrap.policy = WrapPolicy::per_block;  // whatever other word the runner finds
  } else {
    skip("wrap", v);
  }
}

void read_precision(const json& v, Training& t) {
  read("precision.", v,
       {{"compute", dtype_or_null("precision.compute", t.precision.compute)},
        {"reduce", dtype_or_null("precision.reduce", t.precision.reduce)},
        {"buffer", dtype_or_null("precision.buffer", t.fsdp1.buffer_dtype)},
        {"keep_low_precision_grads",
         truth("precision.keep_low_precision_grads", t.fsdp1.keep_low_precision_grads)},
        {"cast_forward_inputs",
         truth("precision.cast_forward_inputs", t.precision.cast_forward_inputs)},
        {"cast_root_forward_inputs",
         truth("precision.cast_root_forward_inputs", t.fsdp1.cast_root_forward_inputs)}});
  if (!v.contains("buffer")) t.fsdp1.buffer_dtype = t.precision.compute;
}

void read_optimizer(const json& v, Optimizer& o) {
  using Name = Optimizer::Name;
  using Implementation = Optimizer::Implementation;
  read("optimizer.", v,
       {{"name", choice<Name>("optimizer.name", o.name,
                              {{"adamw", Name::adamw}, {"sgd", Name::sgd}, {"none", Name::none}})},
        {"implementation", choice<Implementation>("optimizer.implementation", o.implementation,
                                                  {{"foreach", Implementation::foreach},
                                                   {"fused", Implementation::fused},
                                                   {"forloop", Implementation::forloop}})}});
  // The runner asks SGD for foreach or not.
  if (o.name == Name::sgd && o.implementation == Implementation::fused)
    o.implementation = Implementation::forloop;
}

// FullyShardedDataParallel's arguments, and what only its programs do.
void add_fsdp1(Readers& readers, const json& c, Training& t) {
  using Prefetch = Fsdp1Options::BackwardPrefetch;
  using StateDict = Fsdp1Options::StateDict;
  Fsdp1Options& f = t.fsdp1;
  Checkpointing& checkpoint = t.checkpointing;
  t.precision.cast_forward_inputs = false;  // MixedPrecision's default
  readers["precision"] = [&](const json& v) { read_precision(v, t); };
  readers["wrap"] = [&](const json& v) { read_wrap(v, t.wrap); };
  readers["sharding_strategy"] =
      choice<ShardingStrategy>("sharding_strategy", f.sharding_strategy,
                               {{"FULL_SHARD", ShardingStrategy::full_shard},
                                {"SHARD_GRAD_OP", ShardingStrategy::shard_grad_op},
                                {"NO_SHARD", ShardingStrategy::no_shard},
                                {"HYBRID_SHARD", ShardingStrategy::hybrid_shard},
                                {"_HYBRID_SHARD_ZERO2", ShardingStrategy::hybrid_shard_zero2}});
  readers["hybrid_by"] = nothing();  // a mesh or a tuple of groups: the same groups
  readers["backward_prefetch"] = choice<Prefetch>(
      "backward_prefetch", f.backward_prefetch,
      {{"pre", Prefetch::pre}, {"post", Prefetch::post}, {"none", Prefetch::none}});
  readers["forward_prefetch"] = truth("forward_prefetch", f.forward_prefetch);
  readers["limit_all_gathers"] = truth("limit_all_gathers", f.limit_all_gathers);
  readers["use_orig_params"] = truth("use_orig_params", f.use_orig_params);
  readers["offload"] = truth("offload", f.cpu_offload);
  readers["no_sync"] = truth("no_sync", f.no_sync);
  readers["ac_outside"] = [&](const json& v) {
    if (unset(v)) return;
    if (!v.is_string() || c.contains("activation_checkpointing")) skip("ac_outside", v);
    checkpoint.mode = Checkpointing::Mode::full;
    checkpoint.around = true;
    checkpoint.reentrant = v == "reentrant";
  };
  readers["state_dict"] = [&](const json& v) {
    if (unset(v)) return;
    choice<StateDict>("state_dict", f.state_dict,
                      {{"full", StateDict::full},
                       {"full_offload", StateDict::full_offload},
                       {"full_offload_rank0", StateDict::full_offload_rank0},
                       {"sharded", StateDict::sharded},
                       {"sharded_offload", StateDict::sharded_offload},
                       {"local", StateDict::local}})(v);
  };
  readers["summon"] = truth("summon", f.summon_full_params);
}

// DistributedDataParallel's arguments.
void add_ddp(Readers& readers, DdpOptions& o) {
  using CommHook = DdpOptions::CommHook;
  const auto megabytes = [](const char* key, const json& v) {
    if (!v.is_number() || !(v.get<double>() >= 0) || !(v.get<double>() <= 1e6)) skip(key, v);
    return v.get<double>();
  };
  readers["bucket_cap_mb"] = [&o, megabytes](const json& v) {
    if (!v.is_null()) o.bucket_cap_mb = megabytes("bucket_cap_mb", v);
  };
  readers["bucket_cap_mb_list"] = [&o, megabytes](const json& v) {
    if (v.is_null()) return;
    for (const json& cap : list("bucket_cap_mb_list", v, 0, kMostParameters))
      o.bucket_cap_mb_list.push_back(megabytes("bucket_cap_mb_list", cap));
  };
  readers["gradient_as_bucket_view"] = truth("gradient_as_bucket_view", o.gradient_as_bucket_view);
  readers["static_graph"] = truth("static_graph", o.static_graph);
  readers["find_unused_parameters"] = truth("find_unused_parameters", o.find_unused_parameters);
  readers["broadcast_buffers"] = truth("broadcast_buffers", o.broadcast_buffers);
  readers["batched_grad_copy"] = truth("batched_grad_copy", o.batched_grad_copy);
  readers["lazy_bucket_allocation"] = truth("lazy_bucket_allocation", o.lazy_bucket_allocation);
  readers["init_sync"] = truth("init_sync", o.init_sync);
  readers["no_sync"] = truth("no_sync", o.no_sync);
  readers["comm_hook"] = [&o](const json& v) {
    if (unset(v)) return;
    choice<CommHook>("comm_hook", o.comm_hook,
                     {{"allreduce_hook", CommHook::allreduce},
                      {"bf16_compress_hook", CommHook::bf16_compress},
                      {"fp16_compress_hook", CommHook::fp16_compress}})(v);
  };
}

}  // namespace

void read_fsdp1_ddp_zero_case(const json& c, RecordedProgram& r) {
  Scenario& s = r.scenario;
  Training& t = s.training;
  Checkpointing& checkpoint = t.checkpointing;
  using Mode = Checkpointing::Mode;
  const bool deepspeed = word("strategy", c, "") == "deepspeed";
  if (deepspeed)
    t.strategy = deepspeed_strategy(c.value("deepspeed", json()));
  else
    choice<Strategy>("strategy", t.strategy,
                     {{"fsdp1", Strategy::fsdp1},
                      {"ddp", Strategy::ddp},
                      {"torch_zero1", Strategy::torch_zero1},
                      {"none", Strategy::none}})(c.value("strategy", json()));
  t.micro_batch = 1;
  t.seq_len = 128;
  t.mesh.shard = 8;
  bool drop_logits = true;
  Readers readers{
      {"model", [&](const json& v) { read_model(v, s); }},
      {"shard", number("shard", t.mesh.shard, 1, kMostRanks)},
      {"replicate", number("replicate", t.mesh.replicate, 1, kMostRanks)},
      {"steps", number("steps", r.steps, 1, kMostSteps)},
      {"micro_batch", number("micro_batch", t.micro_batch, 1, kMostMicroBatch)},
      {"seq_len", number("seq_len", t.seq_len, 1, kMostSeqLen)},
      {"grad_accum", number("grad_accum", t.grad_accum, 1, kMostGradAccum)},
      {"storage", [&](const json& v) { t.precision.storage = dtype("storage", v); }},
      {"input_dtype", [&](const json& v) { t.input_dtype = dtype("input_dtype", v); }},
      {"float_loss", truth("float_loss", t.float_loss)},
      {"float_logits", truth("float_logits", t.float_logits)},
      {"drop_logits", truth("drop_logits", drop_logits)},
      // Around forward, loss and backward.
      {"autocast",
       [&](const json& v) {
         if (!flag("autocast", v)) return;
         t.precision.autocast = DType::bf16;
         t.precision.autocast_backward = true;
       }},
      {"activation_checkpointing",
       [&](const json& v) {
         if (v.is_null()) return;
         choice<Mode>(
             "activation_checkpointing", checkpoint.mode,
             {{"none", Mode::none}, {"full", Mode::full}, {"selective_op", Mode::selective_op}})(v);
       }},
      {"optimizer", [&](const json& v) { read_optimizer(v, t.optimizer); }},
      {"set_to_none", truth("set_to_none", t.optimizer.set_to_none)},
      {"clip_grad", [&](const json& v) { t.clip_grad_norm = flag("clip_grad", v) ? 1.0 : 0.0; }},
  };
  // What the runner does not look at, or only with another strategy.
  for (const char* key : {"runner",
                          "strategy",
                          "name",
                          "observed",
                          "attribute",
                          "history",
                          "keep_calls",
                          "keep_allocator",
                          "environment",
                          "note",
                          "device_id",
                          "precision",
                          "wrap",
                          "sharding_strategy",
                          "hybrid_by",
                          "backward_prefetch",
                          "forward_prefetch",
                          "limit_all_gathers",
                          "use_orig_params",
                          "offload",
                          "sync_module_states",
                          "ac_outside",
                          "bucket_cap_mb",
                          "bucket_cap_mb_list",
                          "gradient_as_bucket_view",
                          "static_graph",
                          "find_unused_parameters",
                          "broadcast_buffers",
                          "batched_grad_copy",
                          "lazy_bucket_allocation",
                          "init_sync",
                          "comm_hook",
                          "parameters_as_bucket_view"})
    readers.emplace(key, nothing());
  if (reduces_buckets(t.strategy)) add_ddp(readers, t.ddp);
  if (t.strategy == Strategy::torch_zero1) {
    readers["parameters_as_bucket_view"] =
        truth("parameters_as_bucket_view", t.parameters_as_bucket_view);
    // The runner's optimizer is AdamW, whatever its name.
    readers["optimizer"] = [&](const json& v) {
      read_optimizer(v, t.optimizer);
      t.optimizer.name = Optimizer::Name::adamw;
    };
  }
  if (t.strategy == Strategy::fsdp1) {
    readers.erase("sync_module_states");
    add_fsdp1(readers, c, t);
  }
  if (deepspeed) {
    readers["deepspeed"] = nothing();
    for (const char* key : {"optimizer", "set_to_none"}) readers[key] = nothing();
  }
  read("", c, readers);
  if (deepspeed) {
    if (t.clip_grad_norm > 0) skip("clip_grad", json(true));
    if (t.mesh.replicate > 1) skip("replicate", json(t.mesh.replicate));
    read_deepspeed(c.value("deepspeed", json()), t);
  }
  if (!keeps_parameters_whole(t.strategy) && !t.param_dtypes.empty())
    skip("model.dtypes", c["model"]["dtypes"]);
  if (!drop_logits) skip("drop_logits", json(false));
  // The policy would see the checkpoint's own module between the two.
  if (t.strategy != Strategy::fsdp1 && !keeps_parameters_whole(t.strategy) &&
      !s.model.buffers.empty())
    skip("model.buffers", c["model"]["buffers"]);
  if (t.strategy == Strategy::fsdp1 && t.wrap.policy == WrapPolicy::size &&
      checkpoint.mode != Mode::none && !checkpoint.around)
    skip("activation_checkpointing", c["activation_checkpointing"]);
}

}  // namespace shardsim
