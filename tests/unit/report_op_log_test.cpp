// The log of a step written by hand, its times and fingerprint, and logs side by side.
#include "sim/report/op_log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/report/op_compare.h"
#include "sim/schedule/fingerprint.h"
#include "tests/unit/hand_schedule.h"

namespace shardsim {
namespace {

using nlohmann::json;
using test::HandSchedule;

// A preparation of 7 us, then steps, each: a gather of 20 us on stream 1 beside a kernel of 10 us, a
// product of 10 us once the gather is there, and a copy of 3 us on stream 2.
HandSchedule program(int steps, Bytes gathered = 4000, int64_t kernel_us = 10) {
  HandSchedule h(3);
  h.schedule.streams = {"compute", "all-gather", "copies"};
  const uint32_t comm = h.comm(4, "shard");
  h.kernel(0, 7, "prepare");
  h.mark("after_init", -1, false);
  for (int step = 0; step < steps; ++step) {
    const std::string name = "step" + std::to_string(step) + ".";
    const uint32_t e = h.event(), b = h.buffer(5000);
    h.mark(name + "begin", step, true);
    Work& gather = h.collective(1, WorkKind::AllGather, 20, comm, 0);
    gather.bytes = gathered;
    h.record(1, e);
    h.alloc(b);
    h.kernel(0, kernel_us, "rms_norm").bytes = 100;
    h.wait(0, e);
    Work& g = h.launch(0, WorkKind::Gemm, 10, "linear");
    g.m = 8, g.n = 16, g.k = 32, g.flops = 8192, g.dtype = DType::bf16;
    h.copy(2, 3).bytes = 75'000;
    h.free(b);
    h.mark(name + "after_optimizer", step, false);
  }
  h.mark("end", steps - 1, true);
  h.done();
  return h;
}

const std::vector<std::string> kGroups{"layers.0"};

OpLog log_of(HandSchedule h) { return op_log_of(h.schedule, h.play(), kGroups, {}); }

TEST(Fingerprint, IsOfTheStepWhateverHowManyThereAre) {
  const HandSchedule two = program(2), three = program(3);
  EXPECT_EQ(step_fingerprint(two.schedule), step_fingerprint(three.schedule));
  EXPECT_EQ(step_fingerprint(three.schedule, 0), step_fingerprint(three.schedule, 2));
  EXPECT_NE(step_fingerprint(two.schedule), step_fingerprint(program(2, 8000).schedule));
  // What a work takes is no part of it.
  EXPECT_EQ(step_fingerprint(two.schedule), step_fingerprint(program(2, 4000, 30).schedule));
  HandSchedule later = program(2);
  later.schedule.code.back().kind = Kind::Mark;
  for (Instr& i : later.schedule.code)
    if (i.kind == Kind::Wait) i.stream = 2;  // another stream waits
  EXPECT_NE(step_fingerprint(two.schedule), step_fingerprint(later.schedule));
}

TEST(Fingerprint, AsSixteenDigits) {
  EXPECT_EQ(fingerprint_text(0x0123456789abcdef), "0123456789abcdef");
  EXPECT_EQ(fingerprint_text(0), "0000000000000000");
}

TEST(OpLog, OfTheLastStepFromItsStart) {
  // The first step begins at 0 on streams 1 and 2, at 7 us on stream 0; its gather ends at 20, so the
  // product runs from 20 to 30. The second step's gather runs from 20 to 40, 10 us before that step's
  // start (30, the end of the first), its kernel 30 to 40, its product 40 to 50: a step of 20 us.
  const OpLog log = log_of(program(2));
  ASSERT_EQ(log.ops.size(), 4u);
  EXPECT_EQ(log.step_time, Time::us(20));
  EXPECT_EQ(log.ops[0].kind, WorkKind::AllGather);
  EXPECT_EQ(log.ops[0].launch, 0u);
  EXPECT_EQ(log.ops[0].group, "layers.0");
  EXPECT_EQ(log.ops[0].start, Time::us(-10));
  EXPECT_EQ(log.ops[0].duration, Time::us(20));
  EXPECT_EQ(log.ops[1].start, Time::us(0));
  EXPECT_EQ(log.ops[2].name, "8x16x32 bf16");
  EXPECT_EQ(log.ops[2].start, Time::us(10));
  EXPECT_EQ(log.ops[2].flops, 8192);
  EXPECT_EQ(log.ops[3].stream, 2u);
  EXPECT_EQ(log.ops[3].bytes, 75'000);
  EXPECT_EQ(log.peak_allocated, 5120);  // 5000, rounded up to 512
  EXPECT_FALSE(log.peak_reserved);
}

TEST(OpLog, TimesAsTheTimelineDefinesThem) {
  // Clipped to [0, 20): the gather [0, 10), all of it beside the kernel.
  const OpTimes t = op_times(log_of(program(2)));
  EXPECT_EQ(t.compute_busy, Time::us(20));
  EXPECT_EQ(t.comm_busy, Time::us(10));
  EXPECT_EQ(t.exposed_comm, Time::us(0));
  EXPECT_EQ(t.copy_busy, Time::us(0));  // it ran [-27, -24)

  // Compute [0, 10) and [25, 35), a collective [10, 30): exposed [10, 25).
  OpLog log;
  log.streams = {"a", "b"};
  log.step_time = Time::us(40);
  const auto add = [&](WorkKind kind, uint32_t stream, int64_t start, int64_t length) {
    LoggedOp& op = log.ops.emplace_back();
    op.kind = kind, op.stream = stream;
    op.start = Time::us(start), op.duration = Time::us(length);
  };
  add(WorkKind::Gemm, 0, 25, 10);
  add(WorkKind::Kernel, 0, 0, 10);
  add(WorkKind::AllReduce, 1, 10, 20);
  const OpTimes hand = op_times(log);
  EXPECT_EQ(hand.compute_busy, Time::us(20));
  EXPECT_EQ(hand.comm_busy, Time::us(20));
  EXPECT_EQ(hand.exposed_comm, Time::us(15));
  EXPECT_DOUBLE_EQ(hand.overlap_fraction(), .25);
}

TEST(OpLog, StreamsByWhatTheyDo) {
  OpLog log = log_of(program(2));
  EXPECT_EQ(stream_roles(log), (std::vector<std::string>{"compute", "all_gather", "copy"}));
  log.streams.push_back("unused");
  EXPECT_EQ(stream_roles(log).back(), "idle");
  // Without products the stream with most kernels computes.
  for (LoggedOp& op : log.ops)
    if (op.kind == WorkKind::Gemm) op.kind = WorkKind::Kernel;
  EXPECT_EQ(stream_roles(log)[0], "compute");
}

TEST(OpLog, Json) {
  OpLogFacts facts;
  facts.source = OpSource::replay_host;
  facts.scenario = "by \"hand\"";
  facts.rank = 1, facts.world = 4, facts.scale = 1000, facts.repeats = 5;
  facts.statistic = "median";
  facts.environment = {{"NCCL_ALGO", "Ring"}};
  HandSchedule h = program(2);
  const OpLog log = op_log_of(h.schedule, h.play(), kGroups, facts);
  const json j = json::parse(op_log_json(log));
  EXPECT_EQ(j["schema_version"], 1);
  EXPECT_EQ(j["source"], "replay host");
  EXPECT_EQ(j["scenario"], "by \"hand\"");
  EXPECT_EQ(j["fingerprint"], fingerprint_text(step_fingerprint(h.schedule)));
  EXPECT_EQ(j["scale"], 1000);
  EXPECT_EQ(j["environment"]["NCCL_ALGO"], "Ring");
  EXPECT_EQ(j["step_time_s"], 20e-6);
  EXPECT_EQ(j["memory"]["peak_reserved_bytes"], nullptr);
  EXPECT_EQ(j["ops"][0]["start_s"], -10e-6);
  EXPECT_EQ(j["ops"][1]["group"], nullptr);
  EXPECT_EQ(j["ops"][3]["kind"], "copy_h2d");
}

TEST(OpLog, OfNoStepIsAnError) {
  HandSchedule h = program(1);
  Trace t = h.play();
  t.out_of_memory.emplace();
  EXPECT_THROW(op_log_of(h.schedule, t, kGroups, {}), Error);
  EXPECT_THROW(op_log_of(h.schedule, Trace{}, kGroups, {}), Error);
}

TEST(OpCompare, JoinsLaunchesOfOneSchedule) {
  // The kernel takes 15 us in place of 10: the step 25 in place of 20.
  const OpComparison c = compare_ops(log_of(program(2)), log_of(program(2, 4000, 15)));
  EXPECT_TRUE(c.by_launch);
  EXPECT_EQ(c.pairs.size(), 4u);
  EXPECT_TRUE(c.unmatched.empty());
  EXPECT_TRUE(c.flags.empty());
  EXPECT_NEAR(*c.step_error_pct(), -20, 1e-9);
  ASSERT_EQ(c.worst.size(), 1u);
  EXPECT_EQ(c.log[1].ops[c.worst[0].measured].name, "rms_norm");
  ASSERT_EQ(c.by_kind.size(), 4u);
  EXPECT_EQ(c.by_kind[1].kind, WorkKind::Kernel);
  EXPECT_EQ(c.by_kind[1].time[0], Time::us(10));
  EXPECT_EQ(c.by_kind[1].time[1], Time::us(15));
}

TEST(OpCompare, FlagsTwiceTheBytes) {
  // Other sizes are another schedule: joined in order.
  const OpComparison c = compare_ops(log_of(program(2)), log_of(program(2, 8000)));
  EXPECT_FALSE(c.by_launch);
  EXPECT_EQ(c.pairs.size(), 4u);
  ASSERT_EQ(c.flags.size(), 2u);
  EXPECT_NE(c.flags[0].find("different schedules"), std::string::npos);
  EXPECT_NE(c.flags[1].find("all_gather layers.*: each measured op moves twice"),
            std::string::npos);
}

// Three times the bytes, a third of them, as many times as there are ranks (100, with some padding);
// 2.5 times is no whole number, and 80 times is beyond those that are looked for.
TEST(OpCompare, FlagsWholeFactors) {
  const auto flags = [](Bytes predicted, Bytes measured, int64_t world) {
    OpLog a = log_of(program(2, predicted)), b = log_of(program(2, measured));
    a.fingerprint.clear();
    a.world = b.world = world;
    const OpComparison c = compare_ops(std::move(a), std::move(b));
    return c.flags.empty() ? std::string() : c.flags[0];
  };
  EXPECT_EQ(
      flags(4000, 12000, 8),
      "all_gather layers.*: each measured op moves 3 times the predicted bytes: is it of another "
      "size, or another group of ranks?");
  EXPECT_NE(flags(12000, 4000, 8).find("moves 1/3 of the predicted bytes"), std::string::npos);
  EXPECT_NE(flags(4000, 32000, 8)
                .find("moves 8 times the predicted bytes: is it a rank's part "
                      "against the whole?"),
            std::string::npos);
  EXPECT_NE(flags(4000, 400'800, 100).find("moves 100 times"), std::string::npos);
  EXPECT_NE(flags(4000, 16000, 4).find("is its type another one, or is it a rank's part"),
            std::string::npos);
  EXPECT_EQ(flags(4000, 10000, 8), "");
  EXPECT_EQ(flags(4000, 320'000, 8), "");
  EXPECT_EQ(flags(4000, 4000, 1), "");
}

TEST(OpCompare, CountsWhatHasNoPartner) {
  OpLog measured = log_of(program(2));
  measured.fingerprint.clear();
  LoggedOp second = measured.ops[0];
  second.start += Time::us(1);
  measured.ops.push_back(second);           // the gather twice
  measured.ops.push_back(measured.ops[1]);  // a kernel more: kernels are joined by no order
  const OpComparison c = compare_ops(log_of(program(2)), measured);
  EXPECT_EQ(c.pairs.size(), 3u);  // a gather, the product, the copy
  ASSERT_EQ(c.unmatched.size(), 3u);
  EXPECT_FALSE(c.unmatched[0].measured);
  EXPECT_EQ(c.unmatched[0].kind, WorkKind::Kernel);
  EXPECT_EQ(c.unmatched[1].count + c.unmatched[2].count, 3);
  ASSERT_EQ(c.flags.size(), 1u);
  EXPECT_NE(c.flags[0].find("all_gather layers.*: measured twice as often"), std::string::npos);
}

TEST(OpCompare, WithoutGroupsByKindAndStream) {
  OpLog measured = log_of(program(2));
  measured.fingerprint.clear();
  for (LoggedOp& op : measured.ops) op.group.clear(), op.launch.reset(), op.bytes.reset();
  const OpComparison c = compare_ops(log_of(program(2)), measured);
  EXPECT_EQ(c.pairs.size(), 4u);
  EXPECT_FALSE(c.by_kind[0].bytes[1]);
  EXPECT_TRUE(c.flags.empty());
}

TEST(OpCompare, OtherScalesHaveNoCommonTime) {
  OpLog measured = log_of(program(2));
  measured.scale = 1000;
  const OpComparison c = compare_ops(log_of(program(2)), measured);
  EXPECT_TRUE(c.by_launch);
  EXPECT_FALSE(c.step_error_pct());
  EXPECT_TRUE(c.worst.empty());
  ASSERT_EQ(c.flags.size(), 1u);
  EXPECT_NE(c.flags[0].find("scaled down by 1000"), std::string::npos);
  EXPECT_EQ(json::parse(op_comparison_json(c))["by_kind"][0]["error_pct"], nullptr);
}

}  // namespace
}  // namespace shardsim
