#include "sim/study/strategy_variants.h"

#include <fmt/format.h>

#include <deque>

#include "sim/config/overlay.h"
#include "sim/config/scenario.h"
#include "sim/cost/host_work.h"

namespace shardsim {

namespace {

bool is_fsdp(Strategy s) { return s == Strategy::fsdp1 || s == Strategy::fsdp2; }

// The type that products run in.
DType compute_of(const Scenario& s) {
  const Precision& p = s.training.precision;
  return p.autocast.value_or(p.compute.value_or(p.storage));
}

}  // namespace

const std::vector<std::string>& strategy_variants() {
  static const std::vector<std::string> names{
      "fsdp2", "fsdp2-keep", "hsdp", "fsdp1", "fsdp1-grad-op", "ddp", "zero1", "zero2", "zero3"};
  return names;
}

StrategyVariant::StrategyVariant(std::string name, std::shared_ptr<const Document> text,
                                 std::string file, const Scenario& scenario)
    : name_(std::move(name)), file_(std::move(file)), text_(std::move(text)) {
  const bool fsdp = name_.find("sdp") != std::string::npos;
  if (offloads(scenario.training) && !fsdp) {
    impossible_ = "the scenario offloads to the host, which only FSDP is played with";
    return;
  }
  if (name_ == "ddp")
    edit_ddp(scenario);
  else if (name_.starts_with("zero"))
    edit_zero(scenario);
  else if (name_.starts_with("fsdp1"))
    edit_fsdp1(scenario);
  else
    edit_fully_shard(scenario);
  if (scenario.training.mesh.replicate > 1 && !replicates() && name_ != "ddp")
    changes_.emplace_back("shards over all GPUs");
}

// What DeepSpeed does without being asked, in the keys of the others.
void StrategyVariant::from_deepspeed(const Scenario& scenario) {
  if (!is_zero(scenario.training.strategy)) return;
  set("training.precision", "{storage: fp32, compute: bf16, reduce: bf16}");
  if (scenario.training.zero.gradient_clipping > 0)
    set("training.optimizer.clip_grad_norm",
        fmt::format("{}", scenario.training.zero.gradient_clipping));
  changes_.emplace_back("bf16 with fp32 master weights and clipping are FSDP's own");
}

void StrategyVariant::edit_fully_shard(const Scenario& scenario) {
  from_deepspeed(scenario);
  set("training.strategy", "fsdp2");
  for (const char* section : {"fsdp1", "ddp", "zero", "mesh"})
    drop(std::string("training.") + section);
  if (scenario.training.strategy == Strategy::fsdp1 && offloads(scenario.training))
    set("training.fsdp2.cpu_offload", "pinned");
  set("training.fsdp2.reshard_after_forward", name_ == "fsdp2-keep" ? "false" : "true");
  if (replicates())
    changes_.emplace_back("shards over the GPUs of a node and replicates over the nodes");
  if (replicates() && scenario.cluster.nodes == 1)
    impossible_ = "the cluster has one node: nothing to replicate over";
}

void StrategyVariant::edit_fsdp1(const Scenario& scenario) {
  from_deepspeed(scenario);
  set("training.strategy", "fsdp1");
  for (const char* section : {"fsdp2", "ddp", "zero", "mesh"})
    drop(std::string("training.") + section);
  // FSDP1 wraps no two modules as one.
  if (scenario.training.wrap.head) {
    drop("training.wrap.head");
    drop("training.wrap.head_reshard_after_forward");
    changes_.emplace_back("final norm and head are the root's");
  }
  if (scenario.training.strategy == Strategy::fsdp2 && offloads(scenario.training))
    set("training.fsdp1.cpu_offload", "true");
  set("training.fsdp1.sharding_strategy", name_ == "fsdp1" ? "full_shard" : "shard_grad_op");
}

void StrategyVariant::edit_ddp(const Scenario& scenario) {
  const Training& t = scenario.training;
  from_deepspeed(scenario);
  set("training.strategy", "ddp");
  for (const char* section : {"fsdp1", "fsdp2", "zero", "mesh", "wrap"})
    drop(std::string("training.") + section);
  for (const char* key : {"compute", "reduce", "output", "cast_forward_inputs", "keep"})
    drop(std::string("training.precision.") + key);
  const DType storage = is_zero(t.strategy) ? DType::fp32 : t.precision.storage;
  const DType compute = compute_of(scenario);
  if (!t.precision.autocast && compute != storage) {
    set("training.precision.autocast", std::string(name_of(compute)));
    changes_.push_back(fmt::format("computes in {} by autocast", name_of(compute)));
  }
}

void StrategyVariant::edit_zero(const Scenario& scenario) {
  const Training& t = scenario.training;
  set("training.strategy", name_);
  for (const char* section : {"fsdp1", "fsdp2", "mesh", "wrap"})
    drop(std::string("training.") + section);
  if (name_ == "zero1" && t.strategy == Strategy::torch_zero1) return;
  drop("training.ddp");
  drop("training.zero.implementation");
  drop("training.zero.parameters_as_bucket_view");
  if (name_ == "zero3")
    changes_.emplace_back(
        "the model is whole on each GPU before it is divided, as without zero.Init");
  if (compute_of(scenario) != DType::bf16) {
    impossible_ = fmt::format("DeepSpeed computes in bf16 here, and the scenario in {}",
                              name_of(compute_of(scenario)));
    return;
  }
  if (is_zero(t.strategy)) {
    if (name_ == "zero3")
      for (const char* key : {"use_multi_rank_bucket_allreduce", "round_robin_gradients"})
        drop(std::string("training.zero.") + key);
    else
      for (const char* key : {"stage3_prefetch_bucket_size", "stage3_param_persistence_threshold",
                              "stage3_model_persistence_threshold", "stage3_max_live_parameters",
                              "stage3_max_reuse_distance", "sub_group_size"})
        drop(std::string("training.zero.") + key);
    return;
  }
  for (const char* key : {"compute", "reduce", "output", "cast_forward_inputs", "keep", "autocast",
                          "autocast_backward"})
    drop(std::string("training.precision.") + key);
  drop("training.optimizer.clip_grad_norm");
  set("training.zero.gradient_clipping", fmt::format("{}", t.clip_grad_norm));
  changes_.emplace_back("computes and reduces in bf16 with fp32 master weights");
  if (is_fsdp(t.strategy)) changes_.emplace_back("wraps nothing");
}

Scenario StrategyVariant::at(const ClusterSize& size, int64_t micro_batch, int64_t seq_len) const {
  std::vector<Edit> edits = edits_;
  edits.push_back({"cluster.nodes", std::to_string(size.nodes)});
  edits.push_back({"cluster.gpus_per_node", std::to_string(size.gpus_per_node)});
  edits.push_back({"training.micro_batch", std::to_string(micro_batch)});
  if (seq_len > 0) edits.push_back({"training.seq_len", std::to_string(seq_len)});
  if (replicates())
    edits.push_back({"training.mesh", fmt::format("{{replicate: {}, shard: -1}}", size.nodes)});
  std::deque<Document> values;
  std::vector<Setting> settings;
  for (const Edit& e : edits) {
    Setting s{key_path(e.path), nullptr, 0};
    if (!e.value.empty()) {
      s.from = &values.emplace_back(parse_yaml(e.value, file_));
      s.node = s.from->root();
    }
    settings.push_back(std::move(s));
  }
  return read_scenario(std::make_shared<const Document>(overlaid(*text_, settings)), file_);
}

}  // namespace shardsim
