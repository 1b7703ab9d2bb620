#include "sim/config/zero.h"

#include <fmt/format.h>

#include <cmath>

namespace shardsim {

namespace {

// DeepSpeed's configurations write 5e8.
int64_t elements(const Value& v, int64_t low) {
  constexpr double kMost = 1e15;
  const double d = v.decimal(static_cast<double>(low), kMost, "a number of elements: 5e8");
  if (d != std::floor(d)) v.fail_expected("a whole number of elements", "5e8 is one");
  return static_cast<int64_t>(d);
}

void refuse_keys(const Map& map, const Training& t) {
  const auto refuse = [&](std::string_view key, const std::string& what, const std::string& hint) {
    if (map.has(key)) map.fail_key(key, what, hint);
  };
  refuse("allgather_bucket_size", "DeepSpeed reads it and does not use it",
         "the flat buffer is gathered at once wherever torch has all_gather_into_tensor; leave it "
         "out");
  if (const std::optional<Value> v = map.find("contiguous_gradients"); v && !v->boolean())
    v->fail("this build plays contiguous_gradients: true only", "DeepSpeed's default is true");
  for (std::string_view key : {"offload_optimizer", "offload_param"}) map.cannot_play(key);
  const bool stage3 = t.strategy == Strategy::zero3;
  for (const char* key : {"stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
                          "stage3_model_persistence_threshold", "stage3_max_live_parameters",
                          "stage3_max_reuse_distance", "sub_group_size"})
    if (!stage3) refuse(key, "only strategy zero3 has this key", "");
  for (const char* key : {"use_multi_rank_bucket_allreduce", "round_robin_gradients"})
    if (stage3) refuse(key, "only strategies zero1 and zero2 have this key", "");
}

void read_section(const Value& value, Training& t) {
  const Map map(value,
                {"implementation", "overlap_comm", "reduce_bucket_size", "reduce_scatter",
                 "use_multi_rank_bucket_allreduce", "round_robin_gradients", "gradient_clipping",
                 "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
                 "stage3_model_persistence_threshold", "stage3_max_live_parameters",
                 "stage3_max_reuse_distance", "sub_group_size", "allgather_bucket_size",
                 "contiguous_gradients", "offload_optimizer", "offload_param"});
  ZeroOptions& z = t.zero;
  if (const std::optional<Value> v = map.find("implementation")) {
    if (v->is_word("torch"))
      v->fail("torch's ZeroRedundancyOptimizer is ZeRO's stage 1 alone", "use strategy: zero1");
    v->choice<bool>({{"deepspeed", true}});
  }
  refuse_keys(map, t);
  const auto flag = [&](std::string_view key, bool& to) {
    if (const std::optional<Value> v = map.find(key)) to = v->boolean();
  };
  const auto size = [&](std::string_view key, int64_t& to, int64_t low) {
    if (const std::optional<Value> v = map.find(key)) to = elements(*v, low);
  };
  flag("overlap_comm", z.overlap_comm);
  size("reduce_bucket_size", z.reduce_bucket_size, 1);
  flag("reduce_scatter", z.reduce_scatter);
  flag("use_multi_rank_bucket_allreduce", z.use_multi_rank_bucket_allreduce);
  flag("round_robin_gradients", z.round_robin_gradients);
  if (const std::optional<Value> v = map.find("gradient_clipping"))
    z.gradient_clipping = v->decimal(0, 1e12, "0 is none; DeepSpeed's default is 1");
  size("stage3_prefetch_bucket_size", z.prefetch_bucket_size, 0);
  size("stage3_param_persistence_threshold", z.param_persistence_threshold, 0);
  size("stage3_model_persistence_threshold", z.model_persistence_threshold, 0);
  size("stage3_max_live_parameters", z.max_live_parameters, 0);
  size("stage3_max_reuse_distance", z.max_reuse_distance, 0);
  size("sub_group_size", z.sub_group_size, 1);
}

// What DeepSpeed refuses, or this build cannot play, of the keys outside the section.
void refuse_around(const Map& map, const Training& t) {
  const Value strategy = map.at("strategy");
  if (map.has("wrap"))
    map.fail_key("wrap", "DeepSpeed wraps nothing",
                 t.strategy == Strategy::zero3 ? "each module that owns parameters gathers them"
                                               : "the parameters stand in one flat buffer");
  if (t.pytorch != "2.15")
    strategy.fail("this build plays DeepSpeed with PyTorch 2.15 only", "leave pytorch out");
  if (t.mesh.replicate > 1)
    map.at("mesh").fail("DeepSpeed's ZeRO shards over all ranks", "leave replicate at 1");
  if (map.has("precision")) {
    const Map precision(map.at("precision"), Map::any_key);
    for (std::string_view key : {"compute", "reduce", "output", "cast_forward_inputs", "keep",
                                 "autocast", "autocast_backward"})
      if (precision.has(key))
        precision.fail_key(key,
                           "this build plays DeepSpeed with bf16 enabled: computed and reduced in "
                           "bf16, the master weights in fp32",
                           "storage is the type that the model is made in; leave the others out");
    if (t.precision.storage == DType::fp16)
      precision.at("storage").fail("this build plays models made in fp32 or bf16 with DeepSpeed");
  }
  const Optimizer& o = t.optimizer;
  if (map.has("optimizer")) {
    const Map optimizer(map.at("optimizer"), Map::any_key);
    if (t.clip_grad_norm > 0)
      optimizer.fail_key(
          "clip_grad_norm", "it is not DeepSpeed's",
          "DeepSpeed: \"'max_grad_norm' is not supported as an optimizer parameter, please "
          "switch to using the deepspeed parameter 'gradient_clipping'\"; set "
          "zero.gradient_clipping");
    if (o.name == Optimizer::Name::sgd)
      optimizer.at("name").fail(
          "sgd is not one of DeepSpeed's ZeRO optimizers",
          "DeepSpeed: \"You are using an untested ZeRO Optimizer. Please add "
          "<\"zero_allow_untested_optimizer\": true> in the configuration file to use it.\"; "
          "adamw and adam are tested");
    if (o.name == Optimizer::Name::none)
      optimizer.at("name").fail("DeepSpeed's step has an optimizer", "adamw or adam");
    if (!o.set_to_none)
      optimizer.at("zero_grad").fail("DeepSpeed's step drops the gradients", "leave it out");
  }
  if (t.checkpointing.reentrant)
    map.at("activation_checkpointing").fail("this build plays reentrant checkpoints without ZeRO");
  if (t.strategy == Strategy::zero3 && !t.checkpointing.part.empty())
    map.at("activation_checkpointing")
        .fail("this build plays checkpoints around whole blocks with zero3");
  if (t.forwards > 1) map.fail_key("forwards", "this build plays one forward a backward with ZeRO");
  if (t.evaluate_after) map.fail_key("evaluate_after", "this build cannot play it with ZeRO");
}

}  // namespace

bool asks_for_torch(const Map& training) {
  const std::optional<Value> zero = training.find("zero");
  if (!zero || !zero->is_map()) return false;
  const std::optional<Value> v = Map(*zero, Map::any_key).find("implementation");
  return v && v->is_word("torch");
}

void read_torch_zero(const Map& training, Training& t) {
  const Map map(training.at("zero"), {"implementation", "parameters_as_bucket_view"});
  if (const std::optional<Value> v = map.find("parameters_as_bucket_view"))
    t.parameters_as_bucket_view = v->boolean();
  if (t.optimizer.name == Optimizer::Name::none)
    training.at("optimizer")
        .fail("ZeroRedundancyOptimizer shards an optimizer's state", "name adamw, adam or sgd");
}

void read_zero(const Map& training, Training& t) {
  t.zero.overlap_comm = t.strategy == Strategy::zero3;
  if (const std::optional<Value> v = training.find("zero")) read_section(*v, t);
  refuse_around(training, t);
  t.zero.made_in = t.precision.storage;
  t.precision.storage = DType::fp32;  // of the master weights
  t.precision.compute = DType::bf16;
  t.precision.cast_forward_inputs = false;
}

}  // namespace shardsim
