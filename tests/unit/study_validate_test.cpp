// Rows of measured_training.csv as scenarios, and the scores; expected values are the rows' own and
// hand computations.
#include "sim/study/validate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/config/scenario.h"
#include "sim/cost/assumptions.h"
#include "sim/study/diagnose.h"
#include "sim/study/step_model.h"

namespace shardsim {
namespace {

MeasuredRow torchtitan() {
  MeasuredRow r;
  r.id = "ttG-001";
  r.source = "torchtitan";
  r.gpu = "H100-95GB";
  r.framework = "torchtitan + PyTorch FSDP2";
  r.date = "2025-02-05";
  r.model = "llama3-8b";
  r.gpus = 8;
  r.layers = 32;
  r.hidden = 4096;
  r.heads = 32;
  r.kv_heads = 8;
  r.ffn = 14336;
  r.vocab = 128256;
  r.seq_len = 8192;
  r.micro_batch = 1;
  r.grad_accum = 1;
  r.strategy = "full_shard";
  r.reshard = "default";
  r.checkpointing = "selective (op)";
  r.compile = "false";
  r.tokens_per_s = 5605;
  r.tier = "A";
  return r;
}

TEST(MeasuredScenario, TorchtitanOfFebruary2025) {
  const ExpressedRow e = express(torchtitan());
  ASSERT_EQ(e.left_out, "");
  const Scenario s = parse_scenario(e.yaml, "row");
  EXPECT_EQ(s.cluster.gpu.name, "h100-sxm5-96gb");
  EXPECT_EQ(s.training.strategy, Strategy::fsdp2);
  EXPECT_EQ(s.training.checkpointing.mode, Checkpointing::Mode::selective_op);
  EXPECT_EQ(s.training.attention_backend, AttentionBackend::fa2);
  EXPECT_EQ(s.training.optimizer.implementation, Optimizer::Implementation::foreach);
  EXPECT_EQ(s.model.norm, NormForm::hf);
  EXPECT_TRUE(s.model.repeat_kv);
  // The last block is kept until 2025-07-28.
  ASSERT_EQ(s.training.fsdp2.overrides.size(), 1u);
  EXPECT_EQ(s.training.fsdp2.overrides[0].pattern, "model.layers.31");
}

TEST(MeasuredScenario, TheDateChangesTheProgram) {
  MeasuredRow r = torchtitan();
  r.date = "2025-11-15";
  const Scenario s = parse_scenario(express(r).yaml, "row");
  EXPECT_EQ(s.training.attention_backend, AttentionBackend::cudnn);
  EXPECT_EQ(s.training.optimizer.implementation, Optimizer::Implementation::fused);
  EXPECT_EQ(s.model.norm, NormForm::fused);
  EXPECT_TRUE(s.training.wrap.embedding);
  EXPECT_TRUE(s.training.fsdp2.overrides.empty());
}

TEST(MeasuredScenario, WhatCannotBeSaidIsLeftOutWithItsReason) {
  const auto why = [](auto change) {
    MeasuredRow r = torchtitan();
    change(r);
    return express(r).left_out;
  };
  EXPECT_EQ(why([](MeasuredRow& r) { r.tensor = 8; }),
            "tensor, pipeline and context parallelism are not played");
  EXPECT_EQ(why([](MeasuredRow& r) { r.compute_dtype = "fp8 rowwise"; }), "fp8 is not played");
  EXPECT_EQ(why([](MeasuredRow& r) { r.gpu = "TPUv5"; }), "no catalogue entry for GPU TPUv5");
  EXPECT_EQ(why([](MeasuredRow& r) { r.micro_batch.reset(); }), "micro_batch is not stated");
  EXPECT_EQ(why([](MeasuredRow& r) { r.micro_batch = 1.5; }),
            "micro_batch 1.5 is no whole number above 0");
  EXPECT_EQ(why([](MeasuredRow& r) { r.gpus = 1e300; }),
            "n_gpus 1e+300 is no whole number above 0");
  EXPECT_EQ(
      why([](MeasuredRow& r) { r.strategy = "zero4"; }),
      "strategy 'zero4' is none of full_shard, grad_op, hsdp, ddp, zero1, zero2, zero3, none");
  EXPECT_EQ(why([](MeasuredRow& r) { r.tokens_per_s.reset(); }), "no rate and no step time");
  EXPECT_EQ(why([](MeasuredRow& r) { r.framework = "JAX"; }),
            "framework 'JAX' is none that is known: torchtitan, Composer, fms-fsdp, torchtune, "
            "DeepSpeed, or PyTorch with FSDP2, FSDP1 or DDP");
  EXPECT_EQ(why([](MeasuredRow& r) { r.checkpointing = "5 of 47 layers"; }),
            "checkpointing of 5 of 47 layers is no even choice");
}

// 100 sequences a rank in micro-batches of 32: three full ones and one of 4, an eighth of one.
TEST(MeasuredScenario, ARaggedLastMicroBatch) {
  MeasuredRow r = torchtitan();
  r.micro_batch = 32;
  r.grad_accum = 4;
  r.global_batch_tokens = 100.0 * 8 * 8192;
  EXPECT_DOUBLE_EQ(express(r).last_micro_batch, .125);
  r.global_batch_tokens = 128.0 * 8 * 8192;
  EXPECT_DOUBLE_EQ(express(r).last_micro_batch, 1);
}

// By hand: errors 1, -2, 3, -10: mean 4, bias -2, median 2.5, 90 % at position 2.7 of the sorted
// 1 2 3 10: 3 + .7 x 7 = 7.9.
TEST(Score, OfFourErrors) {
  const Score s = score({1, -2, 3, -10});
  EXPECT_EQ(s.count, 4u);
  EXPECT_DOUBLE_EQ(s.mean_abs_pct, 4);
  EXPECT_DOUBLE_EQ(s.bias_pct, -2);
  EXPECT_DOUBLE_EQ(s.median_abs_pct, 2.5);
  EXPECT_DOUBLE_EQ(s.p90_abs_pct, 7.9);
  EXPECT_DOUBLE_EQ(s.worst_pct, -10);
  EXPECT_EQ(score({}).count, 0u);
}

// Of means of several errors: the bias has the signs, the mean has not.
TEST(Score, OfMeansOfErrors) {
  const Score s = score({-1, 3}, {2, 3});
  EXPECT_DOUBLE_EQ(s.bias_pct, 1);
  EXPECT_DOUBLE_EQ(s.mean_abs_pct, 2.5);
  EXPECT_DOUBLE_EQ(s.worst_pct, 3);
}

// The same program measured at 1.0 and 1.1 s. Calibrated by the other, the first is predicted 10 % too
// slow and the second 1/1.1 - 1 = -9.09 %: on average +.45 %, 9.55 % without signs.
TEST(Validate, OneCalibratedStepHasASign) {
  const std::string row = ",H100,8,PyTorch FSDP1,llama-3.2-1b,2048,1,full_shard,none,";
  const CsvTable table = parse_csv(
      "id,gpu,n_gpus,framework,model,seq_len,micro_batch,strategy,act_ckpt,step_time_s\n"
      "mine-1" +
          row + "1.0\nmine-2" + row + "1.1\n",
      "own.csv");
  const Validation v = validate_training(table, ValidationSplit::shipped(), {});
  ASSERT_EQ(v.rows.size(), 2u);
  EXPECT_EQ(v.rows[0].left_out, "") << "the model is known by its name";
  EXPECT_NEAR(v.rows[0].one_step_pct.value(), 10, 1e-6);
  EXPECT_NEAR(v.rows[1].one_step_pct.value(), -9.0909, 1e-3);
  EXPECT_NEAR(v.rows[1].one_step_abs_pct.value(), 9.0909, 1e-3);
}

// A row without a date is of the newest software, as a scenario that names none is.
TEST(MeasuredScenario, WithoutADate) {
  MeasuredRow r = torchtitan();
  r.date = "";
  const ExpressedRow undated = express(r);
  const Scenario s = parse_scenario(undated.yaml, "x");
  EXPECT_EQ(s.training.software, 0);
  EXPECT_EQ(s.training.attention_backend, AttentionBackend::cudnn);
  EXPECT_EQ(s.model.norm, NormForm::fused);
  EXPECT_TRUE(s.training.wrap.head);
  EXPECT_TRUE(std::any_of(undated.assumed.begin(), undated.assumed.end(),
                          [](const std::string& a) { return a.starts_with("no version_date"); }));
}

TEST(ValidationSplit, BySourceAndModelAndByNamedContradictions) {
  const ValidationSplit split = ValidationSplit::shipped();
  const auto role = [&](std::string id, std::string model) {
    MeasuredRow r;
    r.id = std::move(id);
    r.model = std::move(model);
    return split.part_of(r).role;
  };
  EXPECT_EQ(role("lf23c-020", "MPT-7b"), RowRole::fit);
  EXPECT_EQ(role("lf23c-099", "MPT-760m"), RowRole::test);
  EXPECT_EQ(role("lf22-001", "MosaicGPT-70b"), RowRole::apart);
  EXPECT_EQ(role("ttJ-004", "llama3-8b"), RowRole::contradictory);
  EXPECT_EQ(role("mine-1", "anything"), RowRole::unlisted);
  EXPECT_THROW(ValidationSplit::parse("shardsim_validation: 1\nrow_error: .1\nshared_error: .1\n"
                                      "constants: [{name: nonsense, sigma: .1}]\nsources: []\n",
                                      "s.yaml"),
               Error);
}

// A step made with half the bandwidth between nodes is explained by half of it.
TEST(Diagnose, FindsTheBandwidthThatMadeATime) {
  Scenario s = parse_scenario(
      "shardsim: 1\nmodel: {model_type: llama, vocab_size: 4096, hidden_size: 2048, "
      "intermediate_size: 8192, num_hidden_layers: 4, num_attention_heads: 16}\n"
      "cluster: {preset: dgx-a100, nodes: 4, links: {inter: {alpha: 5 us, bus: 40 GB/s}, "
      "rail: {alpha: 5 us, bus: 5 GB/s}}}\n"
      "training: {strategy: fsdp2, seq_len: 1024, "
      "precision: {storage: fp32, compute: bf16, reduce: fp32}}\n",
      "slow.yaml");
  StepModel m(s);
  Cluster half = s.cluster;
  half.inter.bus_gbps /= 2;
  half.rail.bus_gbps /= 2;
  const double seconds = m.seconds(calibration_of(s.cluster.gpu), half);
  const Diagnosis d = diagnose({{"slow", s, seconds}}, .04, 1);
  const auto network =
      std::find_if(d.explanations.begin(), d.explanations.end(),
                   [](const Explanation& e) { return e.what == Explains::network; });
  ASSERT_NE(network, d.explanations.end());
  ASSERT_TRUE(network->found);
  EXPECT_NEAR(network->value, 20, .2);
  EXPECT_LT(network->low, 20);
  EXPECT_GT(network->high, 20);
  EXPECT_EQ(d.explanations.front().what, Explains::network) << "it binds";
  EXPECT_EQ(d.binds, "bus bandwidth between nodes");
  for (const Explanation& e : d.explanations) {
    EXPECT_NE(e.found, e.binds.empty()) << e.name;
    EXPECT_EQ(e.found, e.why_not.empty()) << e.name;
  }
  EXPECT_THROW(diagnose({}, .04, 1), Error);
}

// At 318 GB/s the kernels bind; at the twentieth of it that made this time the network does.
TEST(Diagnose, WhatBindsIsToldOfTheStepThatWasMeasured) {
  const Scenario s = parse_scenario(
      "shardsim: 1\nmodel: {preset: llama-3.2-1b}\ncluster: {preset: dgx-h100, nodes: 2}\n"
      "training: {strategy: fsdp2, seq_len: 4096, "
      "precision: {storage: fp32, compute: bf16, reduce: fp32}}\n",
      "fast.yaml");
  Cluster slow = s.cluster;
  slow.inter.given = slow.rail.given = true;
  slow.inter.bus_gbps /= 20;
  slow.rail.bus_gbps /= 20;
  const double seconds = StepModel(s).seconds(own_calibration(s), slow);
  const Diagnosis d = diagnose({{"slow", s, seconds}}, .04, 1);
  EXPECT_EQ(d.binds, "speed of all kernels");
  for (const Explanation& e : d.explanations)
    if (e.what == Explains::network) {
      EXPECT_NEAR(e.value, 318.0 / 20, .2);
      EXPECT_EQ(e.binds, "bus bandwidth between nodes");
    }
}

}  // namespace
}  // namespace shardsim
