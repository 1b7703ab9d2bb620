// What fits: the search against a search of everything, and facts from outside.
#include "sim/study/capacity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "sim/base/error.h"
#include "sim/config/scenario.h"

namespace shardsim {
namespace {

class Capacity : public testing::Test {
 protected:
  void SetUp() override {
    file_ = std::filesystem::temp_directory_path() /
            ("capacity_test_" + std::to_string(getpid()) + ".yaml");
  }
  void TearDown() override { std::filesystem::remove(file_); }
  CapacityReport ask(const std::string& scenario, const CapacityOptions& options) {
    std::ofstream(file_) << scenario;
    return capacity(file_.string(), options);
  }
  std::filesystem::path file_;
};

// Every threshold of every range up to 40, and each index asked once at most.
TEST(FirstThat, IsTheFirst) {
  for (int64_t n = 0; n <= 40; ++n)
    for (int64_t threshold = 0; threshold <= n; ++threshold) {
      std::set<int64_t> asked;
      const int64_t first = first_that(n, [&](int64_t i) {
        EXPECT_TRUE(i >= 0 && i < n);
        EXPECT_TRUE(asked.insert(i).second) << i << " twice of " << n;
        return i >= threshold;
      });
      EXPECT_EQ(first, threshold) << "of " << n;
    }
}

// The header's: 1 to 5 fit, so the first index that does not is 5; asked at 1, 2, 4, 8, 6, 5.
TEST(FirstThat, AsksAsTheHeaderSays) {
  std::vector<int64_t> asked;
  first_that(100, [&](int64_t i) {
    asked.push_back(i + 1);
    return i >= 5;
  });
  EXPECT_EQ(asked, (std::vector<int64_t>{1, 2, 4, 8, 6, 5}));
}

// A card of 3 GiB and a model of 134 million parameters in fp32: 2.0 GiB of state on one GPU.
constexpr const char* kSmall = R"(
shardsim: 1
model:
  {model_type: llama, vocab_size: 8000, hidden_size: 1024, intermediate_size: 2816,
   num_hidden_layers: 9, num_attention_heads: 16, num_key_value_heads: 16}
cluster:
  preset: dgx-h100
  gpu: {preset: h100-sxm5-80gb, memory: 3 GiB}
  nodes: 2
training:
  strategy: fsdp2
  seq_len: 512
  wrap: {policy: per_block, embedding: true, head: true}
  precision: {storage: fp32, compute: bf16, reduce: fp32}
  optimizer: {name: adamw, implementation: fused}
cost: {model: flat}
)";

bool fits(const Scenario& s) {
  Simulation simulation;
  return sweep_row(s, simulation).fits;
}

// Each answer against all sizes of its range, at both memory levels.
TEST_F(Capacity, IsWhatASearchOfEverythingFinds) {
  for (const char* level : {"live", "blocks"}) {
    const std::string text = std::string(kSmall) + "options: {memory: " + level + "}\n";
    CapacityOptions options;
    options.max_nodes = 6;
    options.max_micro_batch = 24;
    options.max_seq_len = 12 * 512;
    options.seq_step = 512;
    options.threads = 2;
    const CapacityReport report = ask(text, options);
    const auto document = std::make_shared<const Document>(parse_yaml(text, "all.yaml"));
    for (const StrategyCapacity& s : report.strategies) {
      SCOPED_TRACE(s.name + " " + level);
      ASSERT_EQ(s.impossible, "");
      const StrategyVariant v(s.name, document, "all.yaml", report.scenario);
      const ClusterSize own{2, 8};
      int64_t batches = 0, sequences = 0;
      while (batches < 24 && fits(v.at(own, batches + 1, 512))) ++batches;
      while (sequences < 12 && fits(v.at(own, 1, 512 * (sequences + 1)))) ++sequences;
      EXPECT_EQ(s.micro_batch.answer ? s.micro_batch.answer->micro_batch : 0, batches);
      EXPECT_EQ(s.seq_len.answer ? s.seq_len.answer->seq_len : 0, 512 * sequences);
      if (batches < 24) {
        ASSERT_TRUE(s.micro_batch.next);
        EXPECT_EQ(s.micro_batch.next->micro_batch, batches + 1);
        EXPECT_LT(s.micro_batch.next->row.headroom_bytes, 0);
      }
      std::vector<ClusterSize> sizes;
      if (s.name != "hsdp")
        for (int64_t g : {1, 2, 4}) sizes.push_back({1, g});
      for (int64_t n = s.name == "hsdp" ? 2 : 1; n <= 6; ++n) sizes.push_back({n, 8});
      const auto first = std::find_if(sizes.begin(), sizes.end(),
                                      [&](const ClusterSize& c) { return fits(v.at(c, 1, 512)); });
      ASSERT_EQ(s.cluster.answer.has_value(), first != sizes.end());
      if (first != sizes.end()) {
        EXPECT_EQ(s.cluster.answer->cluster.gpus(), first->gpus());
      }
    }
  }
}

TEST_F(Capacity, ThreadsGiveTheSame) {
  CapacityOptions one;
  one.max_nodes = 4;
  CapacityOptions three = one;
  three.threads = 3;
  EXPECT_EQ(capacity_json(ask(kSmall, one)), capacity_json(ask(kSmall, three)));
}

// github Alpha-VLLM/LLaMA2-Accessory issue 26: a full fine-tune of Llama-2-13B on 2 GPUs of 80 GB is out
// of memory even with batch 1, "use at least 4": 13.0e9 x 16 B are 104 GB a GPU on 2, 52 GB on 4.
TEST_F(Capacity, Llama2With13BNeedsFour) {
  CapacityOptions options;
  options.strategies = {"fsdp2", "ddp", "zero1", "zero3"};
  options.max_micro_batch = 1;
  options.max_seq_len = 2048;
  const CapacityReport report = ask(R"(
shardsim: 1
model:
  {model_type: llama, vocab_size: 32000, hidden_size: 5120, intermediate_size: 13824,
   num_hidden_layers: 40, num_attention_heads: 40, num_key_value_heads: 40}
cluster: {preset: dgx-a100, nodes: 1}
training:
  strategy: fsdp2
  seq_len: 2048
  precision: {storage: fp32, compute: bf16, reduce: fp32}
  activation_checkpointing: {mode: full}
)",
                                    options);
  for (const size_t sharded : {size_t{0}, size_t{3}}) {
    const CapacityAnswer& a = report.strategies[sharded].cluster;
    ASSERT_TRUE(a.answer) << report.strategies[sharded].name;
    EXPECT_EQ(a.answer->cluster.gpus(), 4) << report.strategies[sharded].name;
    ASSERT_TRUE(a.next);
    EXPECT_EQ(a.next->cluster.gpus(), 2);
  }
  // 16 B a parameter on every GPU: no number of them holds it. Stage 1 keeps bf16 parameters and
  // gradients whole, 52 GB, and shards 12 B: 156/8 GB more on 8.
  EXPECT_FALSE(report.strategies[1].cluster.answer);
  EXPECT_EQ(report.strategies[1].cluster.limit, "--max-nodes 1024");
  ASSERT_TRUE(report.strategies[2].cluster.answer);
  EXPECT_GE(report.strategies[2].cluster.answer->cluster.gpus(), 8);
}

