#include "sim/config/scenario.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sim/base/error.h"
#include "sim/config/document.h"

namespace shardsim {
namespace {

Scenario parse(const std::string& text) { return parse_scenario(text, "dir/some.yaml"); }

std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const Error& e) {
    return e.text();
  }
  return "";
}

const std::string kHead =
    "shardsim: 1\nmodel: {preset: llama-3.2-1b}\ncluster: {preset: dgx-h100, nodes: 2}\n";

// Every key with a value that is not the default.
TEST(ScenarioConfig, EveryKey) {
  const Scenario s = parse(R"(
shardsim: 1
name: all keys
model: {preset: llama-3.2-1b, name: mine, norm: hf, rope: none, repeat_kv: true}
cluster:
  preset: dgx-h100
  name: lab
  nodes: 4
  gpus_per_node: 4
  price_per_gpu_hour: 2.5
  gpu: {preset: h100-sxm5-80gb, memory: 40 GiB, memory_bandwidth: 2 TB/s}
  links: {inter: {alpha: 0.01 ms, bus: 400 Gb/s}, rail: {alpha: 9 us, bus: 40 GB/s}}
training:
  pytorch: 2.15
  nccl_backend: default
  seq_len: 2048
  micro_batch: 3
  grad_accum: 2
  strategy: fsdp2
  mesh: {replicate: 2, shard: 8, tensor: 1, context: 1, expert: 1, pipeline: 1}
  wrap:
    policy: groups
    groups: [[layers.0, layers.1], ["layers.2*"]]
    embedding: true
    head: true
    head_reshard_after_forward: true
  fsdp2:
    reshard_after_forward: 4
    root_reshard_after_forward: true
    reshard:
      - {module: "", reshard_after_forward: false}
      - {module: "layers.*", reshard_after_forward: 2}
    prefetch: {forward: 1, backward: 2, root_forward: 3}
    requires_gradient_sync: last
    requires_all_reduce: last
    is_last_backward: last
    reshard_after_backward: last
    reduce_scatter_max_input_buffers: 2
    separate_reduce_scatter_group: true
  precision: {storage: bf16, compute: fp16, reduce: none, output: fp32, cast_forward_inputs: false}
  loss: {float_logits: false}
  activation_checkpointing: {mode: every_k, every: 2}
  optimizer: {name: sgd, implementation: forloop, momentum: 0.9, zero_grad: keep}
  allocator: {}
cost: {model: flat, kernel_us: 5, gemm_tflops: 1 PFLOPS, bus_gbps: 100, host_us: 0.5}
options: {max_steps: 3, memory: live}
)");
  EXPECT_EQ(s.name, "all keys");
  EXPECT_EQ(s.model.name, "mine");
  EXPECT_EQ(s.model.norm, NormForm::hf);
  EXPECT_EQ(s.model.rope, RopeForm::none);
  EXPECT_TRUE(s.model.repeat_kv);
  EXPECT_EQ(s.cluster.name, "lab");
  EXPECT_EQ(s.cluster.world(), 16);
  EXPECT_EQ(s.cluster.price_per_gpu_hour, 2.5);
  EXPECT_EQ(s.cluster.gpu.memory_bytes, 40 * kGiB);
  EXPECT_EQ(s.cluster.gpu.memory_gbps, 2000);
  EXPECT_EQ(s.cluster.gpu.sms, 132);  // the preset's
  EXPECT_EQ(s.cluster.inter.alpha_us, 10);
  EXPECT_EQ(s.cluster.inter.bus_gbps, 50);
  EXPECT_EQ(s.cluster.rail.bus_gbps, 40);
  const Training& t = s.training;
  EXPECT_EQ(t.pytorch, "2.15");
  EXPECT_EQ(t.seq_len, 2048);
  EXPECT_EQ(t.micro_batch, 3);
  EXPECT_EQ(t.grad_accum, 2);
  EXPECT_EQ(t.mesh.replicate, 2);
  EXPECT_EQ(t.mesh.shard, 8);
  EXPECT_EQ(t.wrap.policy, WrapPolicy::groups);
  ASSERT_EQ(t.wrap.groups.size(), 2u);
  EXPECT_EQ(t.wrap.groups[0], (std::vector<std::string>{"layers.0", "layers.1"}));
  EXPECT_TRUE(t.wrap.embedding && t.wrap.head);
  EXPECT_EQ(t.fsdp2.head_reshard, (Reshard{Reshard::Kind::yes, 0}));
  EXPECT_EQ(t.fsdp2.reshard_after_forward, (Reshard{Reshard::Kind::to, 4}));
  EXPECT_EQ(t.fsdp2.root_reshard, (Reshard{Reshard::Kind::yes, 0}));
  ASSERT_EQ(t.fsdp2.overrides.size(), 2u);
  EXPECT_EQ(t.fsdp2.overrides[0].pattern, "");
  EXPECT_EQ(t.fsdp2.overrides[1].reshard, (Reshard{Reshard::Kind::to, 2}));
  EXPECT_EQ(t.fsdp2.forward_prefetch, 1);
  EXPECT_EQ(t.fsdp2.backward_prefetch, 2);
  EXPECT_EQ(t.fsdp2.root_forward_prefetch, 3);
  EXPECT_EQ(t.fsdp2.requires_gradient_sync, Micro::last);
  EXPECT_EQ(t.fsdp2.requires_all_reduce, Micro::last);
  EXPECT_EQ(t.fsdp2.is_last_backward, Micro::last);
  EXPECT_EQ(t.fsdp2.reshard_after_backward, Micro::last);
  EXPECT_EQ(t.fsdp2.reduce_scatter_max_input_buffers, 2);
  EXPECT_TRUE(t.fsdp2.separate_reduce_scatter_group);
  EXPECT_EQ(t.precision.storage, DType::bf16);
  EXPECT_EQ(t.precision.compute, DType::fp16);
  EXPECT_EQ(t.precision.reduce, std::nullopt);
  EXPECT_EQ(t.precision.output, DType::fp32);
  EXPECT_FALSE(t.precision.cast_forward_inputs);
  EXPECT_FALSE(t.float_logits);
  EXPECT_EQ(t.checkpointing.mode, Checkpointing::Mode::every_k);
  EXPECT_EQ(t.checkpointing.every, 2);
  EXPECT_EQ(t.optimizer.name, Optimizer::Name::sgd);
  EXPECT_EQ(t.optimizer.implementation, Optimizer::Implementation::forloop);
  EXPECT_TRUE(t.optimizer.momentum);
  EXPECT_FALSE(t.optimizer.set_to_none);
  EXPECT_EQ(s.cost.model, CostChoice::Model::flat);
  EXPECT_EQ(s.cost.flat.kernel_us, 5);
  EXPECT_EQ(s.cost.flat.gemm_tflops, 1000);
  EXPECT_EQ(s.cost.flat.bus_gbps, 100);
  EXPECT_EQ(s.cost.flat.host_us, 0.5);
  EXPECT_EQ(s.options.max_steps, 3);
}

