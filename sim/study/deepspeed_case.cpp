#include "sim/study/deepspeed_case.h"

#include <cmath>

namespace shardsim {

namespace {

using nlohmann::json;

constexpr int64_t kMostElements = int64_t{1} << 50;

// Accepted with this value only, which is the default.
Reader only(const std::string& key, bool value) {
  return [key, value](const json& v) {
    if (flag(key, v) != value) skip(key, v);
  };
}

// DeepSpeed takes 5e8 as a whole number.
Reader elements(const std::string& key, int64_t& to, int64_t low) {
  return [key, &to, low](const json& v) {
    if (v.is_number_float() && std::floor(v.get<double>()) == v.get<double>() &&
        v.get<double>() < static_cast<double>(kMostElements))
      to = whole(key, json(static_cast<int64_t>(v.get<double>())), low, kMostElements);
    else
      to = whole(key, v, low, INT64_MAX);
  };
}

void read_zero(const json& config, Training& t) {
  ZeroOptions& z = t.zero;
  const std::string at = "deepspeed.zero_optimization.";
  z.overlap_comm = t.strategy == Strategy::zero3;
  Readers readers{
      {"stage", nothing()},
      {"overlap_comm",
       [&](const json& v) {
         if (!v.is_null()) z.overlap_comm = flag(at + "overlap_comm", v);
       }},
      {"reduce_bucket_size", elements(at + "reduce_bucket_size", z.reduce_bucket_size, 1)},
      {"reduce_scatter", truth(at + "reduce_scatter", z.reduce_scatter)},
      {"contiguous_gradients", only(at + "contiguous_gradients", true)},
      // Read, and without effect where all_gather_into_tensor exists.
      {"allgather_bucket_size", nothing()},
      {"allgather_partitions", nothing()},
  };
  if (t.strategy == Strategy::zero3) {
    const auto size = [&](const char* key, int64_t& to) {
      readers[std::string("stage3_") + key] = elements(at + "stage3_" + key, to, 0);
    };
    size("prefetch_bucket_size", z.prefetch_bucket_size);
    size("param_persistence_threshold", z.param_persistence_threshold);
    size("model_persistence_threshold", z.model_persistence_threshold);
    size("max_live_parameters", z.max_live_parameters);
    size("max_reuse_distance", z.max_reuse_distance);
    readers["sub_group_size"] = elements(at + "sub_group_size", z.sub_group_size, 1);
    for (const char* key : {"use_multi_rank_bucket_allreduce", "round_robin_gradients"})
      readers[key] = nothing();
  } else {
    readers["use_multi_rank_bucket_allreduce"] =
        truth(at + "use_multi_rank_bucket_allreduce", z.use_multi_rank_bucket_allreduce);
    readers["round_robin_gradients"] = truth(at + "round_robin_gradients", z.round_robin_gradients);
    for (const char* key : {"stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
                            "stage3_model_persistence_threshold", "stage3_max_live_parameters",
                            "stage3_max_reuse_distance", "sub_group_size"})
      readers[key] = nothing();
  }
  read(at, config, readers);
}

void read_optimizer(const json& config, Optimizer& o) {
  bool torch_adam = false;
  const auto given = [](bool& to) {
    return [&to](const json& v) { to = v.is_boolean() && v.get<bool>(); };
  };
  bool fused = false, forloop = false;
  read("deepspeed.optimizer.", config,
       {{"type",
         [&](const json& v) {
           const std::string name = v.is_string() ? v.get<std::string>() : "";
           if (name != "AdamW" && name != "Adam") skip("deepspeed.optimizer.type", v);
         }},
        {"params", [&](const json& v) {
           Readers params{{"torch_adam", given(torch_adam)},
                          {"fused", given(fused)},
                          {"foreach", [&](const json& x) { forloop = x.is_boolean() && !x; }},
                          {"adam_w_mode", only("deepspeed.optimizer.params.adam_w_mode", true)}};
           for (const char* key : {"lr", "betas", "eps", "weight_decay"}) params[key] = nothing();
           read("deepspeed.optimizer.params.", v, params);
         }}});
  // DeepSpeed's own FusedAdam is a kernel that it compiles.
  if (!torch_adam) skip("deepspeed.optimizer.params.torch_adam", json(false));
  o.name = Optimizer::Name::adamw;
  o.implementation = fused     ? Optimizer::Implementation::fused
                     : forloop ? Optimizer::Implementation::forloop
                               : Optimizer::Implementation::foreach;
}

}  // namespace

Strategy deepspeed_strategy(const json& config) {
  const json zero = config.is_object() ? config.value("zero_optimization", json()) : json();
  const json stage = zero.is_object() ? zero.value("stage", json()) : json();
  if (stage == 1) return Strategy::zero1;
  if (stage == 2) return Strategy::zero2;
  if (stage == 3) return Strategy::zero3;
  skip("deepspeed.zero_optimization.stage", stage);
}

void read_deepspeed(const json& config, Training& t) {
  bool bf16 = false, optimizer = false;
  t.zero.made_in = t.precision.storage;
  t.precision.storage = DType::fp32;  // of the master weights
  t.precision.compute = DType::bf16;
  t.precision.cast_forward_inputs = false;
  Readers readers{
      {"gradient_accumulation_steps",
       [&](const json& v) {
         if (v != json(t.grad_accum)) skip("deepspeed.gradient_accumulation_steps", v);
       }},
      {"bf16",
       [&](const json& v) {
         read("deepspeed.bf16.", v, {{"enabled", [&](const json& x) { bf16 = x == json(true); }}});
       }},
      {"optimizer",
       [&](const json& v) {
         optimizer = true;
         read_optimizer(v, t.optimizer);
       }},
      {"gradient_clipping",
       [&](const json& v) {
         if (!v.is_number()) skip("deepspeed.gradient_clipping", v);
         t.zero.gradient_clipping = v.get<double>();
       }},
      {"zero_optimization", [&](const json& v) { read_zero(v, t); }},
  };
  for (const char* key : {"train_micro_batch_size_per_gpu", "train_batch_size", "steps_per_print"})
    readers[key] = nothing();
  read("deepspeed.", config, readers);
  if (!bf16) skip("deepspeed.bf16", config.value("bf16", json()));
  if (!optimizer) skip("deepspeed.optimizer", json());
  if (!config.contains("gradient_accumulation_steps") && t.grad_accum > 1)
    skip("deepspeed.gradient_accumulation_steps", json());
}

}  // namespace shardsim
