#include "sim/cost/stragglers.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shardsim {
namespace {

// splitmix64.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Box-Muller: a normal number for each index, whatever was asked for before.
double normal(uint64_t seed, uint64_t index) {
  const auto uniform = [](uint64_t x) { return (static_cast<double>(x >> 11) + .5) * 0x1p-53; };
  const uint64_t a = mixed(seed ^ mixed(index));
  return std::sqrt(-2 * std::log(uniform(a))) * std::cos(2 * std::numbers::pi * uniform(mixed(a)));
}

void stretch(Time& t, double factor) { t.ps = std::llround(static_cast<double>(t.ps) * factor); }

}  // namespace

double scale_tax(double per_doubling, int64_t ranks, int nodes) {
  if (nodes <= 1 || ranks <= 8) return 1;
  return 1 + per_doubling * std::log2(static_cast<double>(ranks) / 8);
}

double slowest_rank(double sigma, int64_t ranks) {
  return ranks <= 1 ? 1 : std::exp(sigma * std::sqrt(2 * std::log(static_cast<double>(ranks))));
}

double scale_tax_of(const Scenario& s, const Calibration& constants) {
  if (s.cost.model == CostChoice::Model::flat) return 1;
  return scale_tax(s.cost.scale_tax.value_or(constants.scale_tax), s.training.mesh.world(),
                   s.cluster.nodes);
}

void add_stragglers(const Scenario& s, const Calibration& constants, const Schedule& schedule,
                    CostTable& table) {
  const double tax = scale_tax_of(s, constants);
  const Jitter& jitter = s.cost.jitter;
  const double slowest = slowest_rank(jitter.rank_sigma, s.training.mesh.world());
  if (slowest != 1 || jitter.kernel_sigma > 0)
    for (size_t w = 0; w < table.work.size(); ++w) {
      if (is_collective(schedule.works[w].kind)) continue;
      stretch(table.work[w], slowest * std::exp(jitter.kernel_sigma * normal(jitter.seed, w)));
    }
  if (tax == 1) return;
  for (Time& t : table.work) stretch(t, tax);
  for (Time& t : table.launch) stretch(t, tax);
  for (Time& t : table.host_work) stretch(t, tax);
  for (Time& t : table.host.time) stretch(t, tax);
}

}  // namespace shardsim