TEST(ScenarioConfig, Defaults) {
  const Scenario s = parse(kHead + "training: {seq_len: 128, strategy: fsdp2}\n");
  EXPECT_EQ(s.name, "some");  // the file's
  EXPECT_EQ(s.cluster.world(), 16);
  EXPECT_EQ(s.training.mesh.replicate, 1);
  EXPECT_EQ(s.training.mesh.shard, 16);
  EXPECT_EQ(s.training.micro_batch, 1);
  EXPECT_EQ(s.training.wrap.policy, WrapPolicy::per_block);
  EXPECT_EQ(s.training.fsdp2.reshard_after_forward, Reshard{});
  EXPECT_EQ(s.training.precision.compute, std::nullopt);
  EXPECT_EQ(s.training.optimizer.name, Optimizer::Name::adamw);
  EXPECT_EQ(s.training.optimizer.implementation, Optimizer::Implementation::foreach);
  EXPECT_TRUE(s.training.optimizer.set_to_none);
  EXPECT_EQ(s.cost.model, CostChoice::Model::roofline);
  EXPECT_EQ(s.options.max_steps, 6);
}

// fully_shard reads 1 as False and the whole group as True.
TEST(ScenarioConfig, ReshardNumbers) {
  const auto reshard = [](const std::string& value) {
    return parse(kHead +
                 "training: {seq_len: 128, strategy: fsdp2, fsdp2: {reshard_after_forward: " +
                 value + "}}\n")
        .training.fsdp2.reshard_after_forward;
  };
  EXPECT_EQ(reshard("1"), (Reshard{Reshard::Kind::no, 0}));
  EXPECT_EQ(reshard("16"), (Reshard{Reshard::Kind::yes, 0}));
  EXPECT_EQ(reshard("8"), (Reshard{Reshard::Kind::to, 8}));
  EXPECT_EQ(reshard("default"), Reshard{});
}

