#include "sim/cost/stragglers.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

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

// P(x < a normal number).
double above(double x) { return std::erfc(x / std::numbers::sqrt2) / 2; }

// Each kernel's luck in standard deviations, by work.
std::vector<double> luck_of(uint64_t seed, int64_t ranks, const Schedule& schedule,
                            const std::vector<Time>& times) {
  std::vector<double> luck(times.size());
  for (size_t w = 0; w < luck.size(); ++w) luck[w] = normal(seed, w);
  if (ranks <= 1) return luck;
  std::vector<bool> seen(times.size());
  std::vector<uint32_t> between;  // works of this stretch
  const auto slowest = [&] {
    double squares = 0, sum = 0;
    for (uint32_t w : between) {
      const double us = times[w].as_us();
      squares += us * us;
      sum += us * luck[w];
    }
    if (squares > 0) {
      const double norm = std::sqrt(squares);
      const double further = largest_normal(sum / norm, ranks) - sum / norm;
      for (uint32_t w : between) luck[w] += times[w].as_us() / norm * further;
    }
    between.clear();
  };
  schedule.for_each([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    if (const Work& w = schedule.works[in.a]; is_collective(w.kind)) {
      if (schedule.comms[w.comm.v].size > 1) slowest();
    } else if (!seen[in.a]) {
      seen[in.a] = true;
      between.push_back(in.a);
    }
  });
  slowest();
  return luck;
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

double largest_normal(double one, int64_t of) {
  if (of <= 1) return one;
  // P(largest < x) = P(one number < x)^of, so what lies above x is 1 - (1 - above(one))^(1/of).
  const double beyond = -std::expm1(std::log1p(-above(one)) / static_cast<double>(of));
  double low = one, high = 40;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (above(middle) > beyond ? low : high) = middle;
  }
  return low;
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
  if (slowest != 1 || jitter.kernel_sigma > 0) {
    std::vector<double> luck(table.work.size());
    if (jitter.kernel_sigma > 0)
      luck = luck_of(jitter.seed, s.training.mesh.world(), schedule, table.work);
    for (size_t w = 0; w < table.work.size(); ++w)
      if (!is_collective(schedule.works[w].kind))
        stretch(table.work[w], slowest * std::exp(jitter.kernel_sigma * luck[w]));
  }
  if (tax == 1) return;
  for (Time& t : table.work) stretch(t, tax);
  for (Time& t : table.launch) stretch(t, tax);
  for (Time& t : table.host_work) stretch(t, tax);
  for (Time& t : table.host.time) stretch(t, tax);
}

}  // namespace shardsim
