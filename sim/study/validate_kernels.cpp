#include "sim/study/validate_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/base/error.h"
#include "sim/cluster/catalogue.h"
#include "sim/study/calibrate_kernels.h"

namespace shardsim {
namespace {

struct Chosen {
  const CalibrationFile* file = nullptr;
  KernelCalibration constants;
};

double peak(const Gpu& gpu) { return std::max(gpu.bf16_tflops, gpu.fp16_tflops); }

// compute_capability 90 and 90 are one generation, 100 and 103 too; 80 and 86 are not: the second is
// the chip of workstations.
bool one_generation(const Gpu& a, const Gpu& b) {
  if (a.compute_capability == 0) return false;
  return a.compute_capability == b.compute_capability ||
         (a.compute_capability >= 100 && a.compute_capability / 10 == b.compute_capability / 10);
}

std::optional<Chosen> constants_for(const Gpu& gpu) {
  Chosen chosen;
  for (const CalibrationFile& file : shipped_calibrations()) {
    if (!file.kernel) continue;
    if (file.gpu == gpu.name) return Chosen{&file, *file.kernel};
    const Gpu other = find_gpu(file.gpu).value();
    if (!one_generation(gpu, other) || chosen.file != nullptr) continue;
    chosen = {&file, *file.kernel};
    for (AttentionCurve& curve : chosen.constants.attention)
      curve.tflops *= peak(gpu) / peak(other);
    chosen.constants.gemm_best_tflops = 0;
  }
  if (chosen.file == nullptr) return std::nullopt;
  return chosen;
}

void predict(ValidatedKernel& v) {
  const Gpu gpu = find_gpu(v.row.gpu).value();
  const std::optional<Chosen> chosen = constants_for(gpu);
  if (!chosen) {
    v.row.left_out = fmt::format("no constants of single kernels for {}", gpu.name);
    return;
  }
  v.calibration = chosen->file->name;
  const std::optional<double> us = single_kernel_us(gpu, chosen->constants, v.row.kernel);
  if (!us) {
    v.row.left_out = v.row.kernel.kind == SingleKernel::Kind::attention
                         ? fmt::format("{} has no {} pass of {}", v.calibration,
                                       v.row.kernel.backward ? "backward" : "forward",
                                       v.row.kernel.implementation)
                         : fmt::format("{} has no fp8", gpu.name);
    return;
  }
  v.predicted_us = *us;
  v.contradicts = beyond_best(chosen->constants, v.row);
  v.fitted = std::any_of(chosen->file->data.begin(), chosen->file->data.end(),
                         [&](const DataUsed& d) { return d.source == v.row.source; });
}

}  // namespace

std::vector<ValidatedKernel> validate_kernels(const CsvTable& table) {
  std::vector<ValidatedKernel> out;
  for (KernelRow& row : kernel_rows(table)) {
    ValidatedKernel& v = out.emplace_back();
    v.row = std::move(row);
    if (v.row.left_out.empty()) predict(v);
  }
  return out;
}

bool KernelSplit::holds(std::string_view source) const {
  return std::find(fitted.begin(), fitted.end(), source) != fitted.end();
}

KernelSplit load_kernel_split(const std::string& path) {
  const Value root(std::make_shared<const Document>(parse_yaml(read_text_file(path), path)));
  if (!root.is_map())
    root.fail("this is no split of kernel tables: expected keys and values",
              "it begins with 'kernels_split: 1'");
  const Map map(root, {"kernels_split", "fitted", "best_tflops"});
  const Value version = map.at("kernels_split", "a split begins with 'kernels_split: 1'");
  if (!version.is_word("1")) version.fail_expected("1, the only version of splits there is");
  KernelSplit split;
  for (const Value& v : map.at("fitted").list("sources", 1)) split.fitted.push_back(v.text());
  if (const std::optional<Value> best = map.find("best_tflops")) {
    std::vector<std::string_view> names;
    for (const GpuEntry& gpu : gpu_catalogue()) names.push_back(gpu.name);
    const Map rates(*best, names);
    for (const std::string_view name : names)
      if (const std::optional<Value> v = rates.find(name))
        split.best_tflops.emplace(name, v->decimal(.01, 1e6, "TFLOPS in 16 bits"));
  }
  return split;
}

}  // namespace shardsim
