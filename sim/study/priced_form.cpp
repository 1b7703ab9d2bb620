#include "sim/study/priced_form.h"

#include <fmt/format.h>

#include "sim/config/calibration.h"
#include "sim/cost/stragglers.h"
#include "sim/model/version.h"

namespace shardsim {
namespace {

constexpr int kHopper = 90;

// Whether the scenario's text has that key of a section. A scenario without text says all it holds.
bool says(const Scenario& s, std::string_view section, std::string_view key) {
  if (!s.place_of) return true;
  const Place above = s.place_of(section);
  const Place here = s.place_of(fmt::format("{}.{}", section, key));
  return here.line != above.line || here.column != above.column;
}

const char* name_of(RopeForm rope) {
  switch (rope) {
    case RopeForm::complex: return "complex";
    case RopeForm::hf: return "hf";
    case RopeForm::none: return "none";
  }
  return "?";
}

const char* name_of(Compile compile) {
  switch (compile) {
    case Compile::none: return "none";
    case Compile::blocks: return "blocks";
    case Compile::blocks_and_loss: return "blocks_and_loss";
    case Compile::model: return "model";
    case Compile::model_and_loss: return "model_and_loss";
  }
  return "?";
}

std::string norm_of(const Scenario& s) {
  if (s.model.norm == NormForm::hf) return "hf";
  if (s.training.behaviour().composed_rms_norm && s.training.compile == Compile::none)
    return fmt::format("fused, which PyTorch {} runs as a chain of kernels", s.training.pytorch);
  return "fused";
}

// The constants' own line, with how much they rest on.
void constants(const Scenario& s, std::vector<PricedWith>& out) {
  if (!s.cost.calibration) return;
  const CalibrationFile* shipped = find_calibration(s.cost.calibration->name);
  for (PricedWith& p : out) {
    if (shipped == nullptr || !shipped->sustained) continue;
    if (p.what == "constants" && shipped->data.empty()) {
      p.value += ", no measured step of it was fitted";
      p.assumed = true;
    }
    if (p.what != "software" || shipped->date.size() < 7) continue;
    const std::string month = shipped->date.substr(0, 7);
    if (p.assumed)
      p.value = fmt::format("of the constants' date, {}", month);
    else if (p.value > month)
      p.value += fmt::format(", priced as of the constants' date, {}", month);
  }
}

void jitter(const Scenario& s, StepReport& report) {
  const Jitter& j = s.cost.jitter;
  const int64_t ranks = s.training.mesh.world();
  if (j.rank_sigma > 0)
    report.priced_with.push_back(
        {"jitter",
         fmt::format("ranks {:g}, the slowest of {} takes {:.3f} times as long", j.rank_sigma,
                     ranks, slowest_rank(j.rank_sigma, ranks)),
         false});
  if (j.kernel_sigma > 0)
    report.priced_with.push_back(
        {"jitter", fmt::format("kernels {:g}, seed {}", j.kernel_sigma, j.seed), false});
  if (report.run.scale_tax > 1 && j.rank_sigma + j.kernel_sigma > 0 && !s.cost.scale_tax)
    report.notes.push_back(
        "the scale tax holds the stragglers of published runs, and cost.jitter adds some: to count "
        "them once, write scale_tax: off");
}

}  // namespace

void add_form(const Scenario& s, StepReport& report) {
  if (s.cost.model == CostChoice::Model::flat) return;
  std::vector<PricedWith>& out = report.priced_with;
  constants(s, out);
  const auto add = [&](const char* what, std::string value, std::string_view section,
                       std::string_view key) {
    out.push_back({what, std::move(value), !says(s, section, key)});
  };
  if (s.model.family == Family::llama) {
    add("norm", norm_of(s), "model", "norm");
    add("rope", name_of(s.model.rope), "model", "rope");
    if (s.model.kv_heads != s.model.heads)
      add("K and V", s.model.repeat_kv ? "expanded" : "not expanded", "model", "repeat_kv");
    add("compile", name_of(s.training.compile), "training", "compile");
  }
  add("calls", "of PyTorch " + s.training.pytorch, "training", "pytorch");
  if (s.cluster.gpu.compute_capability == kHopper)
    out.push_back({"power class",
                   calibration_of(s.cluster.gpu).name == "h100" ? "700 W" : "500 W and less",
                   false});
  jitter(s, report);
}

}  // namespace shardsim
