#include "sim/config/calibration.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "sim/base/error.h"
#include "sim/cluster/catalogue.h"
#include "sim/config/scenario.h"

namespace shardsim {
namespace {

const std::string kHead = "calibration: 1\nname: mine\ngpu: h100-sxm5-80gb\n";

std::string message(const std::string& text) {
  try {
    parse_calibration(text, "mine.yaml");
  } catch (const Error& e) {
    return e.text();
  }
  return "no error";
}

TEST(CalibrationFile, Sustained) {
  const CalibrationFile f = parse_calibration(kHead +
                                                  "date: \"2026-11-30\"\nlevel: sustained\n"
                                                  "constants:\n  gemm_efficiency: 0.7\n"
                                                  "  vec: {value: 0.8, from: by hand}\n"
                                                  "attention: [1, 2, 3, 4, 5, 6]\n"
                                                  "data: [{source: s, rows: 3, residual_pct: 2}]\n",
                                              "mine.yaml");
  ASSERT_TRUE(f.sustained);
  EXPECT_FALSE(f.kernel);
  EXPECT_EQ(f.sustained->name, "mine");
  EXPECT_EQ(f.sustained->gemm_efficiency, .7);
  EXPECT_EQ(f.sustained->vec, .8);
  EXPECT_EQ(f.sustained->attention_tflops[5], 6);
  // What the file does not say is the generation's.
  EXPECT_EQ(f.sustained->gemm_wave_weight, .75);
  EXPECT_EQ(f.from.at("vec"), "by hand");
  EXPECT_EQ(f.data[0].rows, 3);
  EXPECT_EQ(f.date, "2026-11-30");
}

TEST(CalibrationFile, WhatIsWrittenReadsBackTheSame) {
  for (const CalibrationFile& f : shipped_calibrations()) {
    const std::string text = calibration_yaml(f, "One line.\nAnother.");
    EXPECT_EQ(text.substr(0, 24), "# One line.\n# Another.\nc") << f.name;
    const CalibrationFile back = parse_calibration(text, "x.yaml");
    EXPECT_EQ(back.name, f.name);
    EXPECT_EQ(calibration_yaml(back, "One line.\nAnother."), text) << f.name;
    if (!f.sustained) continue;
    for (const ConstantInfo& info : calibration_constants()) {
      EXPECT_EQ((*back.sustained).*info.member, (*f.sustained).*info.member)
          << f.name << " " << info.name;
    }
  }
}

TEST(CalibrationFile, EachShippedOneIsOfItsGpuAndSaysWhereEachConstantIsFrom) {
  EXPECT_EQ(calibration_for("h100-sxm5-80gb")->name, "h100-sxm5-80gb");
  EXPECT_EQ(calibration_for("v100-sxm2-16gb"), nullptr);
  for (const char* gpu : {"a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "h100-sxm5-96gb",
                          "h200-sxm-141gb", "b200-sxm"})
    EXPECT_NE(calibration_for(gpu), nullptr) << gpu;
  for (const CalibrationFile& f : shipped_calibrations()) {
    EXPECT_TRUE(f.name.starts_with(f.gpu)) << f.name;
    EXPECT_TRUE(is_date(f.date)) << f.name;
    EXPECT_TRUE(f.from.contains("gemm_efficiency")) << f.name;
    EXPECT_TRUE(f.from.contains("vec")) << f.name;
  }
}

TEST(CalibrationFile, Mistakes) {
  EXPECT_EQ(message("7"),
            "mine.yaml:1:1: error: this is no calibration: expected keys and values\n"
            "  hint: a calibration begins with 'calibration: 1'");
  EXPECT_EQ(message(kHead + "level: sustained\nconstants: {gemm_eficiency: .7}\n"),
            "mine.yaml:5:13: error: constants: unknown key 'gemm_eficiency'\n"
            "  hint: did you mean 'gemm_efficiency'?");
  EXPECT_EQ(message(kHead + "level: sustained\nconstants: {gemm_efficiency: 7}\n"),
            "mine.yaml:5:30: error: constants.gemm_efficiency: expected a number from 0.01 to 1.5, "
            "got '7'\n  hint: of the dense peak, in a training step");
  EXPECT_EQ(message(kHead + "level: kernel\nconstants: {host_call_us: 7}\n").substr(0, 57),
            "mine.yaml:5:13: error: constants: unknown key 'host_call_");
  EXPECT_EQ(message(kHead + "level: sustained\nattention: [1, 2]\n"),
            "mine.yaml:5:12: error: attention: expected 6 rates, got 2\n"
            "  hint: TFLOPS at 512, 1k, 2k, 4k, 8k and 16k tokens");
  EXPECT_EQ(message(kHead + "date: 2026-02-30\nlevel: sustained\n"),
            "mine.yaml:4:7: error: date: expected a day as \"2026-11-30\", got '2026-02-30'");
  EXPECT_EQ(message("calibration: 1\ngpu: h100\nlevel: kernel\n").substr(0, 67),
            "mine.yaml:2:6: error: gpu: expected the name of a GPU, got 'h100'\n ");
  EXPECT_EQ(message(kHead + "level: links\nlinks: {}\n").substr(0, 61),
            "mine.yaml:3:1: error: gpu: level links has no such key");
}

TEST(CalibrationFile, Dates) {
  EXPECT_TRUE(is_date("2024-02-29"));
  EXPECT_FALSE(is_date("2026-02-29"));
  EXPECT_FALSE(is_date("2026-13-01"));
  EXPECT_FALSE(is_date("2026-1-01"));
  EXPECT_FALSE(is_date("2026/01/01"));
}

std::string scenario(const std::string& cost) {
  return "shardsim: 1\nmodel: {preset: gpt2}\ncluster: {preset: dgx-h100}\n"
         "training: {seq_len: 128, micro_batch: 1, strategy: fsdp2}\n" +
         cost;
}

// Without the key the GPU's shipped calibration is taken, and that is the generation's.
TEST(CalibrationFile, AScenarioTakesTheShippedOne) {
  const Scenario s = parse_scenario(scenario(""), "s.yaml");
  ASSERT_TRUE(s.cost.calibration);
  EXPECT_EQ(s.cost.calibration->name, "h100-sxm5-80gb");
  const Scenario named =
      parse_scenario(scenario("cost: {model: roofline, calibration: h100-sxm5-80gb}\n"), "s.yaml");
  EXPECT_EQ(named.cost.calibration->gemm_efficiency, s.cost.calibration->gemm_efficiency);
}

TEST(CalibrationFile, AScenarioRefusesAnotherGpusOrLevels) {
  const auto fails = [](const std::string& name) {
    try {
      parse_scenario(scenario("cost: {model: roofline, calibration: " + name + "}\n"), "s.yaml");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(fails("a100-sxm4-80gb"),
            "cost.calibration: 'a100-sxm4-80gb' is of the GPU a100-sxm4-80gb, the cluster has "
            "h100-sxm5-80gb");
  EXPECT_EQ(fails("h100-sxm5-80gb-kernel"),
            "cost.calibration: 'h100-sxm5-80gb-kernel' is of single kernels on a cool GPU");
  EXPECT_EQ(
      fails("h100"),
      "cost.calibration: expected the name of a calibration, or a file that ends in .yaml, got "
      "'h100'");
  EXPECT_EQ(fails("nowhere.yaml"), "cost.calibration: there is no file 'nowhere.yaml'");
}

}  // namespace
}  // namespace shardsim
