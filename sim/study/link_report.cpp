#include "sim/study/link_report.h"

#include "sim/cost/assumptions.h"
#include "sim/cost/collectives.h"

namespace shardsim {

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
  std::vector<Bytes> largest(report.collectives.size(), -1);
  schedule.for_each_of_last_step([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    const Work& w = schedule.works[in.a];
    const CollectiveCost& c = costs[in.a];
    if (w.kind == WorkKind::CopyH2D || w.kind == WorkKind::CopyD2H)
      use.pcie += static_cast<double>(w.bytes) / (scenario.cluster.gpu.pcie_gbps * 1e3);
    if (!is_collective(w.kind)) return;
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
  const double step_us = report.steady.length().as_us();
  if (step_us <= 0) return;
  for (double* part : {&use.nvlink, &use.nic, &use.spine, &use.pcie}) *part /= step_us;
  report.links = use;
}

}  // namespace shardsim
