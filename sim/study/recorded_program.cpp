#include "sim/study/recorded_program.h"

#include <algorithm>
#include <map>
#include <optional>

#include "sim/base/error.h"
#include "sim/config/limits.h"
#include "sim/memory/allocator_settings.h"
#include "sim/study/case_reader.h"

namespace shardsim {

namespace {

using nlohmann::json;

// ModelArgs of torch.testing's Transformer.
void read_model_args(const json& args, Scenario& s) {
  Architecture& a = s.model;
  const auto size = [](const char* key, int64_t& to, int64_t high) {
    return Reader([key, &to, high](const json& v) {
      to = whole(std::string("model.args.") + key, v, 1, high);
    });
  };
  const auto only = [](const char* key, const json& value) {
    return Reader([key, value](const json& v) {
      if (v != value) skip(std::string("model.args.") + key, v);
    });
  };
  a.tied = true;
  read("model.args.", args,
       {{"n_layers", size("n_layers", a.layers, kMostBlocks)},
        {"vocab_size", size("vocab_size", a.vocab, kMostFeatures)},
        {"max_seq_len", size("max_seq_len", a.max_positions, kMostFeatures)},
        {"dim", size("dim", a.hidden, kMostHidden)},
        {"n_heads", size("n_heads", a.heads, kMostHeads)},
        {"dropout_p", only("dropout_p", 0.0)},
        {"use_attn_mask", only("use_attn_mask", true)},
        {"weight_tying", [&](const json& v) { a.tied = flag("model.args.weight_tying", v); }}});
  if (!args.contains("dropout_p")) skip("model.args.dropout_p", 0.1);  // its default
  if (a.layers < 1 || a.vocab < 1 || a.max_positions < 1 || a.heads < 1 || a.hidden % a.heads != 0)
    skip("model.args", args);
  a.kv_heads = a.heads;
  a.head_dim = a.hidden / a.heads;
  a.ffn = 4 * a.hidden;
}

std::vector<std::string> name_parts(const std::string& key, const json& v) {
  std::vector<std::string> out;
  for (const json& part : list(key, v, 0, kMostParameters)) {
    if (!part.is_string()) skip(key, part);
    out.push_back("*" + part.get<std::string>() + "*");
  }
  return out;
}

void read_model(const json& m, Scenario& s) {
  Architecture& a = s.model;
  if (!m.is_object()) skip("model", m);
  const std::string kind = m.contains("kind") && m["kind"].is_string()
                               ? m["kind"].get<std::string>()
                           : m.contains("kind") ? ""
                                                : "llama";
  a.naming = Naming::recorder;
  a.model_type = kind;
  a.name = kind;
  const bool llama = kind == "llama", stack = kind == "stack", bag = kind == "bag";
  const bool transformer = kind == "transformer";
  if (!llama && !stack && !bag && !transformer) skip("model.kind", m["kind"]);
  a.family = llama         ? Family::llama
             : stack       ? Family::stack
             : transformer ? Family::transformer
                           : Family::bag;
  const auto size = [](const char* key, int64_t& to, int64_t high) {
    return Reader(
        [key, &to, high](const json& v) { to = whole(std::string("model.") + key, v, 1, high); });
  };
  const auto truth = [](const char* key, bool& to) {
    return Reader([key, &to](const json& v) { to = flag(std::string("model.") + key, v); });
  };
  Readers readers{{"kind", [](const json&) {}}, {"hidden", size("hidden", a.hidden, kMostHidden)}};
  if (transformer) {
    readers["args"] = [&](const json& v) { read_model_args(v, s); };
  } else if (llama) {
    readers["ffn"] = size("ffn", a.ffn, kMostFfn);
    readers["layers"] = size("layers", a.layers, kMostBlocks);
    readers["heads"] = size("heads", a.heads, kMostHeads);
    readers["kv_heads"] = size("kv_heads", a.kv_heads, kMostHeads);
    readers["head_dim"] = size("head_dim", a.head_dim, kMostHeads);
    readers["vocab"] = size("vocab", a.vocab, kMostFeatures);
    readers["tied"] = truth("tied", a.tied);
    readers["chunked_head"] = [&](const json& v) {
      const int64_t n = whole("model.chunked_head", v, 0, kMostSeqLen);
      s.training.loss_chunks = std::max<int64_t>(n, 1);
      // One slice still runs outside the model's forward.
      if (n == 1) skip("model.chunked_head", v);
    };
  } else {
    readers["input_grad"] = truth("input_grad", a.input_grad);
    readers["root_linear"] = [&](const json& v) { a.root_first = linear("model.root_linear", v); };
    readers["root_last"] = [&](const json& v) { a.root_last = linear("model.root_last", v); };
    readers["blocks"] = [&](const json& v) {
      const std::string key = "model.blocks";
      size_t count = 0;
      for (const json& block : list(key, v, 1, kMostBlocks)) {
        count += list(key, block, 1, kMostParameters).size();
        if (count > kMostParameters)
          throw Skip{key + " = " + std::to_string(count) + " parameters and more"};
        if (stack) {
          auto& b = a.linear_blocks.emplace_back();
          for (const json& l : block) b.push_back(linear(key, l));
        } else {
          auto& b = a.bag_blocks.emplace_back();
          for (const json& dims : block) {
            auto& shape = b.emplace_back();
            for (const json& d : list(key, dims, 1, 3))
              shape.push_back(whole(key, d, 1, kMostFeatures));
          }
        }
      }
    };
    const auto indices = [&](const char* key, std::vector<int64_t>& to) {
      readers[key] = [key, &to, &m](const json& v) {
        const std::string name = std::string("model.") + key;
        const auto blocks = m.find("blocks");
        const int64_t count = blocks == m.end() ? 0 : static_cast<int64_t>(blocks->size());
        for (const json& i : list(name, v, 0, kMostBlocks))
          to.push_back(whole(name, i, 0, count - 1));
      };
    };
    indices("calls", a.calls);
    indices("detach", a.detach);
    if (stack) readers["bias"] = truth("bias", a.bias);
    if (bag) readers["scale"] = truth("scale", a.scale);
  }
  readers["frozen"] = [&](const json& v) { s.training.frozen = name_parts("model.frozen", v); };
  read("model.", m, readers);
  const auto required = [&](const char* key, bool there) {
    if (!there) skip(std::string("model.") + key, m.value(key, json()));
  };
  if (transformer) {
    if (a.layers < 1) skip("model.args", json());
    return;
  }
  required("hidden", a.hidden > 0);
  if (!llama) {
    required("blocks", !a.linear_blocks.empty() || !a.bag_blocks.empty());
    return;
  }
  required("ffn", a.ffn > 0);
  required("layers", a.layers > 0);
  required("vocab", a.vocab > 0);
  required("heads", a.heads > 0 && (a.head_dim > 0 || a.hidden % a.heads == 0));
  required("kv_heads", a.kv_heads > 0 && a.heads % a.kv_heads == 0);
  if (a.head_dim == 0) a.head_dim = a.hidden / a.heads;
}

// Module names of the setters that go down to submodules: the module's own and what is below it.
std::vector<std::string> below(const std::string& module) {
  if (module.empty() || module == "*") return {"*"};
  return {module, module + ".*"};
}

void read_setters(const json& v, Scenario& s) {
  Fsdp2Options& f = s.training.fsdp2;
  for (const json& setter : list("setters", v, 0, kMostBlocks)) {
    if (!setter.is_array() || setter.size() < 2 || !setter[0].is_string() || !setter[1].is_string())
      skip("setters", setter);
    const std::string module = setter[0], method = setter[1];
    const std::string key = "setters." + method;
    const bool one = setter.size() == 3;
    // A setter of single modules, and one that goes down; the first module may not be wrapped.
    const auto set = [&](bool down, auto&& change) {
      for (const std::string& pattern : down ? below(module) : std::vector{module}) {
        StateSetting x;
        x.pattern = pattern;
        x.may_match_nothing = down;
        change(x);
        f.settings.push_back(x);
      }
    };
    const auto micro = [&](std::optional<Micro> StateSetting::*member) {
      const Micro m = flag(key, setter[2]) ? Micro::each : Micro::never;
      set(true, [&](StateSetting& x) { x.*member = m; });
    };
    if (method == "set_separate_reduce_scatter_group" && module.empty() && setter.size() == 2) {
      f.separate_reduce_scatter_group = true;
    } else if (method == "set_reduce_scatter_max_input_buffers" && one) {
      // The maximum over groups wins, so one setter speaks for all.
      f.reduce_scatter_max_input_buffers =
          std::max(f.reduce_scatter_max_input_buffers, whole(key, setter[2], 1, kMostBlocks));
    } else if (method == "set_keep_unsharded_storage" && module.empty() && one) {
      f.keep_unsharded_storage = flag(key, setter[2]);
    } else if (method == "_set_unshard_async_op" && module.empty() && one) {
      f.unshard_async_op = flag(key, setter[2]);
    } else if (method == "set_gradient_divide_factor" && one) {
      const bool number = setter[2].is_number();
      if (!number || !(setter[2] >= 1e-6) || !(setter[2] <= 1e9)) skip(key, setter[2]);
      set(false, [&](StateSetting& x) { x.gradient_divide_factor = setter[2].get<double>(); });
    } else if (method == "set_force_sum_reduction_for_comms" && one) {
      set(false, [&](StateSetting& x) { x.force_sum_reduction = flag(key, setter[2]); });
    } else if (method == "set_unshard_in_backward" && one) {
      set(false, [&](StateSetting& x) { x.unshard_in_backward = flag(key, setter[2]); });
    } else if (method == "set_reduce_scatter_unused_params" && one) {
      set(true, [&](StateSetting& x) { x.reduce_scatter_unused_params = flag(key, setter[2]); });
    } else if (method == "set_requires_gradient_sync" && one) {
      micro(&StateSetting::requires_gradient_sync);
    } else if (method == "set_requires_all_reduce" && one) {
      micro(&StateSetting::requires_all_reduce);
    } else if (method == "set_reshard_after_backward" && one) {
      micro(&StateSetting::reshard_after_backward);
    } else if (method == "set_reshard_after_forward" && one) {
      const Reshard r{flag(key, setter[2]) ? Reshard::Kind::yes : Reshard::Kind::no, 0};
      for (const std::string& pattern : below(module)) f.overrides.push_back({pattern, r});
    } else {
      skip("setters", json(method));
    }
  }
}

// {micro-batch: setters}. What is set stays until it is set again, in the next step too.
void read_micro_setters(const json& v, int64_t micro_batches, Scenario& s) {
  const std::map<std::string, std::optional<Micro> StateSetting::*> members{
      {"set_requires_gradient_sync", &StateSetting::requires_gradient_sync},
      {"set_requires_all_reduce", &StateSetting::requires_all_reduce},
      {"set_reshard_after_backward", &StateSetting::reshard_after_backward}};
  struct Values {
    std::string module, method;
    std::vector<std::optional<bool>> at;  // by micro-batch
  };
  std::vector<Values> all;
  if (!v.is_object()) skip("micro_setters", v);
  for (int64_t k = 0; k < micro_batches; ++k) {
    const auto here = v.find(std::to_string(k));
    if (here == v.end()) continue;
    for (const json& x : list("micro_setters", *here, 0, kMostBlocks)) {
      const bool known = x.is_array() && x.size() == 3 && x[0].is_string() && x[1].is_string() &&
                         members.contains(x[1].get<std::string>());
      if (!known) skip("micro_setters", x);
      auto same = std::find_if(all.begin(), all.end(), [&](const Values& y) {
        return y.module == x[0] && y.method == x[1];
      });
      if (same == all.end()) {
        all.push_back({x[0], x[1], std::vector<std::optional<bool>>(micro_batches)});
        same = all.end() - 1;
      }
      same->at[k] = flag("micro_setters", x[2]);
    }
  }
  for (const Values& x : all) {
    // Where modules of one method are set at different times, one may undo another.
    for (const Values& y : all)
      for (int64_t k = 0; k < micro_batches; ++k)
        if (x.method == y.method && x.at[k].has_value() != y.at[k].has_value())
          skip("micro_setters", v);
    bool now = true;  // the default
    std::vector<bool> values;
    for (const std::optional<bool>& at : x.at) values.push_back(now = at.value_or(now));
    if (!x.at.front() && !now) skip("micro_setters", v);  // the first step is not like the others
    const auto on = std::count(values.begin(), values.end(), true);
    const bool last = on == 1 && values.back();
    if (on != 0 && on != micro_batches && !last) skip("micro_setters", v);
    for (const std::string& pattern : below(x.module)) {
      StateSetting setting;
      setting.pattern = pattern;
      setting.may_match_nothing = true;
      setting.*members.at(x.method) = on == micro_batches ? Micro::each
                                      : on == 0           ? Micro::never
                                                          : Micro::last;
      s.training.fsdp2.settings.push_back(setting);
    }
  }
}

void read_case(const json& c, RecordedProgram& r) {
  Scenario& s = r.scenario;
  Training& t = s.training;
  Fsdp2Options& f = t.fsdp2;
  if (word("strategy", c, "fsdp2") != "fsdp2") skip("strategy", c["strategy"]);
  t.micro_batch = 1;
  t.seq_len = 128;
  t.mesh.shard = 8;
  const auto nothing = [](const json&) {};
  const auto micro = [](const char* key, Micro& to) {
    return Reader([key, &to](const json& v) { to = flag(key, v) ? Micro::last : Micro::each; });
  };
  const Readers readers{
      {"runner", nothing},
      {"strategy", nothing},
      {"name", nothing},
      {"observed", nothing},
      {"attribute", nothing},
      {"history", nothing},
      {"keep_calls", nothing},
      {"keep_allocator", nothing},
      {"environment", nothing},
      {"note", nothing},
      {"shard", [&](const json& v) { t.mesh.shard = whole("shard", v, 1, kMostRanks); }},
      {"replicate",
       [&](const json& v) { t.mesh.replicate = whole("replicate", v, 1, kMostRanks); }},
      {"model", [&](const json& v) { read_model(v, s); }},
      {"steps", [&](const json& v) { r.steps = whole("steps", v, 1, kMostSteps); }},
      {"micro_batch",
       [&](const json& v) { t.micro_batch = whole("micro_batch", v, 1, kMostMicroBatch); }},
      {"seq_len", [&](const json& v) { t.seq_len = whole("seq_len", v, 1, kMostSeqLen); }},
      {"forwards", [&](const json& v) { t.forwards = whole("forwards", v, 1, kMostForwards); }},
      {"grad_accum",
       [&](const json& v) { t.grad_accum = whole("grad_accum", v, 1, kMostGradAccum); }},
      {"storage", [&](const json& v) { t.precision.storage = dtype("storage", v); }},
      {"input_dtype", [&](const json& v) { t.input_dtype = dtype("input_dtype", v); }},
      {"float_loss", [&](const json& v) { t.float_loss = flag("float_loss", v); }},
      {"float_logits", [&](const json& v) { t.float_logits = flag("float_logits", v); }},
      {"precision",
       [&](const json& v) {
         read("precision.", v,
              {{"compute", dtype_or_null("precision.compute", t.precision.compute)},
               {"reduce", dtype_or_null("precision.reduce", t.precision.reduce)},
               {"output", dtype_or_null("precision.output", t.precision.output)},
               {"keep", [&](const json& x) { t.precision.keep = name_parts("precision.keep", x); }},
               {"cast_inputs", [&](const json& x) {
                  t.precision.cast_forward_inputs = flag("precision.cast_inputs", x);
                }}});
       }},
      {"wrap",
       [&](const json& v) {
         const std::string w = v.is_string() ? v.get<std::string>() : "";
         if (w == "per_block") {
           t.wrap.policy = WrapPolicy::per_block;
         } else if (w == "root_only") {
           t.wrap.policy = WrapPolicy::root_only;
         } else if (w == "nested") {
           t.wrap.policy = WrapPolicy::nested;
         } else if (w == "children") {
           t.wrap.policy = WrapPolicy::children;
         } else if (w.starts_with("every_") && w.size() > 6 &&
                    w.find_first_not_of("0123456789", 6) == std::string::npos && w.size() < 15) {
           t.wrap.policy = WrapPolicy::every_k;
           t.wrap.every = std::stoll(w.substr(6));
           if (t.wrap.every < 1) skip("wrap", v);
         } else {
           skip("wrap", v);
         }
       }},
      {"wrap_embedding", [&](const json& v) { t.wrap.embedding = flag("wrap_embedding", v); }},
      {"wrap_head", [&](const json& v) { t.wrap.head = flag("wrap_head", v); }},
      {"head_reshard", [&](const json& v) { f.head_reshard = reshard("head_reshard", v); }},
      {"root_reshard", [&](const json& v) { f.root_reshard = reshard("root_reshard", v); }},
      {"reshard_after_forward",
       [&](const json& v) { f.reshard_after_forward = reshard("reshard_after_forward", v); }},
      {"block_reshard",
       [&](const json& v) {
         if (!v.is_object() || v.size() > kMostParameters) skip("block_reshard", v);
         for (const auto& [block, value] : v.items())
           f.overrides.push_back({"layers." + block, reshard("block_reshard", value)});
       }},
      {"prefetch",
       [&](const json& v) {
         read("prefetch.", v,
              {{"forward",
                [&](const json& x) {
                  f.forward_prefetch = whole("prefetch.forward", x, 0, kMostBlocks);
                }},
               {"backward",
                [&](const json& x) {
                  f.backward_prefetch = whole("prefetch.backward", x, 0, kMostBlocks);
                }},
               {"root_forward", [&](const json& x) {
                  f.root_forward_prefetch = whole("prefetch.root_forward", x, 0, kMostBlocks);
                }}});
       }},
      {"no_sync", micro("no_sync", f.requires_gradient_sync)},
      {"no_all_reduce", micro("no_all_reduce", f.requires_all_reduce)},
      {"last_backward_only", micro("last_backward_only", f.is_last_backward)},
      // The runner looks at it only together with no_sync.
      {"reshard_after_backward_last_only",
       [&](const json& v) {
         const auto no_sync = c.find("no_sync");
         if (flag("reshard_after_backward_last_only", v) && no_sync != c.end() &&
             flag("no_sync", *no_sync))
           f.reshard_after_backward = Micro::last;
       }},
      {"activation_checkpointing",
       [&](const json& v) {
         const std::string mode = v.is_string() ? v.get<std::string>() : "";
         if (mode == "none" || v.is_null()) {
           t.checkpointing.mode = Checkpointing::Mode::none;
         } else if (mode == "full") {
           t.checkpointing.mode = Checkpointing::Mode::full;
         } else if (mode == "every_2") {
           t.checkpointing.mode = Checkpointing::Mode::every_k;
           t.checkpointing.every = 2;
         } else if (mode == "selective_op") {
           t.checkpointing.mode = Checkpointing::Mode::selective_op;
         } else if (mode == "inside_mlp") {
           t.checkpointing.mode = Checkpointing::Mode::full;
           t.checkpointing.part = "mlp";
         } else if (mode == "around") {
           t.checkpointing.mode = Checkpointing::Mode::full;
           t.checkpointing.around = true;
         } else {
           skip("activation_checkpointing", v);
         }
       }},
      {"setters", [&](const json& v) { read_setters(v, s); }},
      {"micro_setters",
       [&](const json& v) {
         const auto micro_batches = c.find("grad_accum");
         read_micro_setters(
             v,
             micro_batches == c.end() ? 1 : whole("grad_accum", *micro_batches, 1, kMostGradAccum),
             s);
       }},
      {"optimizer",
       [&](const json& v) {
         read("optimizer.", v,
              {{"name",
                [&](const json& x) {
                  const std::string n = x.is_string() ? x.get<std::string>() : "";
                  t.optimizer.momentum = n == "sgd_momentum";
                  t.optimizer.in_backward = n == "in_backward";
                  if (n == "adamw")
                    t.optimizer.name = Optimizer::Name::adamw;
                  else if (n == "adam")
                    t.optimizer.name = Optimizer::Name::adam;
                  else if (n == "sgd" || n == "sgd_momentum" || n == "in_backward")
                    t.optimizer.name = Optimizer::Name::sgd;
                  else if (n == "none")
                    t.optimizer.name = Optimizer::Name::none;
                  else
                    skip("optimizer.name", x);
                }},
               {"implementation", [&](const json& x) {
                  const std::string n = x.is_string() ? x.get<std::string>() : "";
                  if (n == "foreach")
                    t.optimizer.implementation = Optimizer::Implementation::foreach;
                  else if (n == "fused")
                    t.optimizer.implementation = Optimizer::Implementation::fused;
                  else if (n == "forloop")
                    t.optimizer.implementation = Optimizer::Implementation::forloop;
                  else
                    skip("optimizer.implementation", x);
                }}});
       }},
      {"clip_grad", [&](const json& v) { t.clip_grad_norm = flag("clip_grad", v) ? 1.0 : 0.0; }},
      {"offload",
       [&](const json& v) {
         if (v.is_boolean()) {
           if (v.get<bool>()) f.cpu_offload = CpuOffload::pinned;
           return;
         }
         f.cpu_offload = v.is_object() && v.empty() ? CpuOffload::none : CpuOffload::pinned;
         read("offload.", v, {{"pin_memory", [&](const json& x) {
                                 f.cpu_offload = flag("offload.pin_memory", x)
                                                     ? CpuOffload::pinned
                                                     : CpuOffload::pageable;
                               }}});
       }},
      {"unshard_before",
       [&](const json& v) {
         f.unshard_before.async_op = true;  // the runner's default
         read(
             "unshard_before.", v,
             {{"blocks",
               [&](const json& x) {
                 for (const json& i : list("unshard_before.blocks", x, 0, kMostBlocks))
                   f.unshard_before.patterns.push_back(
                       "layers." +
                       std::to_string(whole("unshard_before.blocks", i, 0, kMostBlocks)));
               }},
              {"async",
               [&](const json& x) { f.unshard_before.async_op = flag("unshard_before.async", x); }},
              {"wait",
               [&](const json& x) { f.unshard_before.wait = flag("unshard_before.wait", x); }}});
       }},
      {"placement",
       [&](const json& v) {
         if (!v.is_object() || v.size() > kMostParameters) skip("placement", v);
         for (const auto& [part, dim] : v.items())
           f.shard_placement.push_back(
               {"*" + part + "*", static_cast<int>(whole("placement", dim, 0, 2))});
       }},
      {"second_mesh",
       [&](const json& v) {
         if (unset(v)) return;
         read("second_mesh.", v,
              {{"match",
                [&](const json& x) {
                  if (!x.is_string()) skip("second_mesh.match", x);
                  f.second_mesh.patterns = {"*" + x.get<std::string>() + "*"};
                }},
               {"shard", [&](const json& x) {
                  f.second_mesh.shard = whole("second_mesh.shard", x, 1, kMostRanks);
                }}});
       }},
      {"ignored", [&](const json& v) { f.ignored_params = name_parts("ignored", v); }},
      {"manual_finalize",
       [&](const json& v) {
         if (unset(v)) return;
         if (v != "sync" && v != "async") skip("manual_finalize", v);
         f.manual_finalization = v == "sync" ? ManualFinalization::sync : ManualFinalization::async;
       }},
      {"state_dict",
       [&](const json& v) {
         if (unset(v)) return;
         const auto offload = c.find("sd_offload");
         const bool offloads = offload != c.end() && flag("sd_offload", *offload);
         if (v == "sharded")
           f.state_dict = SavedState::sharded;
         else if (v == "full")
           f.state_dict = offloads ? SavedState::full_offload : SavedState::full;
         else
           skip("state_dict", v);
       }},
      {"sd_offload", nothing},
      {"optimizer_state_dict",
       [&](const json& v) { f.optimizer_state_dict = flag("optimizer_state_dict", v); }},
      {"eval_after", [&](const json& v) { t.evaluate_after = flag("eval_after", v); }},
      {"post_optim_event",
       [&](const json& v) { f.post_optim_event = flag("post_optim_event", v); }},
      {"custom_all_gather",
       [&](const json& v) {
         if (v != "persistent") skip("custom_all_gather", v);
         f.persistent_all_gather = true;
       }},
      {"zero_grad_set_to_none",
       [&](const json& v) { t.optimizer.set_to_none = flag("zero_grad_set_to_none", v); }},
  };
  read("", c, readers);
}

void read_environment(const json& e, Scenario& s) {
  const auto number = [](const std::string& key, const json& v, double low, double high) {
    const auto x = environment_number(v, low, high);
    if (!x) skip("environment." + key, v);
    return *x;
  };
  double gib = 80;
  const double context =
      static_cast<double>(s.cluster.gpu.context_bytes + 1) / static_cast<double>(kGiB);
  for (const auto& [key, value] : e.items()) {
    FlatCost& f = s.cost.flat;
    if (key == "FAKE_KERNEL_US")
      f.kernel_us = number(key, value, 0, 1e6);
    else if (key == "FAKE_TFLOPS")
      f.gemm_tflops = number(key, value, 0.01, 1e6);
    else if (key == "FAKE_BUS_GBPS")
      f.bus_gbps = number(key, value, 0.001, 1e6);
    else if (key == "FAKE_HOST_US")
      f.host_us = number(key, value, 0, 1e6);
    else if (key == "FAKE_MEM_GIB")
      gib = number(key, value, context, 1024 * 1024);
    else if (key == "TORCH_DIST_USE_NCCL2" && value == "0")
      s.training.legacy_nccl = true;
    else if (key == "DDP_SET_LAST_BUCKET_CAP" && value.is_string())
      s.training.ddp.small_last_bucket = value == "1";
    else if (key == "PYTORCH_CUDA_ALLOC_CONF" && value.is_string())
      s.training.allocator = value.get<std::string>();
    else
      skip("environment." + key, value);
  }
  s.cluster.gpu.memory_bytes = static_cast<Bytes>(gib * static_cast<double>(kGiB));
}

// The scenario with what the joint limits look at besides; no time depends on the device's memory.
Scenario bounded(Scenario s) {
  s.cluster.gpu.memory_gbps = 1e6;
  Architecture& a = s.model;
  if (!takes_tokens(a.family))
    a.layers = static_cast<int64_t>(
        std::max({a.linear_blocks.size(), a.bag_blocks.size(), a.calls.size()}));
  return s;
}

}  // namespace

RecordedProgram recorded_program(const json& program, const json& environment,
                                 const std::string& torch) {
  RecordedProgram r;
  Scenario& s = r.scenario;
  s.name = "recording";
  s.cost.model = CostChoice::Model::flat;
  s.cluster.gpu.name = "recorded";
  s.cluster.gpu.sms = 132;
  s.cluster.gpu.compute_capability = 90;
  s.training.wrap.policy = WrapPolicy::per_block;
  try {
    // "2.7.1+cu126" is of release 2.7.
    s.training.pytorch = torch.substr(0, torch.find('.', torch.find('.') + 1));
    if (!behaviour_of(s.training.pytorch)) skip("torch", json(torch));
    read_environment(environment, s);
    const std::string runner = word("runner", program, "run_memory.py");
    if (runner == "run_fsdp2.py")
      read_case(program, r);
    else if (runner == "run_fsdp1_ddp_zero.py")
      read_fsdp1_ddp_zero_case(program, r);
    else if (runner == "run_memory.py")
      read_memory_case(program, r);
    else if (runner == "run_compiled.py")
      read_compiled_case(program, r);
    else
      skip("runner", json(runner));
    if (s.model.max_positions > 0 && s.training.seq_len > s.model.max_positions)
      skip("seq_len", json(s.training.seq_len));
    if (s.training.mesh.world() > kMostRanks) skip("replicate", json(s.training.mesh.replicate));
    s.cluster.gpus_per_node = 8;
    s.cluster.nodes = static_cast<int>(ceil_div(s.training.mesh.world(), 8));
    s.options.max_steps = r.steps;
    s.options.memory = MemoryLevel::blocks;
    try {
      parse_allocator_settings(s.training.allocator);
    } catch (const Error& e) {
      throw Skip{std::string("environment.PYTORCH_CUDA_ALLOC_CONF = ") + e.what()};
    }
    if (const std::string why = too_large(bounded(s)); !why.empty())
      throw Skip{"case: too large: " + why};
  } catch (const Skip& e) {
    r.skipped = e.reason;
  } catch (const json::exception& e) {
    r.skipped = std::string("case: ") + e.what();
  }
  return r;
}

}  // namespace shardsim
