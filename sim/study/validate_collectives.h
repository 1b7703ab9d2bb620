// Published sweeps of nccl-tests against predictions. A table has the columns gpu, system, nodes, gpus,
// collective, bytes, time_us; link, nccl, source, note are looked at where they are there. Which system
// of the catalogue stands for a row, which rows are left out and on which sources constants were fitted
// is a file (analysis/validation/collectives.yaml); a system may also be named as the catalogue does.
// Worked example: a gather of 1,073,740,800 bytes over 10 nodes of 8 H100, measured 4001 us, predicted
// 3905: error -2.4 %, in the group "academic H100 cluster (10 nodes), all_gather, 80 GPUs on 10 nodes".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cluster/collective_model.h"
#include "sim/config/csv.h"
#include "sim/study/score.h"

namespace shardsim {

struct CollectiveSources {
  struct System {
    std::string name, preset;  // a pattern, and a system of the catalogue
    bool contiguous = false;
  };
  struct LeftOut {
    std::string column, pattern, reason;
  };
  struct Fitted {
    std::string system, source;  // patterns
  };
  std::vector<System> systems;
  std::vector<LeftOut> left_out;
  std::vector<Fitted> fitted;

  // analysis/validation/collectives.yaml.
  static CollectiveSources shipped();
};
CollectiveSources parse_collective_sources(std::string_view yaml, const std::string& file);

struct ValidatedCollective {
  int line = 0;
  std::string system, source, collective;
  int64_t nodes = 1, ranks = 1;
  Bytes bytes = 0;
  double measured_us = 0, predicted_us = 0;
  std::string choice;  // "Ring/Simple"
  bool fitted = false;
  std::string left_out;  // why; empty: predicted
  double error_pct() const { return (predicted_us / measured_us - 1) * 100; }
  std::string group() const;
};

struct NamedScore {
  std::string name;
  Score score;
};

struct CollectiveValidation {
  std::vector<ValidatedCollective> rows;  // in the table's order
  std::vector<NamedScore> groups;         // system, collective and ranks, in order of appearance
  // "kept out: gather and scatter between nodes, 32 MiB and more", and so on.
  std::vector<NamedScore> classes;
};

CollectiveValidation validate_collectives(const CsvTable& table, const CollectiveSources& sources,
                                          CollectiveModel::Backend backend = {});

// The table's rows are sweeps of collectives.
bool is_collective_table(const CsvTable& table);

std::string collective_validation_json(const CollectiveValidation& validation);
std::string collective_validation_csv(const CollectiveValidation& validation);
// Every row too where `verbose`.
std::string collective_validation_table(const CollectiveValidation& validation, bool verbose);

}  // namespace shardsim
