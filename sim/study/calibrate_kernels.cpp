#include "sim/study/calibrate_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>

#include "sim/base/error.h"
#include "sim/study/pattern_search.h"

namespace shardsim {
namespace {

using Kind = SingleKernel::Kind;

constexpr double kNoise = .02;
constexpr double kRounding = 1.005;  // of published rates and times

double error_of(const Gpu& gpu, const KernelCalibration& c, const KernelRow& row) {
  const std::optional<double> us = single_kernel_us(gpu, c, row.kernel);
  SHARDSIM_ASSERT(us, "a row that is fitted is one that can be predicted");
  return std::log(*us / row.time_us);
}

// A constant to be fitted, wherever it stands in the calibration.
struct Free {
  std::function<double&(KernelCalibration&)> at;
  double least, most, spread;
};

// What no row depends on keeps its prior exactly.
void fit(const Gpu& gpu, KernelCalibration& c, const std::vector<const KernelRow*>& rows,
         const std::vector<Free>& free) {
  std::vector<double> prior, x;
  for (const Free& f : free) prior.push_back(f.at(c));
  x = prior;
  const auto of_rows = [&] {
    double sum = 0;
    for (const KernelRow* row : rows) {
      const double off = error_of(gpu, c, *row) / kNoise;
      sum += std::sqrt(1 + off * off) - 1;
    }
    return sum;
  };
  const auto badness = [&](const std::vector<double>& at) {
    double sum = 0;
    for (size_t i = 0; i < free.size(); ++i) {
      if (at[i] < free[i].least || at[i] > free[i].most)
        return std::numeric_limits<double>::infinity();
      free[i].at(c) = at[i];
      const double off = std::log(at[i] / prior[i]) / free[i].spread;
      sum += off * off / 2;
    }
    return sum + of_rows();
  };
  pattern_search(badness, x);
  for (size_t i = 0; i < free.size(); ++i) free[i].at(c) = x[i];
  for (size_t i = 0; i < free.size(); ++i) {
    const double before = of_rows();
    free[i].at(c) = prior[i];
    if (of_rows() != before) free[i].at(c) = x[i];
  }
  for (const Free& f : free) f.at(c) = four_digits(f.at(c));
}

// Those of products (gemm_...) or of memory-bound kernels.
void fit_named(const Gpu& gpu, KernelCalibration& c, const std::vector<const KernelRow*>& rows,
               bool products, CalibrationFile& file) {
  if (rows.empty()) return;
  const KernelCalibration prior = c;
  std::vector<Free> free;
  for (const KernelConstantInfo& info : kernel_constants())
    if (info.spread > 0 && info.name.starts_with("gemm_") == products)
      free.push_back({[member = info.member](KernelCalibration& k) -> double& { return k.*member; },
                      info.least, info.most, info.spread});
  fit(gpu, c, rows, free);
  for (const KernelConstantInfo& info : kernel_constants())
    if (c.*info.member != prior.*info.member)
      file.from[std::string(info.name)] = fmt::format("fitted, {} rows", rows.size());
}

AttentionCurve& curve_of(KernelCalibration& c, const SingleKernel& k) {
  for (AttentionCurve& curve : c.attention)
    if (curve.implementation == k.implementation && curve.backward == k.backward) return curve;
  AttentionCurve curve;
  curve.implementation = k.implementation;
  curve.backward = k.backward;
  c.attention.push_back(std::move(curve));
  return c.attention.back();
}

}  // namespace

bool beyond_best(const KernelCalibration& c, const KernelRow& row) {
  return c.gemm_best_tflops > 0 && row.kernel.kind == Kind::product &&
         bytes_of(row.kernel.dtype) == 2 &&
         row.kernel.flops() / (row.time_us * 1e6) > c.gemm_best_tflops * kRounding;
}

CalibrationFile fit_kernels(const Gpu& gpu, const KernelCalibration& prior,
                            std::span<const KernelRow> rows) {
  CalibrationFile file;
  file.gpu = gpu.name;
  KernelCalibration c = prior;
  std::vector<const KernelRow*> products, memory;
  std::map<std::pair<std::string, bool>, std::vector<const KernelRow*>> attention;
  std::vector<const KernelRow*> used;
  for (const KernelRow& row : rows) {
    if (row.kernel.kind == Kind::attention) {
      curve_of(c, row.kernel);
      attention[{row.kernel.implementation, row.kernel.backward}].push_back(&row);
    } else if (!single_kernel_us(gpu, c, row.kernel) || beyond_best(c, row)) {
      continue;
    } else {
      (row.kernel.kind == Kind::product ? products : memory).push_back(&row);
    }
    used.push_back(&row);
  }
  fit_named(gpu, c, products, true, file);
  fit_named(gpu, c, memory, false, file);
  for (const auto& [which, group] : attention) {
    std::vector<Free> free;
    for (const CurveConstantInfo& info : curve_constants())
      free.push_back({[member = info.member, &k = group.front()->kernel](
                          KernelCalibration& all) -> double& { return curve_of(all, k).*member; },
                      info.least, info.most, info.spread});
    // The rate itself starts where the rows are.
    double best = 0;
    for (const KernelRow* row : group)
      best = std::max(best, row->kernel.flops() / (row->time_us * 1e6));
    curve_of(c, group.front()->kernel).tflops = best;
    fit(gpu, c, group, free);
  }
  std::map<std::string, std::vector<double>> errors;
  for (const KernelRow* row : used)
    errors[row->source].push_back(std::abs(std::expm1(error_of(gpu, c, *row))) * 100);
  for (auto& [source, of] : errors) {
    std::nth_element(of.begin(), of.begin() + static_cast<ptrdiff_t>(of.size() / 2), of.end());
    file.data.push_back({source, static_cast<int64_t>(of.size()), four_digits(of[of.size() / 2])});
  }
  file.kernel = std::move(c);
  return file;
}

}  // namespace shardsim
