#include "sim/study/fit.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <map>

#include "sim/base/error.h"
#include "sim/cost/assumptions.h"
#include "sim/study/parallel.h"

namespace shardsim {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double kStep = .02;  // of theta, for derivatives

const ConstantInfo& info_of(const std::string& name) {
  for (const ConstantInfo& c : calibration_constants())
    if (c.name == name) return c;
  throw Error("there is no constant '" + name + "'");
}

struct Normal {
  MatrixXd information;  // inverse covariance of theta
  VectorXd gradient;
};

// Of the rows in use, each source's mean shrunk; see the header.
Normal normal_equations(const std::vector<FitRow>& rows, const std::vector<bool>& use,
                        const std::vector<double>& slope, const std::vector<double>& target,
                        const std::vector<FitConstant>& constants, const FitOptions& o) {
  const auto n = static_cast<Eigen::Index>(constants.size());
  Normal out{MatrixXd::Zero(n, n), VectorXd::Zero(n)};
  for (Eigen::Index i = 0; i < n; ++i) {
    const double s = constants[static_cast<size_t>(i)].sigma;
    out.information(i, i) = 1 / (s * s);
  }
  std::map<std::string, std::vector<size_t>> sources;
  for (size_t r = 0; r < rows.size(); ++r)
    if (use[r]) sources[rows[r].source].push_back(r);
  for (const auto& [name, members] : sources) {
    const auto count = static_cast<double>(members.size());
    MatrixXd j(static_cast<Eigen::Index>(members.size()), n);
    VectorXd y(j.rows());
    for (Eigen::Index k = 0; k < j.rows(); ++k) {
      const size_t r = members[static_cast<size_t>(k)];
      for (Eigen::Index i = 0; i < n; ++i)
        j(k, i) = slope[r * constants.size() + static_cast<size_t>(i)];
      y(k) = target[r];
    }
    const double shrink = 1 - o.row_error / std::sqrt(o.row_error * o.row_error +
                                                      count * o.shared_error * o.shared_error);
    const Eigen::RowVectorXd mean = j.colwise().mean();
    const double mean_y = y.mean();
    j.rowwise() -= shrink * mean;
    y.array() -= shrink * mean_y;
    out.information += j.transpose() * j / (o.row_error * o.row_error);
    out.gradient += j.transpose() * y / (o.row_error * o.row_error);
  }
  return out;
}

}  // namespace

Calibration at_point(const Calibration& prior, const std::string& gpu,
                     const std::vector<FitConstant>& constants, const FitPoint& point) {
  Calibration c = prior;
  for (size_t i = 0; i < constants.size(); ++i) {
    if (!constants[i].gpu.empty() && constants[i].gpu != gpu) continue;
    const ConstantInfo& info = info_of(constants[i].name);
    c.*info.member = std::clamp(c.*info.member * std::exp(point[i]), info.least, info.most);
  }
  return c;
}

Calibration prior_of(const FitRow& row) {
  const Scenario& s = row.model->scenario();
  return row.from_own ? own_calibration(s) : calibration_of(s.cluster.gpu);
}

double predicted_s(const FitRow& row, const std::vector<FitConstant>& constants,
                   const FitPoint& point) {
  const Calibration c = at_point(prior_of(row), row.gpu, constants, point);
  return row.model->seconds(c);
}

Linearized::Linearized(const std::vector<FitRow>& rows, const std::vector<FitConstant>& constants,
                       FitPoint point, int threads, const std::vector<bool>* use)
    : constants_(constants.size()),
      point_(std::move(point)),
      residual_(rows.size()),
      slope_(rows.size() * constants.size()) {
  parallel_for(rows.size(), threads, [&](size_t r) {
    if (use != nullptr && !(*use)[r]) return;
    const double here = std::log(predicted_s(rows[r], constants, point_));
    residual_[r] = std::log(rows[r].measured_s) - here;
    for (size_t i = 0; i < constants.size(); ++i) {
      if (!constants[i].gpu.empty() && constants[i].gpu != rows[r].gpu) continue;
      FitPoint moved = point_;
      moved[i] += kStep;
      slope_[r * constants_ + i] =
          (std::log(predicted_s(rows[r], constants, moved)) - here) / kStep;
    }
  });
}

double Linearized::residual(size_t r, const FitPoint& point) const {
  double out = residual_[r];
  for (size_t i = 0; i < constants_; ++i) out -= slope(r, i) * (point[i] - point_[i]);
  return out;
}

FitPoint Linearized::solve(const std::vector<FitRow>& rows,
                           const std::vector<FitConstant>& constants, const std::vector<bool>& use,
                           const FitOptions& options) const {
  // What the row would leave at theta = 0, so that the prior pulls towards it.
  std::vector<double> target(rows.size());
  const FitPoint zero(constants_, 0);
  for (size_t r = 0; r < rows.size(); ++r) target[r] = residual(r, zero);
  const Normal n = normal_equations(rows, use, slope_, target, constants, options);
  const VectorXd theta = n.information.ldlt().solve(n.gradient);
  return {theta.data(), theta.data() + theta.size()};
}

Fitted fit(const std::vector<FitRow>& rows, const std::vector<FitConstant>& constants,
           const std::vector<bool>& use, const FitOptions& options) {
  Fitted out;
  out.point.assign(constants.size(), 0);
  for (int i = 0; i < options.iterations; ++i) {
    const Linearized at(rows, constants, out.point, options.threads);
    out.point = at.solve(rows, constants, use, options);
    if (i + 1 < options.iterations) continue;
    const Normal n = normal_equations(rows, use, at.slopes(), std::vector<double>(rows.size()),
                                      constants, options);
    const MatrixXd covariance = n.information.inverse();
    for (Eigen::Index k = 0; k < covariance.rows(); ++k)
      out.standard_error.push_back(std::sqrt(covariance(k, k)));
  }
  return out;
}

}  // namespace shardsim
