// What is refused before a device is touched; communicators, scales and steps.
#include "backends/replay/proof.h"

#include <gtest/gtest.h>

#include "backends/replay/communicators.h"
#include "backends/replay/scale.h"
#include "backends/replay/steps.h"
#include "sim/base/error.h"
#include "sim/report/op_log.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/works.h"

namespace shardsim {
namespace {

// 2 x 2 ranks: shards {0,1} and {2,3}, replicas {0,2} and {1,3}. Each rank's collectives by number.
Schedule issuing(std::initializer_list<uint32_t> comms) {
  Schedule s;
  s.comms = {{2, 1, "shard"}, {2, 2, "replicate"}};
  s.streams = {"compute"};
  for (uint32_t c : comms) {
    s.works.push_back(collective_work(WorkKind::AllReduce, 1024, DType::fp32, CommId{c}, GroupId{},
                                      ReduceOp::sum, "all_reduce"));
    s.code.push_back({Kind::Launch, 0, Reloc::none, 0, static_cast<uint32_t>(s.works.size() - 1)});
  }
  s.segments.push_back({0, static_cast<uint32_t>(s.code.size()), {}, 0, {}});
  return s;
}

std::string refusal(const std::vector<const Schedule*>& ranks) {
  try {
    prove(ranks);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Communicators, Membership) {
  // 8 ranks, replicas of stride 4: rank 5 is the second of ranks 1 and 5.
  const Membership m = membership({2, 4, "replicate"}, 5);
  EXPECT_EQ(m.first, 1);
  EXPECT_EQ(m.number, 1);
  EXPECT_EQ(m.rank_of(0), 1);
  EXPECT_EQ(m.rank_of(1), 5);
  EXPECT_EQ(membership({4, 1, "shard"}, 6).first, 4);
}

TEST(Proof, EqualSchedulesPass) {
  const Schedule s = issuing({0, 1, 0});
  EXPECT_EQ(refusal({&s, &s, &s, &s}), "");
}

// Rank 0 waits in the shard's all-reduce for rank 1, rank 1 in the replicas' for rank 3, rank 3 in its
// shard's for rank 2, and rank 2 in the replicas' for rank 0.
TEST(Proof, ACycleOverRanksIsFound) {
  const Schedule shard_first = issuing({0, 1}), replicas_first = issuing({1, 0});
  EXPECT_NE(refusal({&shard_first, &replicas_first, &replicas_first, &shard_first}), "");
  EXPECT_EQ(refusal({&shard_first, &shard_first, &shard_first, &shard_first}), "");
}

TEST(Proof, AnotherCollectiveIsNamed) {
  const Schedule a = issuing({0});
  Schedule b = issuing({0});
  b.works[0].bytes = 2048;
  EXPECT_EQ(refusal({&a, &b, &a, &a}),
            "ranks 0 and 1 do not issue the same collectives: number 0 of communicator 'shard' is "
            "all_reduce 1024 B fp32 of shard (2 ranks, stride 1) on one and all_reduce 2048 B fp32 "
            "of shard (2 ranks, stride 1) on the other");
}

TEST(Proof, AMissingCollectiveIsNamed) {
  const Schedule a = issuing({0, 0}), b = issuing({0});
  EXPECT_EQ(
      refusal({&a, &b, &a, &a}),
      "all_reduce 1024 B fp32 of shard (2 ranks, stride 1) is issued by 1 of the 2 ranks of its "
      "communicator, rank 0 the first of them");
}

TEST(Proof, TooFewRanks) {
  const Schedule s = issuing({1});
  EXPECT_EQ(refusal({&s, &s}), "communicator 'replicate' has rank 2, and 2 ranks play");
}

TEST(Proof, ListsOfOtherProcesses) {
  EXPECT_NO_THROW(prove_same_collectives({{"a", "b"}, {"a", "b"}}));
  EXPECT_THROW(prove_same_collectives({{"a", "b"}, {"b", "a"}}), Error);
  EXPECT_THROW(prove_same_collectives({{"a", "b"}, {"a"}}), Error);
}

// The header's: parts of 109,056,000 B at 1/1024 are 106,500, of which whole 16s are 106,496; times 4.
TEST(Scale, PartsStayWhole) {
  Schedule s;
  s.comms = {{4, 1, "shard"}};
  s.works = {collective_work(WorkKind::AllGather, 436'224'000, DType::bf16, CommId{0}, GroupId{},
                             ReduceOp::none, "all_gather"),
             collective_work(WorkKind::AllReduce, 4, DType::fp32, CommId{0}, GroupId{},
                             ReduceOp::sum, "norm"),
             kernel_work("add", KernelClass::pointwise, 2049, DType::fp32, GroupId{})};
  s.buffers = {{436'224'000, 0, Category::all_gather_buffers, {}, Unwinds::no},
               {4, 0, Category::temporary, {}, Unwinds::no}};
  const Schedule small = scaled(s, 1024, 4);
  EXPECT_EQ(small.works[0].bytes, 425'984);
  EXPECT_EQ(small.works[1].bytes, 4);
  EXPECT_EQ(small.works[2].bytes, 3);
  EXPECT_EQ(small.buffers[0].bytes, 426'000);
  EXPECT_EQ(small.buffers[1].bytes, 4);
  EXPECT_EQ(scaled(s, 1, 4).works[0].bytes, 436'224'000);
}

// Three steps of one launch each, the first of which is no timed one: 30 and 12 us, begun with their
// steps. Of two the upper one is the median.
TEST(Steps, MediansOfWhatWasTimed) {
  Schedule s;
  s.streams = {"compute"};
  s.works = {kernel_work("add", KernelClass::pointwise, 8, DType::fp32, GroupId{})};
  for (int step = -1; step < 3; ++step) {
    if (step >= 0) s.code.push_back({Kind::Launch, 0, Reloc::none, 0, 0});
    s.marks.push_back({"end", step, true});
    s.code.push_back({Kind::Mark, 0, Reloc::none, 0, static_cast<uint32_t>(step + 1)});
  }
  s.segments.push_back({0, static_cast<uint32_t>(s.code.size()), {}, 0, {}});
  Replay r;
  const auto passed = [&r](uint32_t mark, uint32_t launches) {
    MarkRow& row = r.trace.marks.emplace_back();
    row.mark = mark;
    row.launches = launches;
  };
  for (uint32_t mark = 0; mark < 4; ++mark) passed(mark, mark);
  r.trace.issued = {Time::us(0), Time::us(1), Time::us(2)};
  r.trace.start = {Time::us(0), Time::us(100), Time::us(200)};
  r.trace.end = {Time::us(90), Time::us(130), Time::us(212)};
  r.done = {true, true, true};
  const TimedSteps t = median_of_steps(s, r, 1);
  EXPECT_EQ(t.steps, 2);
  EXPECT_EQ(t.shortest, Time::us(12));
  EXPECT_EQ(t.longest, Time::us(30));
  EXPECT_EQ(t.trace.end[2] - t.trace.start[2], Time::us(30));
  r.done[2] = false;
  const TimedSteps one = median_of_steps(s, r, 1);
  EXPECT_EQ(one.steps, 1);
  EXPECT_EQ(one.note, "1 steps did not end and are left out");
  // Its trace ends with the second step, so that a log is of that one, wherever the host was stopped:
  // in the third, which it has issued, or right behind the second's launch.
  for (const size_t marks : {3, 2}) {
    r.trace.issued.resize(marks);
    r.trace.marks.resize(marks);
    const TimedSteps cut = median_of_steps(s, r, 1);
    EXPECT_EQ(cut.trace.end.size(), 2);
    EXPECT_EQ(cut.trace.marks.size(), 3);
    EXPECT_EQ(cut.first, 1);
    const OpLog log = op_log_of(s, cut.trace, {}, {});
    ASSERT_EQ(log.ops.size(), 1);
    EXPECT_EQ(log.ops[0].duration, Time::us(30));
  }
  r.done[1] = false;
  EXPECT_THROW(median_of_steps(s, r, 1), Error);
}

}  // namespace
}  // namespace shardsim
