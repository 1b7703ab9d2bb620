// Who slowed the compute stream.
#include "sim/report/interference.h"

#include <gtest/gtest.h>

#include "tests/unit/hand_schedule.h"

namespace shardsim {
namespace {

// A product of 10 us takes 16: a gather beside it for 12, then a copy for 4, on streams 1 and 2. 6 us
// of delay: 4.5 by the gather, 1.5 by the copy.
TEST(Interference, SharedOutByOverlap) {
  test::HandSchedule h;
  const uint32_t shard = h.comm(8, "shard");
  h.mark("begin", -1, true);
  h.launch(0, WorkKind::Gemm, 16, "");
  h.collective(1, WorkKind::AllGather, 12, shard, 3);
  const uint32_t e = h.event();
  h.record(1, e);
  h.wait(2, e);
  h.copy(2, 10);
  h.mark("end", 0, true);
  Trace t = h.play();
  t.slowed = {Time::us(6), {}, {}};
  Timeline timeline;
  timeline.build(h.schedule, t, 0);
  EXPECT_EQ(timeline.times().slowed, Time::us(6));
  const auto rows = interference(h.schedule, t, timeline.times());
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].kind, WorkKind::AllGather);
  EXPECT_EQ(rows[0].group.v, 3u);
  EXPECT_EQ(rows[0].time.ps, 4'500'000);
  EXPECT_EQ(rows[1].kind, WorkKind::CopyH2D);
  EXPECT_EQ(rows[1].time.ps, 1'500'000);
}

}  // namespace
}  // namespace shardsim
