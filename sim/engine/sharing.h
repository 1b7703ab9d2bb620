// How fast works run that run at once: pure arithmetic, knows neither streams nor time.
//
// Resources. Speeds rise together from 0; where a resource is full, those that use it stop there and
// the others rise on, up to full speed 1 (max-min fairness of speeds). So no resource is asked for
// more than it has, equal demands get equal speeds, and none gets 0.
//   latency  a fraction l of a work's time that waits for no resource is not stretched:
//            speed = 1 / (l + (1 - l) / x)
// SMs. Thread blocks of collectives hold SMs, and a grid of equal tiles waits for its slowest wave:
// products and attention run at 1 / f1 of the speed above, f1 = S / (S - factor c), S SMs, c thread
// blocks of all collectives in flight, factor 2 (chosen on 63 published step times; an H100 product
// beside 24 thread blocks was seen at 1.70 where this says 1.57). f1 is at most kMostStolen, since
// more thread blocks than that wait for SMs themselves (an assumption: no measurement has as many).
//
// Worked numbers: 24 thread blocks on 132 SMs: f1 = 132 / 84 = 1.571. A kernel that asks for .85 of
// HBM beside an all-reduce that asks for .338: both run at 1 / 1.188.
#pragma once

#include <span>

#include "sim/cost/cost_table.h"

namespace shardsim {

inline constexpr double kMostStolen = 4;

// At most this many works are shared among at once.
inline constexpr int kMostInFlight = 64;

// f1 of c thread blocks on the table's SMs.
double sm_slowdown(const Sharing& sharing, int ctas);

// The speeds, in (0, 1], of works in flight.
void share(const Sharing& sharing, std::span<const Demand* const> running, std::span<double> speed);

}  // namespace shardsim
