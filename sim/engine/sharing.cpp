#include "sim/engine/sharing.h"

#include <algorithm>

#include "sim/base/error.h"

namespace shardsim {

double sm_slowdown(const Sharing& sharing, int ctas) {
  if (sharing.sms <= 0) return 1;
  const double left = sharing.sms - sharing.sm_steal * ctas;
  return std::min(kMostStolen, left > 0 ? sharing.sms / left : kMostStolen);
}

namespace {

// A load that is full to the last bit of a float is not more than full.
constexpr double kFull = 1 + 1e-6;

// Max-min fair speeds on the resources alone.
void fill(std::span<const Demand* const> running, std::span<double> speed) {
  std::array<double, kResources> rising{}, taken{};
  for (const Demand* d : running)
    for (size_t r = 0; r < kResources; ++r) rising[r] += static_cast<double>(d->load[r]);
  uint64_t fixed = 0;
  std::fill(speed.begin(), speed.end(), 1.0);
  for (;;) {
    double level = 1;
    size_t full = kResources;
    for (size_t r = 0; r < kResources; ++r) {
      if (taken[r] + rising[r] <= kFull || rising[r] <= 0) continue;
      const double at = (1 - taken[r]) / rising[r];
      if (at < level) {
        level = at;
        full = r;
      }
    }
    if (full == kResources) return;
    for (size_t i = 0; i < running.size(); ++i) {
      if ((fixed >> i & 1) != 0 || running[i]->load[full] <= 0) continue;
      fixed |= uint64_t{1} << i;
      speed[i] = level;
      for (size_t r = 0; r < kResources; ++r) {
        const auto load = static_cast<double>(running[i]->load[r]);
        rising[r] -= load;
        taken[r] += level * load;
      }
    }
    rising[full] = 0;
  }
}

}  // namespace

void share(const Sharing& sharing, std::span<const Demand* const> running,
           std::span<double> speed) {
  SHARDSIM_ASSERT(running.size() <= kMostInFlight && speed.size() == running.size(),
                  "speeds are of a few works");
  fill(running, speed);
  int ctas = 0;
  for (const Demand* d : running) ctas += d->ctas;
  const double f1 = ctas > 0 ? sm_slowdown(sharing, ctas) : 1;
  for (size_t i = 0; i < running.size(); ++i) {
    const Demand& d = *running[i];
    if (d.latency > 0 && speed[i] < 1) {
      const auto l = static_cast<double>(d.latency);
      speed[i] = 1 / (l + (1 - l) / speed[i]);
    }
    if (d.sm_bound) speed[i] /= f1;
  }
}

}  // namespace shardsim
