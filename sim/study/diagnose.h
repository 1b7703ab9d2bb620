// The inverse question: a step took so long; what would explain it? For each resource the value with
// which the model gives the measured time, with its uncertainty, and how much of the step hangs on it.
//
//   network    bus bandwidth between nodes (and of rails, in proportion)
//   node       bus bandwidth inside a node
//   compute    speed of products, attention and memory-bound kernels together, 1 as calibrated
//   memory     speed of memory-bound kernels alone
//   host       cost of host calls, 1 as calibrated
// sensitivity: percent of the step per percent of the resource's speed; the largest one binds. It is
// told of the scenario as it is, and, as that is not the step that was measured, of the scenario with
// each explanation in it.
// Several runs on one machine (rows of a table) share one value: the one with the least squared
// logarithms of predicted over measured. What leaves least of them over comes first; one step alone
// says nothing of that kind, and the most sensitive one comes first.
// The uncertainty is the range in which the squares rise by no more than one variance: that of one time
// against the model (4 % where nothing else is said: the spread of one source in `validate`), or that
// of the rows' own disagreement where it is larger.
// Worked examples: torchtitan's 64 H100 (5,097 tokens/s) are compute-bound as they are, and bound by the
// network at the 44 GB/s that explain them. FSDP1's Llama-2 rows of the YaFSDP table (A100, network not stated) are explained by
// a bus bandwidth of about 55 GB/s a GPU.
#pragma once

#include <string>
#include <vector>

#include "sim/plan/scenario.h"

namespace shardsim {

enum class Explains : uint8_t { network, node, compute, memory, host };

struct MeasuredStep {
  std::string name;
  Scenario scenario;
  double seconds = 0;
  double last_micro_batch = 1;  // how full it is
};

struct Explanation {
  Explains what = Explains::network;
  std::string name, unit;  // "bus bandwidth between nodes", "GB/s"; unit empty: a factor
  double now = 0;          // as the scenario has it
  // Nothing where no value within a factor 100 explains the time: `why_not` says what stands against it.
  bool found = false;
  std::string why_not;
  double value = 0, low = 0, high = 0;
  double sensitivity = 0;         // mean over the steps, at the scenario's value
  double mean_abs_error_pct = 0;  // over the steps, at the best value
  // With the value in place of the scenario's.
  std::string binds;
  double binds_sensitivity = 0;
};

struct Diagnosis {
  std::vector<MeasuredStep> steps;
  std::vector<double> predicted_s;  // by step, as the scenarios are
  std::vector<Explanation> explanations;
  std::string binds;  // the scenarios as they are
  double binds_sensitivity = 0;
};

// uncertainty: of one measured time against the model, a fraction.
Diagnosis diagnose(std::vector<MeasuredStep> steps, double uncertainty, int threads);

std::string diagnosis_table(const Diagnosis& d);
std::string diagnosis_json(const Diagnosis& d);

}  // namespace shardsim
