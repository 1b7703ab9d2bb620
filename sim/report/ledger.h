// The account on paper (sim/plan/state_formulas.h) beside what a simulated schedule holds and moves,
// and why they differ: amounts in bytes that add up to the difference.
//
//   resident       what is allocated when the last step's backward has ended, the optimizer still to
//                  come: parameters, gradients, optimizer state, and what else lives then
//   worst peak     the highest allocated bytes of the run, level live
//   communication  what this rank sends in a step, in rings: all-gather, reduce-scatter, broadcast
//                  and reduce of V bytes over n ranks V (n-1)/n, an all-reduce twice that
// A formula's b is the bytes of the compute type. Reasons come from walks: each changes one thing
// of the formula (the stored type, the padding, ...) and is the change in its value; what a walk does
// not reach is a reason of its own ("held otherwise"), so nothing is hidden.
//
// Worked number: Llama-3-8B, FSDP2 on 8 ranks, fp32 stored, bf16 computed: 12.05 GB resident by the
// formula, 16.06 GB simulated: 4.02 GB because parameters and gradients are stored in fp32, 149 KB of
// blocks and the optimizer's step counts.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "sim/plan/deepspeed_estimate.h"
#include "sim/plan/plan.h"
#include "sim/plan/state_formulas.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace shardsim {

struct LedgerReason {
  std::string what;
  Bytes bytes = 0;
};

struct LedgerEntry {
  std::string name, formula;  // "communication", "3 P b (N-1)/N"
  Bytes expected = 0;         // by the formula
  Bytes simulated = 0;
  std::vector<LedgerReason> reasons;  // add up to simulated - expected, the largest first
};

struct Ledger {
  std::string name;
  std::string strategy;  // "fsdp2"
  std::string type;      // that b counts: "bf16"
  int64_t replicas = 1;
  StateFormula formula;
  LedgerEntry resident, peak, communication;
  std::string peak_phase;  // the mark that ends it
  DeepSpeedSetup deepspeed;
};

// A collective over gradients, where strategies reduce them in buckets.
bool reduces_gradients(const Work& w);

// What a rank sends over a ring of n ranks for a collective over V bytes in all.
Bytes ring_bytes(WorkKind kind, Bytes bytes, int64_t ranks);

// The last step's, by kind: elements and bytes that a rank sends in rings. Elements are of the type
// that is communicated.
struct Moved {
  int64_t count = 0, elements = 0;
  Bytes bytes = 0;
};
std::array<Moved, static_cast<size_t>(WorkKind::Memset) + 1> moved_in_last_step(
    const Schedule& schedule);

Ledger make_ledger(const Scenario& scenario, const Model& model, const Plan& plan,
                   const Schedule& schedule, const Trace& trace);

// How a formula reads: "P (2b + 8) / N".
std::string_view resident_formula(Scheme scheme);
std::string_view peak_formula(Scheme scheme);
std::string_view communication_formula(Scheme scheme);

// The three entries and their reasons; the same under the scenario's name, with DeepSpeed's estimates.
std::string ledger_entries(const Ledger& ledger);
std::string ledger_table(const Ledger& ledger);
std::string ledger_json(const Ledger& ledger);
// entry,what,bytes: the formula's, the reasons, the simulated.
std::string ledger_csv(const Ledger& ledger);

// DeepSpeed's estimates: a table, and one JSON object.
std::string deepspeed_table(const DeepSpeedSetup& setup);
std::string deepspeed_json(const DeepSpeedSetup& setup);

}  // namespace shardsim
