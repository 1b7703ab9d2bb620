// What fits in memory, by strategy: the smallest cluster that holds a scenario, and on its own cluster
// the largest micro-batch and the longest sequence.
//
// Each question is answered by simulating the scenario, at its own memory level, with one size changed:
// doubled until the answer changes, then halved between. Clusters are 1, 2, 4, ... GPUs of one node, then
// whole nodes (of as many GPUs as the system has that the scenario names); sequences are multiples of
// `seq_step`. Memory grows with each size in practice, not by proof: what is known is that the answer fits and that the neighbour reported with it does not.
// At level blocks a run ends at the first block that the allocator does not get, so that what is missing
// is at least what is reported.
// Worked number: micro-batches of which 1 to 5 fit are tried at 1, 2, 4, 8, 6, 5.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/study/strategy_variants.h"
#include "sim/study/sweep_row.h"

namespace shardsim {

struct CapacityOptions {
  std::vector<std::string> strategies = strategy_variants();
  int64_t max_nodes = 1024;
  int64_t max_micro_batch = 4096;
  int64_t max_seq_len = 1 << 20;
  int64_t seq_step = 256;
  Bytes leave = 0;  // of each GPU, as if it had so much less
  int threads = 1;
};

// One size of one question, simulated.
struct CapacityProbe {
  ClusterSize cluster;
  int64_t micro_batch = 0, seq_len = 0;
  SweepRow row;  // with an error where this is no scenario that can be played
  bool fits() const { return row.error.empty() && row.fits; }
};

struct CapacityAnswer {
  std::optional<CapacityProbe> answer;  // none: nothing fits
  // The next smaller cluster, larger micro-batch or longer sequence, which does not fit; of no answer
  // the last that was tried. None: there is none to try.
  std::optional<CapacityProbe> next;
  std::string limit;  // what bounded the search where it ended without a `next`
  int64_t played = 0;
};

struct StrategyCapacity {
  std::string name, impossible;  // why there are no answers, or empty
  std::vector<std::string> changes;
  CapacityAnswer cluster, micro_batch, seq_len;
};

struct CapacityReport {
  Scenario scenario;
  int64_t seq_step = 0;
  Bytes leave = 0;  // headrooms are what is left beyond it
  std::vector<StrategyCapacity> strategies;
};

// Throws Error where the file is no scenario, a strategy is not known, or a GPU has no more than is to be
// left.
CapacityReport capacity(const std::string& file, const CapacityOptions& options);

// The first index below n for which `holds` is true, where it is false up to there and true from there
// on; n: none. `holds` is asked at 0, 1, 3, 7, ... and then between.
template <class F>
int64_t first_that(int64_t n, F&& holds) {
  int64_t no = -1, yes = 0;
  while (yes < n && !holds(yes)) {
    no = yes;
    yes = no == n - 1 ? n : std::min(2 * no + 1, n - 1);
  }
  while (yes - no > 1) {
    const int64_t middle = no + (yes - no) / 2;
    (holds(middle) ? yes : no) = middle;
  }
  return yes;
}

std::string capacity_table(const CapacityReport& report);
std::string capacity_json(const CapacityReport& report);
// A line for each strategy and question.
std::string capacity_csv(const CapacityReport& report);

}  // namespace shardsim
