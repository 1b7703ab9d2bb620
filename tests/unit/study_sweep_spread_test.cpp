#include "sim/study/sweep_spread.h"

#include <gtest/gtest.h>

namespace shardsim {
namespace {

// Sharding over all nodes or in each at 1, 4 and 96 GB/s: by hand, 9.577 / 6.104 = 1.569,
// 3.097 / 2.820 = 1.098, 2.659 / 2.652 = 1.0026.
StoredSweep sharding() {
  StoredSweep s;
  s.axes = {"sharded", "bus"};
  const double times[2][3] = {{9.577, 3.097, 2.652}, {6.104, 2.820, 2.659}};
  for (size_t a = 0; a < 2; ++a)
    for (size_t b = 0; b < 3; ++b) {
      SweepRow r;
      r.key = std::to_string(3 * a + b);
      r.step_time_s = times[a][b];
      r.tokens_per_s = (a + 1) * 1000 / r.step_time_s;
      r.fits = true;
      s.rows[r.key] = r;
      s.points.push_back(
          {static_cast<int64_t>(3 * a + b), r.key, {std::to_string(a), std::to_string(b)}});
    }
  return s;
}

TEST(SweepSpread, OthersAreHeld) {
  const HeldSpread one = held_spread(sharding(), {}, 0);
  EXPECT_NEAR(one.median, .098, .001);
  EXPECT_NEAR(one.most, .569, .001);
  // Over the bandwidths: 9.577 / 2.652 = 3.611, 6.104 / 2.659 = 2.296.
  EXPECT_NEAR(held_spread(sharding(), {}, 1).most, 2.611, .001);
  // What does not fit does not count, and an axis of one place has nothing apart.
  StoredSweep s = sharding();
  s.rows.at("0").fits = false;
  EXPECT_NEAR(held_spread(s, {}, 0).most, .098, .001);
  for (auto& [key, row] : s.rows) row.fits = key == "1";
  EXPECT_EQ(held_spread(s, {}, 0).most, 0);
}

TEST(SweepSpread, TokensOfAStep) {
  const TokensPerStep t = tokens_per_step(sharding(), {});
  EXPECT_NEAR(t.fewest, 1000, 1e-6);
  EXPECT_NEAR(t.most, 2000, 1e-6);
}

}  // namespace
}  // namespace shardsim
