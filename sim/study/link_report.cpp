#include "sim/study/link_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "sim/base/quantity.h"
#include "sim/cost/assumptions.h"
#include "sim/cost/collectives.h"

namespace shardsim {
namespace {

// "a/x.json, b/y.json" as "x.json, y.json".
std::string file_names(const std::string& paths) {
  std::string out;
  for (size_t at = 0; at < paths.size();) {
    const size_t end = std::min(paths.find(", ", at), paths.size());
    out += (out.empty() ? "" : ", ") +
           std::filesystem::path(paths.substr(at, end - at)).filename().string();
    at = end + 2;
  }
  return out;
}

// What the user's sweeps priced, and what not.
class TableUse {
 public:
  void add(const Cluster& cluster, const Comm& comm, const Work& w, const CollectiveCost& c) {
    ++all_;
    if (!c.from_table) {
      missing_.insert(sweep_name(cluster, comm, w.kind));
      return;
    }
    ++priced_;
    if (w.bytes > c.swept && w.bytes > beyond_) {
      beyond_ = w.bytes;
      swept_ = c.swept;
    }
  }

  void tell(const NcclTable& table, StepReport& report) const {
    if (all_ == 0) return;
    const std::string file = file_names(table.file);
    report.priced_with.push_back(
        {"collectives", fmt::format("{} of {} from {}", priced_, all_, file), false});
    if (priced_ == 0)
      report.notes.push_back(
          fmt::format("nccl_table {} prices nothing of this run, which has {}: it has {}", file,
                      fmt::join(missing_, ", "), table.contents()));
    else if (!missing_.empty())
      report.notes.push_back(fmt::format("nccl_table {} has no {}, priced without it", file,
                                         fmt::join(missing_, ", ")));
    if (beyond_ > 0)
      report.notes.push_back(fmt::format(
          "nccl_table {} ends at {}: up to {} follows from its last size, in proportion "
          "to the bytes; sweep further (-e)",
          file, format_bytes(swept_), format_bytes(beyond_)));
  }

 private:
  int64_t all_ = 0, priced_ = 0;
  Bytes beyond_ = 0, swept_ = 0;
  std::set<std::string> missing_;
};

}  // namespace

void add_links(const Scenario& scenario, const Simulation& simulation, StepReport& report) {
  if (scenario.cost.model == CostChoice::Model::flat || report.memory.failure) return;
  const Schedule& schedule = simulation.schedule;
  const Calibration calibration = effective_calibration(scenario);
  std::vector<CollectiveCost> costs(schedule.works.size());
  for (size_t i = 0; i < costs.size(); ++i)
    if (const Work& w = schedule.works[i]; is_collective(w.kind))
      costs[i] = collective_cost(scenario.cluster, calibration, schedule.comms[w.comm.v], w,
                                 scenario.cost.collectives);

  LinkUse use;
  TableUse table;
  std::vector<Bytes> largest(report.collectives.size(), -1);
  schedule.for_each_of_last_step([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    const Work& w = schedule.works[in.a];
    const CollectiveCost& c = costs[in.a];
    if (w.kind == WorkKind::CopyH2D || w.kind == WorkKind::CopyD2H)
      use.pcie += static_cast<double>(w.bytes) / (scenario.cluster.gpu.pcie_gbps * 1e3);
    if (!is_collective(w.kind)) return;
    if (scenario.cost.collectives.table && schedule.comms[w.comm.v].size > 1)
      table.add(scenario.cluster, schedule.comms[w.comm.v], w, c);
    use.nvlink += c.load.nvlink * c.us;
    use.nic += c.load.nic * c.us;
    use.spine += c.load.spine * c.us;
    use.pcie += c.load.pcie * c.us;
    for (size_t i = 0; i < report.collectives.size(); ++i) {
      CollectiveRow& row = report.collectives[i];
      if (row.kind != w.kind || row.group != w.group || row.comm != w.comm) continue;
      // Where one row's collectives differ, the largest one's choice stands for them.
      if (w.bytes <= largest[i]) continue;
      largest[i] = w.bytes;
      row.algorithm = c.from_table                         ? "table"
                      : c.algorithm == NcclAlgorithm::none ? ""
                                                           : name_of(c.algorithm);
      const bool chosen = !c.from_table && c.protocol != NcclProtocol::none;
      row.protocol = chosen ? name_of(c.protocol) : "";
      row.channels = c.channels;
      row.ctas = c.ctas;
    }
  });
  if (scenario.cost.collectives.table) table.tell(*scenario.cost.collectives.table, report);
  const double step_us = report.steady.length().as_us();
  if (step_us <= 0) return;
  for (double* part : {&use.nvlink, &use.nic, &use.spine, &use.pcie}) *part /= step_us;
  report.links = use;
}

}  // namespace shardsim
