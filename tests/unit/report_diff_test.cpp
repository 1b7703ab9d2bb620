#include "sim/report/diff.h"

#include <gtest/gtest.h>

#include "tests/unit/hand_schedule.h"

namespace shardsim {
namespace {

using test::HandSchedule;

StepReport report(const HandSchedule& h, const Trace& trace) {
  std::vector<GroupRow> groups(2);
  groups[0].name = "layers.0";
  groups[1].name = "layers.1";
  return make_step_report({}, {}, groups, h.schedule, trace);
}

// A: the gather of layers.0 [0, 30), a kernel [30, 40) waits for it. B: the gather of layers.1
// [0, 30) comes first on the same communicator, so layers.0 runs [30, 60) and the kernel [60, 70).
// 30 us more are exposed and on the critical path, and they are layers.1's.
TEST(Diff, ACollectiveThatComesFirstOnTheCommunicator) {
  HandSchedule a(3), b(3);
  for (HandSchedule* h : {&a, &b}) {
    const uint32_t comm = h->comm(8, "shard");
    const uint32_t e = h->event();
    h->mark("after_init", -1, true);
    if (h == &b) h->collective(1, WorkKind::AllGather, 30, comm, 1).bytes = 512;
    h->collective(2, WorkKind::AllGather, 30, comm, 0).bytes = 512;
    h->record(2, e);
    h->wait(0, e);
    h->kernel(0, 10);
    h->mark("step0.0.after_forward", 0, true);
  }
  const Trace trace_a = a.play(), trace_b = b.play();
  const StepReport report_a = report(a, trace_a), report_b = report(b, trace_b);
  const std::vector<std::vector<std::string>> parameters{{"layers.0.weight"}, {"layers.1.weight"}};
  const Diff d =
      diff({"a", &report_a, &a.schedule, &trace_a, parameters, {{"x", "1"}, {"y", "2"}}},
           {"b", &report_b, &b.schedule, &trace_b, parameters, {{"z", "3"}, {"x", "2"}}});

  ASSERT_EQ(d.collectives.size(), 2u);
  EXPECT_FALSE(d.collectives[0].changed());
  EXPECT_EQ(unit_name(d, d.collectives[1].unit), "layers.1");
  EXPECT_EQ(d.collectives[1].count, (Two<int64_t>{0, 1}));
  EXPECT_EQ(d.collectives[1].bytes, (Two<Bytes>{0, 512}));

  ASSERT_EQ(d.exposed.size(), 2u);
  EXPECT_EQ(work_name(d, d.exposed[0].what, d.exposed[0].unit), "all_gather layers.1");
  EXPECT_EQ(d.exposed[0].time, (Two<Time>{Time{}, Time::us(30)}));
  EXPECT_EQ(reasons(d, d.exposed[0]),
            (std::vector<std::string>{"A: not issued",
                                      "B: it holds up the next collective of its communicator; it "
                                      "starts when the host issues it"}));
  EXPECT_EQ(work_name(d, d.exposed[1].what, d.exposed[1].unit), "all_gather layers.0");
  EXPECT_EQ(d.exposed[1].time, (Two<Time>{Time::us(30), Time::us(30)}));
  EXPECT_EQ(reasons(d, d.exposed[1]),
            (std::vector<std::string>{
                "A: compute waits for its event; it starts when the host issues it",
                "B: compute waits for its event; it waits for all_gather layers.1 on the same "
                "communicator"}));

  ASSERT_EQ(d.path.size(), 3u);
  EXPECT_EQ(work_name(d, d.path[0].what, d.path[0].unit), "all_gather layers.1");
  EXPECT_EQ(d.path[0].time, (Two<Time>{Time{}, Time::us(30)}));
  EXPECT_EQ(d.phases[0].time, (Two<Time>{Time::us(40), Time::us(70)}));
  EXPECT_EQ(d.phases[0].exposed, (Two<Time>{Time::us(30), Time::us(60)}));

  ASSERT_EQ(d.settings.size(), 3u);  // A's in its order, then what only B says
  EXPECT_EQ(d.settings[0].key, "x");
  EXPECT_EQ(d.settings[0].value[1], "2");
  EXPECT_EQ(d.settings[1].key, "y");
  EXPECT_FALSE(d.settings[1].value[1].has_value());
  EXPECT_EQ(d.settings[2].key, "z");
  EXPECT_FALSE(d.settings[2].value[0].has_value());
}

// Groups that share a parameter are one unit, whatever they are called.
TEST(Diff, PairsGroupsByParameters) {
  StepReport a, b;
  a.groups.resize(3);
  b.groups.resize(2);
  a.groups[0].name = "layers.0";
  a.groups[1].name = "layers.1";
  a.groups[2].name = "head";
  b.groups[0].name = "layers.0,layers.1";
  b.groups[1].name = "";
  DiffSide sa, sb;
  sa.report = &a;
  sb.report = &b;
  sa.parameters = {{"layers.0.w"}, {"layers.1.w"}, {"head.w"}};
  sb.parameters = {{"layers.0.w", "layers.1.w"}, {"embed.w"}};
  const std::vector<DiffUnit> units = pair_groups(sa, sb);
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[0].name, "layers.0,layers.1");
  EXPECT_EQ(units[0].groups, (Two<std::vector<uint32_t>>{{{0, 1}, {0}}}));
  EXPECT_EQ(units[1].name, "head");
  EXPECT_EQ(units[1].groups, (Two<std::vector<uint32_t>>{{{2}, {}}}));
  EXPECT_EQ(units[2].name, "(root)");
  EXPECT_EQ(units[2].groups, (Two<std::vector<uint32_t>>{{{}, {1}}}));
}

}  // namespace
}  // namespace shardsim
