// A GPU's constants from what each op of a replay took: `shardsim calibrate SCENARIO --from LOG`.
//
// The log must have the fingerprint of the scenario's step, so that each op's work (sizes, type,
// kernel class, communicator) is the schedule's. Half of the ops are fitted and half kept apart: of
// each class every other one, and of a work that comes again the other half each time. Classes are
// fitted one after the other, each with the constants that its prices hang on:
//   products             gemm_ and thin_gemm_ efficiency, memory fraction and fixed time
//   attention            attention_scale, attention_backward, attention_fixed_us
//   memory-bound kernels vec, strided, reduction, softmax, foreach_copy, fused, fixed time and floor
//   host copies          host_link_fraction, copy_fixed_us
//   collectives          collective_latency, collective_bandwidth
// by the least sum, over works, of share x (sqrt(1 + (log(predicted / measured) / .05)^2) - 1), measured
// being the median of the work's ops and share its part of the class's time, plus a wide prior on each
// constant; one that no work depends on keeps its value. The host's constants are not of a device's
// log: nothing here says what PyTorch takes to launch.
// Works of a scaled replay are priced as scheduled, so the constants take the scale in.
// Products, kernels and copies that ran beside a collective are left out where a quarter of their class
// ran alone.
// What a file may not hold (a CPU's efficiency of a GPU's peak) is fitted and judged all the same, said,
// and not written.
// Worked number: gathers predicted at 10 us and measured at 12 us, all alike: collective_latency and
// collective_bandwidth are both moved until the price is 12; the kept half's total is off by 0 %.
#pragma once

#include <string>
#include <vector>

#include "sim/plan/scenario.h"
#include "sim/report/op_log.h"
#include "sim/study/calibrate.h"
#include "sim/study/simulate.h"

namespace shardsim {

struct OpsCalibration {
  struct Class {
    std::string name;
    int64_t fitted = 0, kept = 0;                 // ops
    Time kept_measured, kept_before, kept_after;  // totals of the kept half; predicted by the
                                                  // scenario's constants and by the fitted ones
    double fitted_pct = 0, kept_pct = 0;          // median absolute errors, after
    double error_pct() const;                     // of the kept total, after
  };
  CalibrationFile file;
  std::vector<Class> classes;
  Class total;
  std::vector<std::string> notes;
};

// Error where the scenario has flat costs, its GPU is of no catalogue and options name none or is of it
// and options name another, or the log is of another schedule. Ops of the step that the log lacks are
// counted in a note.
OpsCalibration calibrate_ops(const Scenario& scenario, const Simulation& simulation,
                             const OpLog& log, const std::string& log_name,
                             const CalibrateOptions& options);

// What is said beside the file.
std::string ops_calibration_table(const OpsCalibration& c);

}  // namespace shardsim
