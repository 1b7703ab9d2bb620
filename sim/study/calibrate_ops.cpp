#include "sim/study/calibrate_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "sim/base/error.h"
#include "sim/cluster/catalogue.h"
#include "sim/cost/assumptions.h"
#include "sim/cost/collectives.h"
#include "sim/cost/kernels.h"
#include "sim/report/step_report.h"
#include "sim/report/text.h"
#include "sim/schedule/fingerprint.h"
#include "sim/study/pattern_search.h"

namespace shardsim {
namespace {

constexpr double kNoise = .05;
constexpr double kSpread = 3;        // of a constant's prior, in logarithms
constexpr double kBeyond = 1e6;      // how far past what a file may hold the search may go
constexpr double kSmallestUs = .01;  // a prior of 0 has no logarithm
constexpr int64_t kFewestAlone = 4;  // of a class, a part of so much that ran alone is enough
constexpr double kMoves = 1e-6;      // of the error: less is no dependence

struct OpClass {
  const char* name;
  bool (*holds)(const Work&);
  std::vector<std::string_view> constants;
};

const std::vector<OpClass>& op_classes() {
  static const std::vector<OpClass> classes{
      {"products",
       [](const Work& w) { return w.kind == WorkKind::Gemm; },
       {"gemm_efficiency", "gemm_memory_fraction", "gemm_fixed_us", "thin_gemm_efficiency",
        "thin_gemm_memory_fraction", "thin_gemm_fixed_us"}},
      {"attention",
       [](const Work& w) {
         return w.kind == WorkKind::Kernel && w.kernel == KernelClass::attention;
       },
       {"attention_scale", "attention_backward", "attention_fixed_us"}},
      {"memory-bound kernels",
       [](const Work& w) {
         return (w.kind == WorkKind::Kernel && w.kernel != KernelClass::attention) ||
                w.kind == WorkKind::CopyD2D || w.kind == WorkKind::Memset;
       },
       {"vec", "strided", "reduction", "softmax", "foreach_copy", "fused", "kernel_fixed_us",
        "kernel_floor_us"}},
      {"host copies",
       [](const Work& w) { return w.kind == WorkKind::CopyH2D || w.kind == WorkKind::CopyD2H; },
       {"host_link_fraction", "copy_fixed_us"}},
      {"collectives",
       [](const Work& w) { return is_collective(w.kind); },
       {"collective_latency", "collective_bandwidth"}}};
  return classes;
}

const ConstantInfo& info_of(std::string_view name) {
  for (const ConstantInfo& info : calibration_constants())
    if (info.name == name) return info;
  SHARDSIM_ASSERT(false, "a fitted constant is one of the calibration's");
  return calibration_constants().front();
}

// A work and what its ops took.
struct Measured {
  uint32_t work = 0;
  std::vector<double> fitted_us, kept_us;
};

double median(std::vector<double> of) {
  if (of.empty()) return 0;
  const auto middle = of.begin() + static_cast<ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

double sum(const std::vector<double>& of) {
  double s = 0;
  for (const double v : of) s += v;
  return s;
}

class Fit {
 public:
  Fit(const Scenario& scenario, const Simulation& simulation, const OpLog& log,
      const std::string& log_name)
      : scenario_(scenario), schedule_(simulation.schedule), own_(own_calibration(scenario)) {
    prior_ = own_;
    const std::vector<uint32_t> works = works_of_step();
    const auto class_of = [&](const LoggedOp& op) {
      size_t c = 0;
      while (!op_classes()[c].holds(schedule_.works[works[*op.launch]])) ++c;
      return c;
    };
    const std::vector<Interval> comm = busy_intervals(log, Busy::comm);
    std::vector<const LoggedOp*> usable;
    std::map<size_t, int64_t> all, alone;
    std::vector<bool> measured(works.size());
    for (const LoggedOp& op : log.ops) {
      if (!op.launch || *op.launch >= works.size() || op.duration <= Time{}) continue;
      require_kind(op, schedule_.works[works[*op.launch]], log_name);
      measured[*op.launch] = true;
      usable.push_back(&op);
      ++all[class_of(op)];
      if (!beside_collective(op, comm)) ++alone[class_of(op)];
    }
    for (const LoggedOp* op : usable) {
      const size_t c = class_of(*op);
      // What sharing adds is no part of an op's own price.
      const bool enough = alone[c] * kFewestAlone >= all[c];
      if (enough && beside_collective(*op, comm)) continue;
      add(c, works[*op->launch], op->duration.as_us());
    }
    note_missing(works, measured, log.ops.size() - usable.size());
    for (const auto& [c, n] : all) {
      if (alone[c] == n) continue;
      const bool enough = alone[c] * kFewestAlone >= n;
      notes_.push_back(
          fmt::format("{} of {} {} ran beside collectives, which slows them: {}", n - alone[c], n,
                      op_classes()[c].name,
                      enough ? "they are left out" : "too few ran alone, so all are taken"));
    }
  }

  void run(OpsCalibration& out) {
    for (size_t c = 0; c < op_classes().size(); ++c) {
      const std::map<uint32_t, Measured>& ops = ops_[c];
      if (ops.empty()) continue;
      const OpsCalibration::Class before = judged(c);
      fit_class(c, out);
      OpsCalibration::Class after = judged(c);
      after.kept_before = before.kept_after;
      out.classes.push_back(after);
    }
  }

  const Calibration& fitted() const { return own_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // A collective itself is beside none.
  static bool beside_collective(const LoggedOp& op, const std::vector<Interval>& comm) {
    if (is_collective(op.kind)) return false;
    const auto first =
        std::lower_bound(comm.begin(), comm.end(), op.start,
                         [](const Interval& i, Time start) { return i.end <= start; });
    return first != comm.end() && first->start < op.end();
  }

  static void require_kind(const LoggedOp& op, const Work& work, const std::string& log_name) {
    if (op.kind == work.kind) return;
    throw Error(fmt::format("launch {} of the log is {}, and the scenario's is {}", *op.launch,
                            name_of(op.kind), name_of(work.kind)),
                {log_name}, "the log was changed since the replay wrote it");
  }

  // What of the step the log does not hold.
  void note_missing(const std::vector<uint32_t>& works, const std::vector<bool>& measured,
                    size_t unusable) {
    std::map<std::string_view, int64_t> missing;
    for (size_t n = 0; n < works.size(); ++n)
      if (!measured[n]) ++missing[name_of(schedule_.works[works[n]].kind)];
    std::string kinds;
    int64_t all = 0;
    for (const auto& [kind, n] : missing) {
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", n, kind);
      all += n;
    }
    if (all > 0)
      notes_.push_back(
          fmt::format("{} of the {} ops of the step have no measurement in the log: {}", all,
                      works.size(), kinds));
    if (unusable > 0)
      notes_.push_back(fmt::format(
          "left out of the log, being no launch of the step or having no duration: {} ops",
          unusable));
  }

  std::vector<uint32_t> works_of_step() const {
    std::vector<uint32_t> works;
    schedule_.for_each_of_last_step([&](const Instr& in, const Segment&) {
      if (in.kind == Kind::Launch) works.push_back(in.a);
    });
    return works;
  }

  void add(size_t c, uint32_t work, double us) {
    Measured& m = ops_[c][work];
    m.work = work;
    const size_t again = m.fitted_us.size() + m.kept_us.size();
    // A block's launches are even in number: its works change sides from block to block.
    const bool fitted = (count_[c]++ + again) % 2 == 0;
    (fitted ? m.fitted_us : m.kept_us).push_back(us);
  }

  double price(const Work& w) const {
    if (is_collective(w.kind))
      return collective_cost(scenario_.cluster, effective_, schedule_.comms[w.comm.v], w,
                             scenario_.cost.collectives)
          .us;
    return kernel_us(rates_, w);
  }

  // Puts own_ to use.
  void update() {
    scenario_.cost.calibration = own_;
    effective_ = effective_calibration(scenario_);
    rates_ = rates_of(scenario_.cluster.gpu, effective_);
  }

  OpsCalibration::Class judged(size_t c) {
    update();
    OpsCalibration::Class out;
    out.name = op_classes()[c].name;
    std::vector<double> fitted, kept;
    double measured_us = 0, predicted_us = 0;
    for (const auto& [work, m] : ops_[c]) {
      const double us = price(schedule_.works[work]);
      for (const double t : m.fitted_us) fitted.push_back(std::abs(us / t - 1) * 100);
      for (const double t : m.kept_us) kept.push_back(std::abs(us / t - 1) * 100);
      measured_us += sum(m.kept_us);
      predicted_us += us * static_cast<double>(m.kept_us.size());
    }
    out.fitted = static_cast<int64_t>(fitted.size());
    out.kept = static_cast<int64_t>(kept.size());
    out.kept_measured = Time::from_us(measured_us);
    out.kept_after = Time::from_us(predicted_us);
    out.fitted_pct = median(std::move(fitted));
    out.kept_pct = median(std::move(kept));
    return out;
  }

  double misfit(size_t c) {
    update();
    double all = 0, off = 0;
    for (const auto& [work, m] : ops_[c]) {
      if (m.fitted_us.empty()) continue;
      const double share = sum(m.fitted_us);
      const double x = std::log(price(schedule_.works[work]) / median(m.fitted_us)) / kNoise;
      all += share;
      off += share * (std::sqrt(1 + x * x) - 1);
    }
    return all > 0 ? off / all * static_cast<double>(ops_[c].size()) : 0;
  }

  // Where the class's total is right: rates by its error, and fixed times too. Fractions of another rate
  // stay.
  std::vector<double> start(size_t c, const std::vector<double>& prior) {
    constexpr std::string_view kOfOthers[] = {"strided",      "reduction", "softmax",
                                              "foreach_copy", "fused",     "attention_backward"};
    update();
    double measured = 0, predicted = 0;
    for (const auto& [work, m] : ops_[c]) {
      measured += sum(m.fitted_us);
      predicted += price(schedule_.works[work]) * static_cast<double>(m.fitted_us.size());
    }
    if (measured <= 0 || predicted <= 0) return prior;
    const double slower = measured / predicted;
    std::vector<double> x = prior;
    for (size_t i = 0; i < x.size(); ++i) {
      const std::string_view name = op_classes()[c].constants[i];
      if (std::find(std::begin(kOfOthers), std::end(kOfOthers), name) != std::end(kOfOthers))
        continue;
      const bool time = name.ends_with("_us") || name == "collective_latency";
      x[i] *= time ? slower : 1 / slower;
    }
    return x;
  }

  void fit_class(size_t c, OpsCalibration& out) {
    const std::vector<std::string_view>& names = op_classes()[c].constants;
    std::vector<double> x, prior;
    for (const std::string_view name : names)
      prior.push_back(std::max(own_.*info_of(name).member, kSmallestUs));
    x = start(c, prior);
    const auto badness = [&](const std::vector<double>& at) {
      double penalty = 0;
      for (size_t i = 0; i < names.size(); ++i) {
        const ConstantInfo& info = info_of(names[i]);
        if (at[i] > info.most * kBeyond || at[i] < 1e-12)
          return std::numeric_limits<double>::infinity();
        own_.*info.member = at[i];
        const double off = std::log(at[i] / prior[i]) / kSpread;
        penalty += off * off / 2;
      }
      return penalty + misfit(c);
    };
    pattern_search(badness, x);
    badness(x);
    int64_t fitted = 0;
    bool any = false;
    for (const auto& [work, m] : ops_[c]) fitted += static_cast<int64_t>(m.fitted_us.size());
    for (size_t i = 0; i < names.size(); ++i) {
      const ConstantInfo& info = info_of(names[i]);
      // One that no work depends on is not this log's to say.
      const double with = misfit(c);
      own_.*info.member = x[i] * 1.05;
      const bool depends = std::abs(misfit(c) - with) > kMoves;
      own_.*info.member = depends ? x[i] : prior_.*info.member;
      any = any || depends;
      if (!depends) continue;
      own_.*info.member = four_digits(x[i]);
      out.file.from[std::string(names[i])] = fmt::format("fitted on {} {}", fitted, out_name(c));
    }
    // Links that a scenario states itself are priced by these alone.
    if (!any)
      notes_.push_back(
          fmt::format("{} hang on no constant of a calibration here: not fitted", out_name(c)));
  }

  static std::string out_name(size_t c) { return op_classes()[c].name; }

  Scenario scenario_;
  const Schedule& schedule_;
  Calibration own_, prior_, effective_;
  GpuRates rates_;
  std::map<size_t, std::map<uint32_t, Measured>> ops_;
  std::map<size_t, size_t> count_;
  std::vector<std::string> notes_;
};

void check(const Scenario& scenario, const Simulation& s, const OpLog& log,
           const std::string& log_name, const CalibrateOptions& options) {
  if (scenario.cost.model == CostChoice::Model::flat)
    throw Error("--from: the scenario has flat costs, which have no constants to fit", {},
                "use cost: {model: roofline}");
  if (options.gpu.empty() && !find_gpu(scenario.cluster.gpu.name))
    throw Error("--gpu: the scenario has a GPU of its own, and a calibration is of one of the list",
                {}, "name the one whose file it becomes; the scenario takes a file of any");
  if (!options.gpu.empty() && find_gpu(scenario.cluster.gpu.name) &&
      options.gpu != scenario.cluster.gpu.name)
    throw Error(fmt::format("--gpu: the scenario's GPU is {}, not {}", scenario.cluster.gpu.name,
                            options.gpu),
                {}, "with --from the constants are of the scenario's GPU: leave --gpu out");
  const std::string own = fingerprint_text(step_fingerprint(s.schedule));
  if (log.fingerprint.empty())
    throw Error("the log carries no fingerprint of a schedule, so its ops are no works of one",
                {log_name}, "constants are fitted to logs of `shardsim replay`");
  if (log.fingerprint != own)
    throw Error(fmt::format("the log is of another schedule: its fingerprint is {}, the scenario's "
                            "step has {}",
                            log.fingerprint, own),
                {log_name}, "replay the very scenario that is calibrated");
}

OpsCalibration::Class total_of(const std::vector<OpsCalibration::Class>& classes) {
  OpsCalibration::Class t;
  t.name = "all";
  for (const OpsCalibration::Class& c : classes) {
    t.fitted += c.fitted;
    t.kept += c.kept;
    t.kept_measured += c.kept_measured;
    t.kept_before += c.kept_before;
    t.kept_after += c.kept_after;
  }
  return t;
}

double error_between(Time predicted, Time measured) {
  return measured.ps == 0
             ? 0
             : 100 * (static_cast<double>(predicted.ps) / static_cast<double>(measured.ps) - 1);
}

}  // namespace

double OpsCalibration::Class::error_pct() const { return error_between(kept_after, kept_measured); }

OpsCalibration calibrate_ops(const Scenario& scenario, const Simulation& simulation,
                             const OpLog& log, const std::string& log_name,
                             const CalibrateOptions& options) {
  check(scenario, simulation, log, log_name, options);
  OpsCalibration out;
  out.file.gpu = options.gpu.empty() ? scenario.cluster.gpu.name : options.gpu;
  if (const CalibrationFile* shipped = calibration_for(out.file.gpu)) out.file.from = shipped->from;
  Fit fit(scenario, simulation, log, log_name);
  fit.run(out);
  if (out.classes.empty())
    throw Error("no op of the log has a launch and a duration, so nothing can be fitted",
                {log_name});
  out.total = total_of(out.classes);
  out.notes = fit.notes();

  Calibration c = fit.fitted();
  const Calibration before = own_calibration(scenario);
  for (const ConstantInfo& info : calibration_constants()) {
    double& value = c.*info.member;
    if (value >= info.least && value <= info.most) continue;
    out.notes.push_back(fmt::format(
        "{} fits best at {:.3g}, which no calibration may hold ({} to {}): the machine is not what "
        "the scenario's GPU says; the table above judges by it, in the file it is not written",
        info.name, value, info.least, info.most));
    value = before.*info.member;
    out.file.from.erase(std::string(info.name));
  }
  if (log.source == OpSource::replay_host)
    out.notes.emplace_back(
        "the replay ran on a host: these are its constants, and not those of the GPU whose name "
        "the file carries");
  if (log.scale != 1)
    out.notes.push_back(fmt::format(
        "the replay's sizes were scaled down by {}: constants are of works as scheduled",
        log.scale));
  out.notes.push_back("the host's constants are kept: a device's log says nothing of them");
  for (const OpsCalibration::Class& k : out.classes) {
    out.file.data.push_back({fmt::format("{}: {}, fitted half", log_name, k.name), k.fitted,
                             four_digits(k.fitted_pct)});
    out.file.data.push_back(
        {fmt::format("{}: {}, kept half", log_name, k.name), k.kept, four_digits(k.kept_pct)});
  }
  out.file.name = options.name.empty() ? out.file.gpu : options.name;
  c.name = out.file.name;
  out.file.date = options.date;
  out.file.sustained = std::move(c);
  return out;
}

std::string ops_calibration_table(const OpsCalibration& c) {
  std::vector<std::vector<std::string>> rows{
      {"", "fitted", "kept", "measured", "before", "fitted", "error"}};
  const auto row = [&](const OpsCalibration::Class& k) {
    rows.push_back({k.name, grouped(k.fitted), grouped(k.kept), duration(k.kept_measured),
                    duration(k.kept_before), duration(k.kept_after),
                    fmt::format("{:+.1f} %", k.error_pct())});
  };
  for (const OpsCalibration::Class& k : c.classes) row(k);
  row(c.total);
  Lines out;
  out.add("half of the ops fitted, the total of the other half:");
  out.text(aligned(rows, "lrrrrrr"));
  for (const std::string& note : c.notes) out.add("note: {}", note);
  return out.take();
}

}  // namespace shardsim
