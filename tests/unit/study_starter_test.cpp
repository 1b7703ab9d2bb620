// Scenarios to start from: of every model on every GPU, in every style.
#include "sim/study/starter.h"

#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/cluster/catalogue.h"
#include "sim/config/model.h"
#include "sim/config/scenario.h"
#include "sim/study/simulate.h"

namespace shardsim {
namespace {

StarterRequest request(const std::string& model, const std::string& gpu,
                       const std::string& style = "torchtitan", int64_t nodes = 1) {
  StarterRequest r;
  r.model = model;
  r.gpu = gpu;
  r.style = style;
  r.nodes = nodes;
  return r;
}

// Each is read and its groups are laid out; the last GPU of each model is played too.
TEST(Starter, EveryModelOnEveryGpu) {
  Simulation simulation;
  for (const std::string& style : starter_styles())
    for (const ModelPreset& model : model_presets())
      for (const GpuEntry& gpu : gpu_catalogue())
        for (const int64_t nodes : {1, 2}) {
          SCOPED_TRACE(style + " " + std::string(model.name) + " " + std::string(gpu.name));
          try {
            const Scenario s =
                parse_scenario(starter_scenario(request(std::string(model.name),
                                                        std::string(gpu.name), style, nodes)),
                               "s.yaml");
            EXPECT_EQ(s.cluster.gpu.name, gpu.name);
            EXPECT_EQ(s.cluster.nodes, nodes);
            lay_out(s, simulation);
            if (&gpu == &gpu_catalogue().back()) simulate(s, Until::steady, simulation);
          } catch (const Error& e) {
            ADD_FAILURE() << e.text();
          }
        }
}

// The main scenario, clipped: its peak and step are the README's to what clipping adds.
TEST(Starter, TorchtitansLlama) {
  const Scenario s =
      parse_scenario(starter_scenario(request("llama-3-8b", "h100-sxm5-80gb")), "s.yaml");
  EXPECT_EQ(s.cluster.name, "dgx-h100");
  EXPECT_EQ(s.training.strategy, Strategy::fsdp2);
  EXPECT_EQ(s.training.seq_len, 8192);
  EXPECT_EQ(s.training.micro_batch, 1);
  EXPECT_TRUE(s.training.wrap.embedding && s.training.wrap.head);
  EXPECT_EQ(s.training.precision.compute, DType::bf16);
  EXPECT_EQ(s.training.precision.reduce, DType::fp32);
  EXPECT_EQ(s.training.checkpointing.mode, Checkpointing::Mode::selective_op);
  EXPECT_EQ(s.training.optimizer.implementation, Optimizer::Implementation::fused);
  EXPECT_EQ(s.training.clip_grad_norm, 1);
}

TEST(Starter, Accelerates) {
  const Scenario two = parse_scenario(
      starter_scenario(request("qwen3-8b", "a100-sxm4-80gb", "accelerate")), "s.yaml");
  EXPECT_EQ(two.training.strategy, Strategy::fsdp2);
  EXPECT_EQ(two.training.precision.reduce, DType::bf16);
  EXPECT_EQ(two.model.norm, NormForm::hf);
  const Scenario one = parse_scenario(
      starter_scenario(request("gpt2", "a100-sxm4-80gb", "accelerate-fsdp1")), "s.yaml");
  EXPECT_EQ(one.training.strategy, Strategy::fsdp1);
  EXPECT_TRUE(one.training.fsdp1.use_orig_params);
  // gpt2 has 1,024 positions.
  EXPECT_EQ(one.training.seq_len, 1024);
}

// A V100 has no bf16; a Grace Hopper superchip is a node of one GPU, where nothing is sharded.
TEST(Starter, WhatTheGpuDecides) {
  const Scenario v100 =
      parse_scenario(starter_scenario(request("gpt2", "v100-sxm2-32gb")), "s.yaml");
  EXPECT_FALSE(v100.training.precision.compute);
  const Scenario gh = parse_scenario(starter_scenario(request("gpt2", "gh200-96gb")), "s.yaml");
  EXPECT_EQ(gh.training.strategy, Strategy::none);
  EXPECT_EQ(gh.training.precision.autocast, DType::bf16);
}

TEST(Starter, Mistakes) {
  const auto mistake = [](const StarterRequest& r) {
    try {
      starter_scenario(r);
    } catch (const Error& e) {
      return e.text();
    }
    return std::string();
  };
  EXPECT_EQ(
      mistake(request("llama-3-9b", "h100-sxm5-80gb")),
      "error: there is no model 'llama-3-9b'\n  hint: did you mean 'llama-3-8b'? (or the path "
      "of a Hugging Face config.json)");
  EXPECT_NE(mistake(request("none/config.json", "h100-sxm5-80gb")).find("there is no such file"),
            std::string::npos);
  EXPECT_NE(mistake(request("gpt2", "h100")).find("GPUs with 'h100': h100-sxm5-80gb"),
            std::string::npos);
  EXPECT_NE(mistake(request("gpt2", "h100-sxm5-80gb", "lightning")).find("known styles"),
            std::string::npos);
}

}  // namespace
}  // namespace shardsim