// What the header says of ddp, and which keys come back from DeepSpeed.
TEST(StrategyVariant, PutsKeysInOtherWords) {
  const auto variant = [](const std::string& name, const std::string& text) {
    const auto document = std::make_shared<const Document>(parse_yaml(text, "s.yaml"));
    const StrategyVariant v(name, document, "s.yaml", parse_scenario(text, "s.yaml"));
    return v.at({1, 8}, 3, 256);
  };
  const Scenario ddp = variant("ddp", kSmall);
  EXPECT_EQ(ddp.training.strategy, Strategy::ddp);
  EXPECT_EQ(ddp.training.precision.autocast, DType::bf16);
  EXPECT_FALSE(ddp.training.precision.compute);
  EXPECT_EQ(ddp.training.micro_batch, 3);
  EXPECT_EQ(ddp.training.seq_len, 256);
  EXPECT_EQ(ddp.training.mesh.world(), 8);
  const Scenario hybrid = variant("hsdp", kSmall);
  EXPECT_EQ(hybrid.training.mesh.shard, 8);
  const Scenario fsdp1 = variant("fsdp1-grad-op", kSmall);
  EXPECT_EQ(fsdp1.training.fsdp1.sharding_strategy, ShardingStrategy::shard_grad_op);
  EXPECT_FALSE(fsdp1.training.wrap.head);
  std::string zero = kSmall;
  zero.replace(zero.find("fsdp2"), 5, "zero3");
  zero.erase(zero.find("  wrap"), zero.find("  optimizer") - zero.find("  wrap"));
  const Scenario back = variant("fsdp2", zero);
  EXPECT_EQ(back.training.precision.compute, DType::bf16);
  EXPECT_EQ(back.training.precision.storage, DType::fp32);
  EXPECT_EQ(back.training.clip_grad_norm, 1);
  EXPECT_EQ(variant("zero1", zero).training.strategy, Strategy::zero1);
}

TEST_F(Capacity, WhatIsNotPossibleSaysWhy) {
  std::string text = kSmall;
  text.replace(text.find("nodes: 2"), 8, "nodes: 1");
  text.replace(text.find("compute: bf16"), 13, "compute: none");
  CapacityOptions options;
  options.max_nodes = 1;
  options.max_micro_batch = 1;
  options.max_seq_len = 256;
  const CapacityReport report = ask(text, options);
  for (const StrategyCapacity& s : report.strategies) {
    const std::string why = s.name == "hsdp" ? "the cluster has one node: nothing to replicate over"
                            : s.name.starts_with("zero")
                                ? "DeepSpeed computes in bf16 here, and the scenario in fp32"
                                : "";
    EXPECT_EQ(s.impossible, why) << s.name;
  }
  options.strategies = {"fsdp3"};
  EXPECT_THROW(ask(text, options), Error);
}

}  // namespace
}  // namespace shardsim
