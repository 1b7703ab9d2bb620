#include "sim/config/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "sim/config/ddp.h"
#include "sim/config/fsdp1.h"
#include "sim/config/loss.h"
#include "sim/config/zero.h"

namespace shardsim {
namespace {

constexpr int64_t kMostSeqLen = 1 << 24;
constexpr int64_t kMostMicroBatch = 1 << 20;
constexpr int64_t kMostGradAccum = 1 << 16;
constexpr int64_t kMostBlocks = 100'000;
constexpr int64_t kMostForwards = 64;

bool is_decoder(const Architecture& model) { return takes_tokens(model.family); }

Mesh read_mesh(const std::optional<Value>& value, int64_t world) {
  Mesh mesh;
  if (!value) {
    mesh.shard = world;
    return mesh;
  }
  const Map map(*value, {"replicate", "shard", "tensor", "context", "expert", "pipeline"});
  for (std::string_view key : {"tensor", "context", "expert", "pipeline"}) {
    const std::optional<Value> v = map.find(key);
    if (v && v->whole(1, world) != 1)
      v->fail("this build cannot play a size other than 1 yet",
              "it plays replicate and shard; leave the others out");
  }
  if (const std::optional<Value> v = map.find("replicate")) mesh.replicate = v->whole(1, world);
  const std::optional<Value> shard = map.find("shard");
  if (!shard || shard->is_word("-1")) {
    if (world % mesh.replicate != 0)
      value->fail(fmt::format("replicate {} does not divide the {} GPUs of the cluster",
                              mesh.replicate, world));
    mesh.shard = world / mesh.replicate;
  } else {
    mesh.shard = shard->whole(1, world, "-1 stands for all that replicate leaves");
  }
  if (mesh.world() != world)
    value->fail(fmt::format("replicate {} x shard {} is {}, but the cluster has {} GPUs",
                            mesh.replicate, mesh.shard, mesh.world(), world),
                "shard: -1 stands for all that replicate leaves");
  return mesh;
}

// PyTorch takes 1 as False and the whole shard group as True
// (torch/distributed/fsdp/_fully_shard/_fsdp_init.py, _get_post_forward_mesh_info).
Reshard read_reshard(const Value& value, const Mesh& mesh) {
  if (value.is_word("default")) return {Reshard::Kind::standard, 0};
  if (value.is_word("true")) return {Reshard::Kind::yes, 0};
  if (value.is_word("false")) return {Reshard::Kind::no, 0};
  if (!parse_decimal(value.word()).ok())
    value.fail_expected("default, true, false or a number of ranks");
  const int64_t ranks = value.whole(1, mesh.shard);
  if (mesh.shard % ranks != 0)
    value.fail(fmt::format("{} does not divide the {} ranks that shard", ranks, mesh.shard),
               fmt::format("PyTorch: \"If passing reshard_after_forward as an int, it should be a "
                           "factor of {}, not {}\"",
                           mesh.shard, ranks));
  if (ranks == 1) return {Reshard::Kind::no, 0};
  if (ranks == mesh.shard) return {Reshard::Kind::yes, 0};
  return {Reshard::Kind::to, ranks};
}

std::string read_pattern(const Value& value) {
  constexpr size_t kLongest = 256;
  std::string pattern = value.text("a module's name, with * for any run of characters");
  if (pattern.size() > kLongest)
    value.fail(fmt::format("a pattern has at most {} characters", kLongest));
  return pattern;
}

void read_wrap(const Value& value, const Architecture& model, const Mesh& mesh, Wrap& wrap,
               Fsdp2Options& fsdp2) {
  const Map map(value, {"policy", "every", "min_params", "modules", "groups", "embedding", "head",
                        "head_reshard_after_forward"});
  if (const std::optional<Value> v = map.find("policy"))
    wrap.policy = v->choice<WrapPolicy>({{"root_only", WrapPolicy::root_only},
                                         {"per_block", WrapPolicy::per_block},
                                         {"every_k", WrapPolicy::every_k},
                                         {"nested", WrapPolicy::nested},
                                         {"children", WrapPolicy::children},
                                         {"list", WrapPolicy::list},
                                         {"groups", WrapPolicy::groups},
                                         {"size", WrapPolicy::size}});
  // The value of a key that one policy needs and no other takes.
  const auto only_for = [&](WrapPolicy policy, std::string_view name, std::string_view key,
                            bool required) -> std::optional<Value> {
    if (wrap.policy == policy && required) return map.at(key);
    if (wrap.policy != policy && map.has(key))
      map.fail_key(key, fmt::format("only policy {} has this key", name),
                   fmt::format("leave it out, or use policy: {}", name));
    return map.find(key);
  };
  if (const auto v = only_for(WrapPolicy::every_k, "every_k", "every", true))
    wrap.every = v->whole(1, kMostBlocks, "blocks that make one group");
  if (const auto v = only_for(WrapPolicy::size, "size", "min_params", false))
    wrap.min_params = v->whole(1, int64_t{1} << 50);
  if (const auto v = only_for(WrapPolicy::list, "list", "modules", true))
    for (const Value& pattern : v->list("module names", 1))
      wrap.groups.push_back({read_pattern(pattern)});
  if (const auto v = only_for(WrapPolicy::groups, "groups", "groups", true)) {
    for (const Value& group : v->list("groups", 1)) {
      std::vector<std::string>& patterns = wrap.groups.emplace_back();
      for (const Value& pattern : group.list("module names", 1))
        patterns.push_back(read_pattern(pattern));
    }
  }
  if (const std::optional<Value> v = map.find("embedding")) wrap.embedding = v->boolean();
  if (const std::optional<Value> v = map.find("head")) wrap.head = v->boolean();
  for (std::string_view key : {"embedding", "head"})
    if (!is_decoder(model) && map.has(key) && map.at(key).boolean())
      map.fail_key(key, fmt::format("a {} model has none", model.model_type));
  if (const std::optional<Value> v = map.find("head_reshard_after_forward")) {
    if (!wrap.head)
      map.fail_key("head_reshard_after_forward", "needs head: true, a group of norm and head",
                   "leave it out, or set head");
    fsdp2.head_reshard = read_reshard(*v, mesh);
  }
}

Micro read_micro(const Value& value) {
  return value.choice<Micro>(
      {{"each", Micro::each}, {"last", Micro::last}, {"never", Micro::never}});
}

void read_prefetch(const Value& value, Fsdp2Options& fsdp2) {
  const Map map(value, {"forward", "backward", "root_forward"});
  if (const std::optional<Value> v = map.find("forward"))
    fsdp2.forward_prefetch = v->whole(0, kMostBlocks, "blocks ahead; 0 is none");
  if (const std::optional<Value> v = map.find("root_forward"))
    fsdp2.root_forward_prefetch = v->whole(0, kMostBlocks, "blocks that the root prefetches");
  if (const std::optional<Value> v = map.find("backward"))
    fsdp2.backward_prefetch =
        v->is_word("implicit") ? 0 : v->whole(1, kMostBlocks, "implicit, or blocks ahead");
}

std::vector<std::string> read_patterns(const Value& value) {
  std::vector<std::string> out;
  for (const Value& pattern : value.list("patterns of parameter names", 1))
    out.push_back(read_pattern(pattern));
  return out;
}

// Where parameters are: on the host, unsharded early, on another dimension or mesh, in a state dict.
void read_fsdp2_placement(const Map& map, const Mesh& mesh, Fsdp2Options& fsdp2) {
  if (const std::optional<Value> v = map.find("cpu_offload"))
    fsdp2.cpu_offload = v->choice<CpuOffload>({{"none", CpuOffload::none},
                                               {"pinned", CpuOffload::pinned},
                                               {"pageable", CpuOffload::pageable}});
  if (const std::optional<Value> v = map.find("unshard_async_op"))
    fsdp2.unshard_async_op = v->boolean();
  if (const std::optional<Value> v = map.find("unshard_before")) {
    const Map fields(*v, {"modules", "async_op", "wait"});
    UnshardBefore& u = fsdp2.unshard_before;
    for (const Value& pattern : fields.at("modules").list("module names", 1))
      u.patterns.push_back(pattern.is_word("") ? "" : read_pattern(pattern));
    if (const std::optional<Value> x = fields.find("async_op")) u.async_op = x->boolean();
    if (const std::optional<Value> x = fields.find("wait")) u.wait = x->boolean();
    if (fields.has("wait") && !u.async_op)
      fields.fail_key("wait", "needs async_op: true, which makes handles to wait for",
                      "leave wait out, or set async_op");
  }
  if (const std::optional<Value> v = map.find("shard_placement"))
    for (const Value& entry : v->list("maps {parameter, dim}")) {
      const Map fields(entry, {"parameter", "dim"});
      fsdp2.shard_placement.push_back(
          {read_pattern(fields.at("parameter", "a parameter's name, * for any run of characters")),
           static_cast<int>(fields.at("dim").whole(0, 2, "the dimension that is sharded"))});
    }
  if (const std::optional<Value> v = map.find("second_mesh")) {
    const Map fields(*v, {"parameters", "shard"});
    fsdp2.second_mesh.patterns = read_patterns(fields.at("parameters"));
    const Value shard = fields.at("shard", "ranks of the second mesh");
    fsdp2.second_mesh.shard = shard.whole(1, mesh.shard);
    if (mesh.shard % fsdp2.second_mesh.shard != 0)
      shard.fail(fmt::format("{} does not divide the {} ranks that shard", fsdp2.second_mesh.shard,
                             mesh.shard));
  }
  if (const std::optional<Value> v = map.find("ignored_params"))
    fsdp2.ignored_params = read_patterns(*v);
  if (const std::optional<Value> v = map.find("manual_finalization"))
    fsdp2.manual_finalization =
        v->choice<ManualFinalization>({{"none", ManualFinalization::no},
                                       {"sync", ManualFinalization::sync},
                                       {"async", ManualFinalization::async}});
  if (const std::optional<Value> v = map.find("state_dict"))
    fsdp2.state_dict = v->choice<SavedState>({{"none", SavedState::none},
                                              {"sharded", SavedState::sharded},
                                              {"full", SavedState::full},
                                              {"full_offload", SavedState::full_offload}});
  if (const std::optional<Value> v = map.find("optimizer_state_dict")) {
    fsdp2.optimizer_state_dict = v->boolean();
    if (fsdp2.state_dict != SavedState::full && fsdp2.state_dict != SavedState::full_offload)
      map.fail_key("optimizer_state_dict", "needs state_dict: full or full_offload",
                   "a sharded state dict is of the model only here");
  }
}

void read_fsdp2(const Value& value, const Mesh& mesh, Fsdp2Options& fsdp2) {
  const Map map(value, {"reshard_after_forward",
                        "root_reshard_after_forward",
                        "reshard",
                        "prefetch",
                        "requires_gradient_sync",
                        "requires_all_reduce",
                        "is_last_backward",
                        "reshard_after_backward",
                        "reduce_scatter_max_input_buffers",
                        "separate_reduce_scatter_group",
                        "keep_unsharded_storage",
                        "persistent_all_gather",
                        "post_optim_event",
                        "settings",
                        "cpu_offload",
                        "unshard_async_op",
                        "unshard_before",
                        "shard_placement",
                        "second_mesh",
                        "ignored_params",
                        "manual_finalization",
                        "state_dict",
                        "optimizer_state_dict"});
  if (const std::optional<Value> v = map.find("reshard_after_forward"))
    fsdp2.reshard_after_forward = read_reshard(*v, mesh);
  if (const std::optional<Value> v = map.find("root_reshard_after_forward"))
    fsdp2.root_reshard = read_reshard(*v, mesh);
  if (const std::optional<Value> v = map.find("reshard")) {
    for (const Value& entry : v->list("maps {module, reshard_after_forward}")) {
      const Map fields(entry, {"module", "reshard_after_forward"});
      const Value module = fields.at("module", "a module's name, with * for any run of characters");
      fsdp2.overrides.push_back({module.is_word("") ? "" : read_pattern(module),
                                 read_reshard(fields.at("reshard_after_forward"), mesh)});
    }
  }
  if (const std::optional<Value> v = map.find("prefetch")) read_prefetch(*v, fsdp2);
  if (const std::optional<Value> v = map.find("requires_gradient_sync"))
    fsdp2.requires_gradient_sync = read_micro(*v);
  if (const std::optional<Value> v = map.find("requires_all_reduce"))
    fsdp2.requires_all_reduce = read_micro(*v);
  if (const std::optional<Value> v = map.find("is_last_backward"))
    fsdp2.is_last_backward = v->choice<Micro>({{"each", Micro::each}, {"last", Micro::last}});
  if (const std::optional<Value> v = map.find("reshard_after_backward"))
    fsdp2.reshard_after_backward = read_micro(*v);
  if (const std::optional<Value> v = map.find("reduce_scatter_max_input_buffers"))
    fsdp2.reduce_scatter_max_input_buffers = v->whole(1, kMostBlocks);
  if (const std::optional<Value> v = map.find("separate_reduce_scatter_group"))
    fsdp2.separate_reduce_scatter_group = v->boolean();
  if (const std::optional<Value> v = map.find("keep_unsharded_storage"))
    fsdp2.keep_unsharded_storage = v->boolean();
  if (const std::optional<Value> v = map.find("persistent_all_gather"))
    fsdp2.persistent_all_gather = v->boolean();
  if (const std::optional<Value> v = map.find("post_optim_event"))
    fsdp2.post_optim_event = v->boolean();
  if (const std::optional<Value> v = map.find("settings")) {
    for (const Value& entry : v->list("maps of a module and what is set on it")) {
      const Map fields(
          entry, {"module", "gradient_divide_factor", "force_sum_reduction", "unshard_in_backward",
                  "requires_gradient_sync", "requires_all_reduce", "reshard_after_backward",
                  "reduce_scatter_unused_params"});
      StateSetting& s = fsdp2.settings.emplace_back();
      const Value module = fields.at("module", "a module's name, with * for any run of characters");
      s.pattern = module.is_word("") ? "" : read_pattern(module);
      if (const std::optional<Value> x = fields.find("gradient_divide_factor"))
        s.gradient_divide_factor = x->decimal(1e-6, 1e9, "gradients are divided by it");
      if (const std::optional<Value> x = fields.find("force_sum_reduction"))
        s.force_sum_reduction = x->boolean();
      if (const std::optional<Value> x = fields.find("unshard_in_backward"))
        s.unshard_in_backward = x->boolean();
      if (const std::optional<Value> x = fields.find("requires_gradient_sync"))
        s.requires_gradient_sync = read_micro(*x);
      if (const std::optional<Value> x = fields.find("requires_all_reduce"))
        s.requires_all_reduce = read_micro(*x);
      if (const std::optional<Value> x = fields.find("reshard_after_backward"))
        s.reshard_after_backward = read_micro(*x);
      if (const std::optional<Value> x = fields.find("reduce_scatter_unused_params"))
        s.reduce_scatter_unused_params = x->boolean();
    }
  }
  read_fsdp2_placement(map, mesh, fsdp2);
}

void read_precision(const Value& value, Precision& precision) {
  const Map map(value, {"storage", "compute", "reduce", "output", "cast_forward_inputs", "keep",
                        "autocast", "autocast_backward"});
  if (const std::optional<Value> v = map.find("storage")) precision.storage = v->dtype();
  if (const std::optional<Value> v = map.find("compute")) precision.compute = v->optional_dtype();
  if (const std::optional<Value> v = map.find("reduce")) precision.reduce = v->optional_dtype();
  if (const std::optional<Value> v = map.find("output")) precision.output = v->optional_dtype();
  if (const std::optional<Value> v = map.find("cast_forward_inputs"))
    precision.cast_forward_inputs = v->boolean();
  if (const std::optional<Value> v = map.find("autocast")) {
    precision.autocast = v->optional_dtype();
    if (precision.autocast == DType::fp32) v->fail_expected("bf16 or none");
    if (precision.autocast == DType::fp16)
      v->fail("this build plays autocast to bf16 only",
              "fp16 needs a GradScaler, which scales the loss and reads the gradients back");
  }
  if (const std::optional<Value> v = map.find("autocast_backward")) {
    if (!precision.autocast)
      map.fail_key("autocast_backward", "needs autocast: bf16, the context it is about");
    precision.autocast_backward = v->boolean();
  }
  if (const std::optional<Value> v = map.find("keep")) {
    precision.keep = read_patterns(*v);
    if (precision.compute == DType::fp16)
      map.fail_key("keep", "this build cannot play fp16 beside another type in one group");
  }
}

void read_checkpointing(const Value& value, Checkpointing& checkpointing) {
  using Mode = Checkpointing::Mode;
  const Map map(value, {"mode", "every", "part", "around", "reentrant"});
  checkpointing.mode = map.at("mode").choice<Mode>({{"none", Mode::none},
                                                    {"full", Mode::full},
                                                    {"selective_op", Mode::selective_op},
                                                    {"every_k", Mode::every_k}});
  if (checkpointing.mode == Mode::every_k)
    checkpointing.every = map.at("every").whole(1, kMostBlocks, "blocks 0, k, 2k, ...");
  else if (map.has("every"))
    map.fail_key("every", "only mode every_k has this key", "leave it out, or use mode: every_k");
  if (checkpointing.mode == Mode::none)
    for (std::string_view key : {"part", "around", "reentrant"})
      if (map.has(key)) map.fail_key(key, "mode none has no checkpoint", "use mode: full");
  if (const std::optional<Value> v = map.find("part"))
    checkpointing.part = v->text("the name of a child of each block, as mlp");
  if (const std::optional<Value> v = map.find("around")) checkpointing.around = v->boolean();
  if (checkpointing.around && !checkpointing.part.empty())
    map.fail_key("around", "a checkpoint around a part of a block is inside the wrapped block",
                 "leave out part for a checkpoint around whole wrapped blocks");
  if (const std::optional<Value> v = map.find("reentrant")) {
    checkpointing.reentrant = v->boolean();
    if (checkpointing.reentrant && checkpointing.mode == Mode::selective_op)
      map.fail_key("reentrant", "a reentrant checkpoint recomputes everything",
                   "PyTorch's selective checkpointing needs use_reentrant=False");
    if (checkpointing.reentrant && !checkpointing.part.empty())
      map.fail_key("reentrant", "this build plays a reentrant checkpoint around whole blocks only",
                   "leave out part");
  }
}

void read_optimizer(const Value& value, Training& training) {
  Optimizer& optimizer = training.optimizer;
  using Name = Optimizer::Name;
  using Implementation = Optimizer::Implementation;
  const Map map(value, {"name", "implementation", "momentum", "amsgrad", "weight_decay",
                        "zero_grad", "clip_grad_norm", "in_backward"});
  if (const std::optional<Value> v = map.find("name"))
    optimizer.name = v->choice<Name>(
        {{"adamw", Name::adamw}, {"adam", Name::adam}, {"sgd", Name::sgd}, {"none", Name::none}});
  if (const std::optional<Value> v = map.find("implementation"))
    optimizer.implementation = v->choice<Implementation>({{"foreach", Implementation::foreach},
                                                          {"fused", Implementation::fused},
                                                          {"forloop", Implementation::forloop}});
  if (optimizer.name == Name::sgd && optimizer.implementation == Implementation::fused &&
      !keeps_parameters_whole(training.strategy))
    map.at("implementation")
        .fail("PyTorch 2.15 has no fused SGD for sharded parameters",
              "its DTensor raises NotImplementedError at the first step; foreach and forloop work");
  if (const std::optional<Value> v = map.find("momentum")) {
    if (optimizer.name != Name::sgd)
      map.fail_key("momentum", "only sgd has this key", "leave it out, or use name: sgd");
    optimizer.momentum = v->decimal(0, 1) != 0;
  }
  if (const std::optional<Value> v = map.find("amsgrad")) {
    if (optimizer.name != Name::adam && optimizer.name != Name::adamw)
      map.fail_key("amsgrad", "only adam and adamw have this key");
    optimizer.amsgrad = v->boolean();
  }
  if (const std::optional<Value> v = map.find("weight_decay")) {
    if (optimizer.name != Name::adam && optimizer.name != Name::sgd)
      map.fail_key("weight_decay", "only adam and sgd have this key",
                   "adamw decays in place, whatever its value");
    optimizer.weight_decay = v->decimal(0, 1);
  }
  if (const std::optional<Value> v = map.find("in_backward")) {
    optimizer.in_backward = v->boolean();
    if (optimizer.in_backward &&
        (optimizer.name != Name::sgd || optimizer.momentum || optimizer.weight_decay > 0 ||
         optimizer.implementation != Implementation::foreach))
      map.fail_key("in_backward", "this build plays only plain foreach sgd in backward",
                   "use {name: sgd, implementation: foreach} without momentum");
    if (optimizer.in_backward && map.has("clip_grad_norm"))
      map.fail_key("in_backward", "there are no gradients left for clip_grad_norm",
                   "leave one of the two out");
  }
  if (const std::optional<Value> v = map.find("zero_grad"))
    optimizer.set_to_none = v->choice<bool>({{"none", true}, {"keep", false}});
  if (const std::optional<Value> v = map.find("clip_grad_norm"))
    training.clip_grad_norm = v->decimal(1e-12, 1e12, "the largest norm that gradients keep");
}

void read_strategy(const Map& map, int64_t world, Training& training) {
  const Value value = map.at("strategy", "fsdp2 (fully_shard) or fsdp1 (FullyShardedDataParallel)");
  const std::pair<std::string_view, Strategy> known[] = {
      {"none", Strategy::none},   {"ddp", Strategy::ddp},     {"fsdp1", Strategy::fsdp1},
      {"fsdp2", Strategy::fsdp2}, {"zero1", Strategy::zero1}, {"zero2", Strategy::zero2},
      {"zero3", Strategy::zero3}};
  const auto* const found = std::find_if(std::begin(known), std::end(known),
                                         [&](const auto& k) { return value.is_word(k.first); });
  if (found == std::end(known))
    value.fail_expected("one of none, ddp, zero1, zero2, zero3, fsdp1, fsdp2");
  training.strategy = found->second;
  if (training.strategy == Strategy::zero1 && asks_for_torch(map))
    training.strategy = Strategy::torch_zero1;
  for (const std::string_view key : {"fsdp1", "fsdp2"})
    if (map.has(key) && !value.is_word(key))
      map.fail_key(key, fmt::format("only strategy {} has this section", key),
                   fmt::format("leave it out, or use strategy: {}", key));
  if (map.has("ddp") && !reduces_buckets(training.strategy))
    map.fail_key("ddp", "only strategy ddp, and zero1 with implementation torch, has this section",
                 "leave it out, or use strategy: ddp");
  if (map.has("zero") && !is_zero(training.strategy) && training.strategy != Strategy::torch_zero1)
    map.fail_key("zero", "only strategies zero1, zero2 and zero3 have this section");
  if (keeps_parameters_whole(training.strategy) && map.has("wrap"))
    map.fail_key("wrap", "nothing is wrapped: parameters stay whole",
                 "strategies fsdp1 and fsdp2 have this section");
  if (training.strategy == Strategy::none && world > 1)
    value.fail(fmt::format("strategy none trains on one GPU, and the cluster has {}", world),
               "use ddp, or cluster: {gpus_per_node: 1, nodes: 1}");
  // MixedPrecision's default; MixedPrecisionPolicy casts.
  if (training.strategy == Strategy::fsdp1) training.precision.cast_forward_inputs = false;
}

// "2025-03" as 202503.
SoftwareDate read_month(const Value& value) {
  const std::string text = value.text("year and month, \"2025-03\"");
  const auto digit = [&](size_t i) { return text[i] >= '0' && text[i] <= '9'; };
  const bool form = text.size() == 7 && text[4] == '-' && digit(0) && digit(1) && digit(2) &&
                    digit(3) && digit(5) && digit(6);
  const int year = form ? std::stoi(text.substr(0, 4)) : 0;
  const int month = form ? std::stoi(text.substr(5)) : 0;
  if (year < 2016 || month < 1 || month > 12)
    value.fail_expected("a year and month from \"2016-01\" on",
                        "when PyTorch and its kernels were released");
  return year * 100 + month;
}

void read_pytorch(const Map& map, Training& training) {
  if (const std::optional<Value> v = map.find("pytorch")) {
    training.pytorch = v->text();
    if (!behaviour_of(training.pytorch))
      v->fail(
          fmt::format("this build cannot play PyTorch {}", quoted_for_message(training.pytorch)),
          fmt::format("it plays {}", played_releases()));
  }
  if (const std::optional<Value> v = map.find("software")) training.software = read_month(*v);
  if (const std::optional<Value> v = map.find("attention_backend")) {
    if (v->is_word("math"))
      v->fail("written out attention is the model's choice", "write model: {sdpa: math}");
    if (v->is_word("flash"))
      v->fail_expected("one of auto, fa2, fa3, cudnn, triton, efficient",
                       "fa2 or fa3: which FlashAttention it is");
    training.attention_backend =
        v->choice<AttentionBackend>({{"auto", AttentionBackend::automatic},
                                     {"fa2", AttentionBackend::fa2},
                                     {"fa3", AttentionBackend::fa3},
                                     {"cudnn", AttentionBackend::cudnn},
                                     {"triton", AttentionBackend::triton},
                                     {"efficient", AttentionBackend::efficient}});
  }
  if (const std::optional<Value> v = map.find("nccl_backend"))
    training.legacy_nccl = v->choice<bool>({{"default", false}, {"legacy", true}});
  if (const std::optional<Value> v = map.find("allocator")) {
    if (!v->is_map()) v->fail_expected("a map", "write {} for PyTorch's defaults");
    // PYTORCH_CUDA_ALLOC_CONF's own names; what the values may be belongs to the allocator.
    const Map settings(
        *v, {"max_split_size_mb", "max_non_split_rounding_mb", "roundup_power2_divisions",
             "garbage_collection_threshold", "expandable_segments", "large_segment_size_mb",
             "per_process_memory_fraction"});
    for (const std::string_view key :
         {"max_split_size_mb", "max_non_split_rounding_mb", "roundup_power2_divisions",
          "garbage_collection_threshold", "expandable_segments", "large_segment_size_mb",
          "per_process_memory_fraction"}) {
      const std::optional<Value> x = settings.find(key);
      if (!x) continue;
      if (!x->is_scalar()) x->fail_expected("one value", "a list of divisions goes in quotes");
      std::string text(x->word());
      if (key == "expandable_segments") text = x->boolean() ? "True" : "False";
      if (!training.allocator.empty()) training.allocator += ",";
      training.allocator += fmt::format("{}:{}", key, text);
    }
  }
}

// What real PyTorch refuses, or this build cannot play, of keys that are fine each by itself.
void refuse_combinations(const Map& map, const Architecture& model, const Training& t) {
  const Fsdp2Options& f = t.fsdp2;
  const Precision& p = t.precision;
  const auto refuse = [&](std::string_view section, std::string_view key, const std::string& what,
                          const std::string& hint) {
    Map(map.at(section), Map::any_key).fail_key(key, what, hint);
  };
  if (keeps_parameters_whole(t.strategy) && (p.compute || p.reduce || p.output))
    map.at("precision")
        .fail("parameters that stay whole compute in the type they are stored in",
              "storage and autocast are the keys of precision here");
  if (is_zero(t.strategy) && model.family == Family::stack && t.input_dtype != DType::bf16) {
    const std::string what = "DeepSpeed computes in bf16, which a linear's input has to be in";
    if (map.has("input_dtype")) map.at("input_dtype").fail(what, "write input_dtype: bf16");
    map.at("strategy").fail(what, "add input_dtype: bf16 to training");
  }
  if (t.strategy != Strategy::ddp && !model.buffers.empty())
    map.at("strategy")
        .fail("this build plays a stack's buffers with strategy ddp only",
              "leave model.buffers out");
  if (t.strategy != Strategy::fsdp2 && !t.precision.keep.empty())
    refuse("precision", "keep", "only strategy fsdp2 has param_dtype_override_fn",
           "MixedPrecision has one param_dtype for all of a unit");
  if (t.strategy != Strategy::fsdp2 && t.optimizer.in_backward)
    refuse("optimizer", "in_backward", "this build plays it only with strategy fsdp2",
           "leave it out: the optimizer steps after backward");
  if (t.strategy == Strategy::fsdp1 && t.fsdp1.keep_low_precision_grads && p.compute &&
      *p.compute != p.storage) {
    const Optimizer& o = t.optimizer;
    const bool foreach = o.implementation == Optimizer::Implementation::foreach;
    const bool adam = o.name == Optimizer::Name::adamw || o.name == Optimizer::Name::adam;
    if (adam || (o.name == Optimizer::Name::sgd && foreach && !t.behaviour().foreach_sgd_mixes))
      refuse("fsdp1", "keep_low_precision_grads",
             fmt::format("the optimizer takes no {} gradients of {} parameters",
                         name_of(*p.compute), name_of(p.storage)),
             adam ? "PyTorch raises RuntimeError (expected dtype float but got another); use sgd"
                  : "PyTorch 2.7's foreach SGD raises RuntimeError; use implementation: forloop");
  }
  if (t.pytorch == "2.7" && !f.second_mesh.patterns.empty())
    refuse("fsdp2", "second_mesh", "PyTorch 2.7 has none", "use pytorch: \"2.15\"");
  if (t.pytorch == "2.7" && f.manual_finalization != ManualFinalization::no)
    refuse("fsdp2", "manual_finalization", "PyTorch 2.7 has none", "use pytorch: \"2.15\"");
  if (t.pytorch == "2.7" && !t.precision.keep.empty())
    refuse("precision", "keep", "PyTorch 2.7 has no param_dtype_override_fn",
           "use pytorch: \"2.15\"");
  if (f.cpu_offload != CpuOffload::none && t.clip_grad_norm > 0)
    refuse("optimizer", "clip_grad_norm", "it does not go with fsdp2.cpu_offload",
           "PyTorch raises RuntimeError: NCCL cannot reduce norms that are on the host");
  if (!f.ignored_params.empty() && t.optimizer.name != Optimizer::Name::none &&
      t.optimizer.implementation != Optimizer::Implementation::forloop)
    refuse("fsdp2", "ignored_params", "it needs optimizer: {implementation: forloop}",
           "PyTorch's foreach and fused optimizers refuse DTensors beside plain tensors "
           "(RuntimeError: got mixed torch.Tensor and DTensor)");
  if (!f.ignored_params.empty() && (t.clip_grad_norm > 0 || f.cpu_offload != CpuOffload::none))
    refuse("fsdp2", "ignored_params",
           "this build cannot play it with cpu_offload or clip_grad_norm", "leave one of them out");
  if (f.optimizer_state_dict &&
      (t.optimizer.name == Optimizer::Name::none || t.optimizer.in_backward ||
       (t.optimizer.name == Optimizer::Name::sgd && !t.optimizer.momentum)))
    refuse("fsdp2", "optimizer_state_dict", "it needs an optimizer with a state",
           "adamw, adam, or sgd with momentum");
}

}  // namespace

Training read_training(const Value& value, const Architecture& model, int64_t world) {
  const Map map(value, {"pytorch",
                        "software",
                        "attention_backend",
                        "nccl_backend",
                        "seq_len",
                        "micro_batch",
                        "grad_accum",
                        "strategy",
                        "mesh",
                        "wrap",
                        "fsdp2",
                        "fsdp1",
                        "ddp",
                        "zero",
                        "precision",
                        "input_dtype",
                        "loss",
                        "activation_checkpointing",
                        "optimizer",
                        "allocator",
                        "frozen",
                        "evaluate_after",
                        "forwards",
                        "compile",
                        "compile_benchmarks",
                        "token_budget"});
  Training training;
  read_pytorch(map, training);
  read_strategy(map, world, training);
  if (is_decoder(model)) {
    training.seq_len = map.at("seq_len", "tokens of one sequence").whole(1, kMostSeqLen);
    if (model.max_positions > 0 && training.seq_len > model.max_positions)
      map.at("seq_len").fail(fmt::format("{} tokens are more than the model's {} positions",
                                         training.seq_len, model.max_positions));
    if (map.has("input_dtype"))
      map.fail_key("input_dtype", "a decoder's input is tokens; only stack and bag have this key");
  } else {
    if (map.has("seq_len")) map.fail_key("seq_len", "a stack or bag has rows, no sequences");
    if (const std::optional<Value> v = map.find("input_dtype")) training.input_dtype = v->dtype();
  }
  if (const std::optional<Value> v = map.find("micro_batch"))
    training.micro_batch =
        v->whole(1, kMostMicroBatch, "sequences per data-parallel rank in one forward pass");
  if (const std::optional<Value> v = map.find("grad_accum"))
    training.grad_accum =
        v->whole(1, kMostGradAccum, "forward and backward passes before the optimizer steps");
  if (const std::optional<Value> v = map.find("forwards"))
    training.forwards =
        v->whole(1, kMostForwards, "forward passes whose losses are added before one backward");
  if (const std::optional<Value> v = map.find("token_budget")) {
    if (!is_decoder(model)) map.fail_key("token_budget", "a stack or bag has rows, no tokens");
    training.token_budget = v->whole(1, kMostTokenBudget, kTokenBudgetHint);
  }
  training.mesh = read_mesh(map.find("mesh"), world);
  if (const std::optional<Value> v = map.find("wrap"))
    read_wrap(*v, model, training.mesh, training.wrap, training.fsdp2);
  if (const std::optional<Value> v = map.find("fsdp2"))
    read_fsdp2(*v, training.mesh, training.fsdp2);
  if (keeps_parameters_whole(training.strategy) && map.has("mesh"))
    map.fail_key("mesh", "parameters stay whole on every rank: there is nothing to shard",
                 "leave mesh out; gradients are reduced over all GPUs");
  if (const std::optional<Value> v = map.find("fsdp1")) read_fsdp1(*v, training.fsdp1);
  if (const std::optional<Value> v = map.find("ddp")) read_ddp(*v, training, training.ddp);
  if (const std::optional<Value> v = map.find("precision")) read_precision(*v, training.precision);
  if (const std::optional<Value> v = map.find("loss")) read_loss(*v, model, training);
  if (const std::optional<Value> v = map.find("activation_checkpointing"))
    read_checkpointing(*v, training.checkpointing);
  if (const std::optional<Value> v = map.find("compile"))
    training.compile = v->choice<Compile>({{"none", Compile::none},
                                           {"blocks", Compile::blocks},
                                           {"blocks_and_loss", Compile::blocks_and_loss},
                                           {"model", Compile::model},
                                           {"model_and_loss", Compile::model_and_loss}});
  if (const std::optional<Value> v = map.find("compile_benchmarks")) {
    training.compile_benchmarks = v->boolean();
    if (training.compile == Compile::none)
      map.fail_key("compile_benchmarks", "nothing is compiled", "leave it out, or set compile");
  }
  if (const std::optional<Value> v = map.find("optimizer")) read_optimizer(*v, training);
  if (const std::optional<Value> v = map.find("frozen"))
    for (const Value& pattern : v->list("patterns of parameter names"))
      training.frozen.push_back(pattern.text("* stands for any run of characters: \"*.mlp.*\""));
  if (const std::optional<Value> v = map.find("evaluate_after"))
    training.evaluate_after = v->boolean();
  if (is_zero(training.strategy)) read_zero(map, training);
  if (training.strategy == Strategy::torch_zero1) read_torch_zero(map, training);
  refuse_combinations(map, model, training);
  return training;
}

}  // namespace shardsim
