// Fits named constants to measured step times: Gauss-Newton on the logarithm of time, with a prior on
// each constant and an error that the rows of one source share.
//
//   log measured_r - log predicted_r(theta) = u_source + e_r,   u ~ N(0, shared), e ~ N(0, row)
//   theta_i = log(constant_i / prior_i) ~ N(0, sigma_i)
// Rows of one source err together (its machine, its software, what it did not say), so ninety rows of
// one source weigh little more than ten: with n rows, row error s and shared error u, subtracting
// (1 - s / sqrt(s^2 + n u^2)) of the source's mean makes them independent.
// A constant is of one type of GPU or of all.
// Worked number: one row, measured 10 % above the prediction (log 1.1 = 0.0953), one constant the time
// is inversely proportional to, sigma .1, row .03, shared .04: theta = -.0953 x .01 / (.01 + .0025)
// = -.0762, the constant falls by 7.3 %.
#pragma once

#include <string>
#include <vector>

#include "sim/cluster/calibration.h"
#include "sim/study/step_model.h"

namespace shardsim {

struct FitConstant {
  std::string name;   // of calibration_constants()
  std::string gpu;    // of the catalogue; empty: one value for all
  double sigma = .1;  // of the prior, in logarithms
};

struct FitRow {
  StepModel* model = nullptr;
  double measured_s = 0;
  std::string source;  // whose error it shares
  std::string gpu;
  // The prior is the scenario's own calibration, that of a user's few rows; otherwise what is known of
  // the GPU's generation before any fit.
  bool from_own = false;
};
Calibration prior_of(const FitRow& row);

struct FitOptions {
  double row_error = .025, shared_error = .025;
  int iterations = 3;
  int threads = 1;
};

// Values of all constants; those that are not of a row's GPU do not touch it.
using FitPoint = std::vector<double>;  // log(constant / prior), by FitConstant

// The constants of a GPU at a point.
Calibration at_point(const Calibration& prior, const std::string& gpu,
                     const std::vector<FitConstant>& constants, const FitPoint& point);
double predicted_s(const FitRow& row, const std::vector<FitConstant>& constants,
                   const FitPoint& point);

// Rows with their derivatives at one point, from which any subset of them can be fitted.
class Linearized {
 public:
  // Of the rows whose `use` is set; none given: of all.
  Linearized(const std::vector<FitRow>& rows, const std::vector<FitConstant>& constants,
             FitPoint point, int threads, const std::vector<bool>* use = nullptr);

  const FitPoint& point() const { return point_; }
  // log measured - log predicted of row r at `point`, to first order.
  double residual(size_t r, const FitPoint& point) const;
  double slope(size_t r, size_t constant) const { return slope_[r * constants_ + constant]; }
  const std::vector<double>& slopes() const { return slope_; }
  // The most likely point given the rows whose `use` is set.
  FitPoint solve(const std::vector<FitRow>& rows, const std::vector<FitConstant>& constants,
                 const std::vector<bool>& use, const FitOptions& options) const;

 private:
  size_t constants_ = 0;
  FitPoint point_;
  std::vector<double> residual_;  // by row
  std::vector<double> slope_;     // d log predicted / d theta, by row and constant
};

struct Fitted {
  FitPoint point;
  std::vector<double> standard_error;  // of theta
};

Fitted fit(const std::vector<FitRow>& rows, const std::vector<FitConstant>& constants,
           const std::vector<bool>& use, const FitOptions& options);

}  // namespace shardsim
