// The fit against what a hand computes from the same slopes, and against times that were made with known
// constants.
#include "sim/study/fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/config/scenario.h"

namespace shardsim {
namespace {

Scenario small(int layers, int tokens) {
  return parse_scenario(
      "shardsim: 1\nmodel: {model_type: llama, vocab_size: 4096, hidden_size: 8192, "
      "intermediate_size: 28672, num_hidden_layers: " +
          std::to_string(layers) +
          ", num_attention_heads: 64}\ncluster: {preset: dgx-h100}\ntraining: {strategy: fsdp2, "
          "seq_len: " +
          std::to_string(tokens) + ", precision: {storage: fp32, compute: bf16, reduce: fp32}}\n",
      "small.yaml");
}

class Fit : public ::testing::Test {
 protected:
  StepModel a_{small(2, 16384)}, b_{small(4, 4096)}, c_{small(2, 65536)};
  const std::string gpu_ = "h100-sxm5-80gb";

  FitRow row(StepModel& m, double seconds, const std::string& source) {
    return {&m, seconds, source, gpu_};
  }
};

// One row r with slope s, its logarithm y above the prediction, prior sigma p: theta minimizes
// (y - s theta)^2 / (e^2 + u^2) + theta^2 / p^2, so theta = y s p^2 / (s^2 p^2 + e^2 + u^2).
TEST_F(Fit, OneRowIsSharedBetweenPriorAndError) {
  const std::vector<FitConstant> constants{{"gemm_efficiency", gpu_, .1}};
  const double now = predicted_s(row(a_, 1, "s"), constants, {0});
  const std::vector<FitRow> rows{row(a_, now * 1.1, "s")};
  FitOptions o;
  o.row_error = .03;
  o.shared_error = .04;
  const Linearized at(rows, constants, {0}, 1);
  const double s = at.slope(0, 0), y = std::log(1.1);
  EXPECT_LT(s, -.2);  // products are a good part of this step
  const FitPoint theta = at.solve(rows, constants, {true}, o);
  EXPECT_NEAR(theta[0], y * s * .01 / (s * s * .01 + .0009 + .0016), 1e-9);
}

TEST_F(Fit, KnownConstantsComeBack) {
  const std::vector<FitConstant> constants{
      {"gemm_efficiency", gpu_, 1}, {"vec", gpu_, 1}, {"attention_scale", "", 1}};
  const FitPoint truth{-.12, .08, .2};
  std::vector<FitRow> rows;
  for (StepModel* m : {&a_, &b_, &c_}) {
    rows.push_back(row(*m, 1, "s" + std::to_string(rows.size())));
    rows.back().measured_s = predicted_s(rows.back(), constants, truth);
  }
  FitOptions o;
  o.row_error = 1e-4;
  o.shared_error = 0;
  o.iterations = 6;
  const Fitted f = fit(rows, constants, {true, true, true}, o);
  for (size_t i = 0; i < truth.size(); ++i) EXPECT_NEAR(f.point[i], truth[i], .005) << i;
}

// Ninety rows of one source that all say +10 % are one opinion: with row error 0 they count like one.
TEST_F(Fit, RowsOfOneSourceErrTogether) {
  const std::vector<FitConstant> constants{{"gemm_efficiency", gpu_, .1}};
  const double now = predicted_s(row(a_, 1, "s"), constants, {0});
  const auto fitted = [&](int copies) {
    std::vector<FitRow> rows;
    for (int i = 0; i < copies; ++i) rows.push_back(row(a_, now * 1.1, "s"));
    FitOptions o;
    o.row_error = 1e-3;
    o.shared_error = .04;
    const Linearized at(rows, constants, {0}, 1);
    return at.solve(rows, constants, std::vector<bool>(rows.size(), true), o)[0];
  };
  EXPECT_NEAR(fitted(9), fitted(1), 1e-4);
}

TEST_F(Fit, ConstantsOfAnotherGpuStayOut) {
  const std::vector<FitConstant> constants{{"gemm_efficiency", "a100-sxm4-80gb", .1}};
  const FitRow r = row(a_, 1, "s");
  EXPECT_EQ(predicted_s(r, constants, {.5}), predicted_s(r, constants, {0}));
}

}  // namespace
}  // namespace shardsim