TEST(ScenarioConfig, StackAndBag) {
  const Scenario s = parse(R"(
shardsim: 1
model:
  model_type: stack
  hidden_size: 8
  root_first: [16, 8]
  blocks: [[[32, 16], [16, 32]], [[16, 16]]]
  root_last: [4, 16]
  bias: true
  input_grad: true
cluster: {gpu: h100-sxm5-80gb, gpus_per_node: 1}
training: {strategy: fsdp2, micro_batch: 7, input_dtype: bf16, loss: {float_loss: false}}
)");
  EXPECT_EQ(s.model.family, Family::stack);
  EXPECT_EQ(s.model.naming, Naming::recorder);
  EXPECT_EQ(s.model.hidden, 8);
  EXPECT_EQ(s.model.layers, 2);
  ASSERT_EQ(s.model.linear_blocks.size(), 2u);
  EXPECT_EQ(s.model.linear_blocks[0][1].out, 16);
  EXPECT_EQ(s.model.root_first.in, 8);
  EXPECT_EQ(s.model.root_last.out, 4);
  EXPECT_TRUE(s.model.bias && s.model.input_grad);
  EXPECT_EQ(s.training.input_dtype, DType::bf16);
  EXPECT_FALSE(s.training.float_loss);
  EXPECT_EQ(s.cluster.world(), 1);

  const Scenario b = parse(R"(
shardsim: 1
model: {model_type: bag, hidden_size: 8, blocks: [[[3], [2, 5]], [[7, 2, 2]]], scale: true}
cluster: {preset: dgx-h100}
training: {strategy: fsdp2}
)");
  EXPECT_EQ(b.model.family, Family::bag);
  EXPECT_EQ(b.model.bag_blocks[1][0], (std::vector<int64_t>{7, 2, 2}));
  EXPECT_TRUE(b.model.scale);
}

TEST(ScenarioConfig, InlineLlamaMayUseTheRecordersNames) {
  const Scenario s = parse(R"(
shardsim: 1
model: {model_type: llama, vocab_size: 512, hidden_size: 64, intermediate_size: 128,
        num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, rope: none,
        naming: recorder}
cluster: {preset: dgx-h100}
training: {strategy: fsdp2, seq_len: 128}
)");
  EXPECT_EQ(s.model.naming, Naming::recorder);
  EXPECT_EQ(s.model.rope, RopeForm::none);
  EXPECT_EQ(s.model.kv_heads, 2);
}

// hf_config is looked for beside the scenario, then in the folders above it.
TEST(ScenarioConfig, ConfigPaths) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "shardsim_paths";
  fs::create_directories(folder / "a" / "b");
  fs::create_directories(folder / "models" / "tiny");
  std::ofstream(folder / "models/tiny/config.json")
      << R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128,
             "num_hidden_layers": 2, "num_attention_heads": 4})";
  const fs::path file = folder / "a/b/s.yaml";
  std::ofstream(file) << "shardsim: 1\nmodel: {hf_config: models/tiny/config.json}\n"
                         "cluster: {preset: dgx-h100}\n"
                         "training: {strategy: fsdp2, seq_len: 128}\n";
  EXPECT_EQ(load_scenario(file.string()).model.name, "tiny");
  fs::remove_all(folder);
}

TEST(ScenarioConfig, Limits) {
  const std::string flat = "cost: {model: flat, host_us: 1e6}\n";
  EXPECT_NE(error_of(kHead + "training: {seq_len: 128, strategy: fsdp2, grad_accum: 1000}\n" + flat)
                .find("the steps might take"),
            std::string::npos);
  EXPECT_NE(
      error_of(kHead + "training: {seq_len: 16777216, strategy: fsdp2, micro_batch: 1048576}\n")
          .find("bytes on one GPU are more than 2^62"),
      std::string::npos);
  EXPECT_NE(error_of(kHead + "training: {seq_len: 128, strategy: fsdp2, grad_accum: 65536}\n")
                .find("layers x grad_accum x forwards x options.max_steps"),
            std::string::npos);
  // The largest public models at long context and on large clusters are far from any limit.
  EXPECT_EQ(error_of("shardsim: 1\nmodel: {preset: llama-3.1-405b}\n"
                     "cluster: {preset: dgx-h100, nodes: 2048}\n"
                     "training: {seq_len: 131072, strategy: fsdp2, grad_accum: 16, "
                     "precision: {compute: bf16}}\n"),
            "");
}

TEST(ScenarioConfig, ShippedScenariosLoadAndSayWhatTheyShow) {
  size_t count = 0;
  for (const char* folder : {"/scenarios", "/scenarios/small"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(SHARDSIM_SOURCE_DIR) + folder)) {
      if (entry.path().extension() != ".yaml") continue;
      const std::string path = entry.path().string();
      EXPECT_EQ(load_scenario(path).name, entry.path().stem().string());
      EXPECT_EQ(read_text_file(path).substr(0, 2), "# ") << path;
      ++count;
    }
  }
  EXPECT_GE(count, 9u);
}

}  // namespace
}  // namespace shardsim
