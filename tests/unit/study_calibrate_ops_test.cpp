// Constants from an op log: what was put into a log comes back out of it.
#include "sim/study/calibrate_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "sim/base/error.h"
#include "sim/config/scenario.h"
#include "sim/cost/assumptions.h"
#include "sim/study/read_op_log.h"

namespace shardsim {
namespace {

Scenario scenario_of(const char* file) {
  return load_scenario(std::string(SHARDSIM_SOURCE_DIR "/scenarios/small/") + file);
}

// A log of the same schedule on a machine with these constants, nothing shared.
OpLog log_with(Scenario s, const Calibration& c) {
  s.cost.calibration = c;
  s.cost.sharing = false;
  return op_log_of(s, simulate(s));
}

CalibrateOptions options() {
  CalibrateOptions o;
  o.date = "2026-11-30";
  return o;
}

const DataUsed& data_of(const CalibrationFile& file, const std::string& part) {
  for (const DataUsed& d : file.data)
    if (d.source.find(part) != std::string::npos) return d;
  throw std::runtime_error(part);
}

TEST(CalibrateOps, GivesConstantsBack) {
  Scenario s = scenario_of("llama-3.2-1b-eager-h100x8.yaml");
  s.cost.scale_tax = 0.;
  Calibration c = own_calibration(s);
  c.gemm_efficiency = .5;  // of .6786
  c.vec = .6;              // of .82
  c.collective_bandwidth = .7;
  c.collective_latency = .7;  // moved together
  const Simulation simulation = simulate(s);
  const OpsCalibration fit = calibrate_ops(s, simulation, log_with(s, c), "log.json", options());
  ASSERT_TRUE(fit.file.sustained);
  EXPECT_NEAR(fit.file.sustained->gemm_efficiency, .5, .01);
  EXPECT_NEAR(fit.file.sustained->vec, .6, .02);
  EXPECT_NEAR(fit.total.error_pct(), 0, 1);
  for (const OpsCalibration::Class& k : fit.classes) EXPECT_NEAR(k.error_pct(), 0, 2) << k.name;
  EXPECT_GT(data_of(fit.file, "products, kept half").rows, 100);
  EXPECT_LT(data_of(fit.file, "products, kept half").residual_pct, 2);
  // The host's are not of the log.
  EXPECT_EQ(fit.file.sustained->host_launch_us, own_calibration(s).host_launch_us);
  EXPECT_EQ(fit.file.gpu, "h100-sxm5-80gb");
  EXPECT_EQ(fit.file.date, "2026-11-30");
  // What is written reads back.
  const CalibrationFile back = parse_calibration(calibration_yaml(fit.file), "x.yaml");
  EXPECT_EQ(back.sustained->gemm_efficiency, fit.file.sustained->gemm_efficiency);
}

TEST(CalibrateOps, WhatNoFileMayHoldIsNotWritten) {
  // A machine a thousand times slower than the GPU's figures: judged, but no constants of that GPU.
  Scenario s = scenario_of("qwen3-0.6b-own-gpu.yaml");
  s.cost.sharing = false;
  const Simulation simulation = simulate(s);
  OpLog log = op_log_of(s, simulation);
  for (LoggedOp& op : log.ops) op.duration.ps *= 1000;
  CalibrateOptions o = options();
  EXPECT_THROW(calibrate_ops(s, simulation, log, "log.json", o), Error);  // its own GPU
  o.gpu = "a100-sxm4-80gb";
  const OpsCalibration fit = calibrate_ops(s, simulation, log, "log.json", o);
  for (const OpsCalibration::Class& k : fit.classes) {
    // The scenario states its links itself, and no constant is of these.
    const bool links = k.name == "collectives";
    EXPECT_NEAR(k.error_pct(), links ? -99.9 : 0, links ? .1 : 5) << k.name;
  }
  EXPECT_TRUE(std::any_of(fit.notes.begin(), fit.notes.end(), [](const std::string& n) {
    return n.starts_with("collectives hang on no constant");
  }));
  const Calibration own = own_calibration(s);
  EXPECT_EQ(fit.file.sustained->gemm_efficiency, own.gemm_efficiency);
  EXPECT_TRUE(std::any_of(fit.notes.begin(), fit.notes.end(), [](const std::string& n) {
    return n.starts_with("gemm_efficiency") && n.ends_with("not written");
  }));
}

// What a log that was cut lacks is said; launches whose kind was changed are refused.
TEST(CalibrateOps, CountsWhatTheLogLacks) {
  const Scenario s = scenario_of("gpt2-a100x4.yaml");
  const Simulation simulation = simulate(s);
  const OpLog whole = op_log_of(s, simulation);
  const auto notes = [&](const OpLog& log) {
    return calibrate_ops(s, simulation, log, "log.json", options()).notes;
  };
  const auto about_lacking = [](const std::string& n) {
    return n.find("have no measurement") != std::string::npos;
  };
  const std::vector<std::string> of_whole = notes(whole);
  EXPECT_TRUE(std::none_of(of_whole.begin(), of_whole.end(), about_lacking));
  OpLog cut = whole;
  cut.ops.resize(cut.ops.size() - 10);
  cut.ops[0].duration = {};
  const std::vector<std::string> said = notes(cut);
  const auto note = std::find_if(said.begin(), said.end(), about_lacking);
  ASSERT_NE(note, said.end());
  EXPECT_TRUE(note->starts_with("11 of the " + std::to_string(whole.ops.size()) + " ops")) << *note;
  EXPECT_TRUE(std::any_of(said.begin(), said.end(), [](const std::string& n) {
    return n.starts_with("left out of the log") && n.ends_with(": 1 ops");
  }));
  OpLog other = whole;
  other.ops[3].kind = other.ops[3].kind == WorkKind::Gemm ? WorkKind::AllReduce : WorkKind::Gemm;
  EXPECT_THROW(notes(other), Error);
}

TEST(CalibrateOps, RefusesAnotherGpuThanTheScenarios) {
  const Scenario s = scenario_of("gpt2-a100x4.yaml");
  const Simulation simulation = simulate(s);
  CalibrateOptions o = options();
  o.gpu = "h100-sxm5-80gb";
  EXPECT_THROW(calibrate_ops(s, simulation, op_log_of(s, simulation), "log.json", o), Error);
  o.gpu = "a100-sxm4-80gb";
  EXPECT_EQ(calibrate_ops(s, simulation, op_log_of(s, simulation), "log.json", o).file.gpu, o.gpu);
}

TEST(CalibrateOps, RefusesOtherLogs) {
  const Scenario s = scenario_of("gpt2-a100x4.yaml");
  const Simulation simulation = simulate(s);
  OpLog log = op_log_of(s, simulation);
  log.fingerprint = "0000000000000000";
  EXPECT_THROW(calibrate_ops(s, simulation, log, "log.json", options()), Error);
  log.fingerprint.clear();
  EXPECT_THROW(calibrate_ops(s, simulation, log, "log.json", options()), Error);
  const Scenario flat = scenario_of("stack-flat.yaml");
  const Simulation of_flat = simulate(flat);
  EXPECT_THROW(calibrate_ops(flat, of_flat, op_log_of(flat, of_flat), "log.json", options()),
               Error);
}

}  // namespace
}  // namespace shardsim
