// The clock of conform.md: how many anchors of each other stream must have finished before an anchor
// may start. Two hand-made runs that differ in one dependency are told apart, and two that only go
// about it differently are not. The same pairs were put to the recorder's waits.py.
#include <gtest/gtest.h>

#include "sim/study/conform.h"
#include "tests/unit/recordings.h"

namespace shardsim {
namespace {

using test::json;
using test::record_of;

json gather(const char* stream) { return {"all_gather", stream, 1024, 1, 0.0, 1.0}; }
json scatter(const char* stream) { return {"reduce_scatter", stream, 1024, 1, 0.0, 1.0}; }
json gemm(const char* stream) { return {"gemm", stream, {8, 8, 8, 1}, 0.0, 1.0}; }
json kernel(const char* stream, const char* name) { return {"kernel", stream, name, 0.0, 1.0}; }
json record(const char* stream, int e) { return {"record", stream, e}; }
json wait(const char* stream, int e) { return {"wait", stream, e}; }

bool equal_waits(const json& a, const json& b, const json& before_a = json::array(),
                 const json& before_b = json::array()) {
  const Checks c = compare(record_of(a, before_a), record_of(b, before_b), false);
  EXPECT_EQ(c.streams, true);
  return *c.waits;
}

// The base of most pairs: s1 gathers, s0 copies out and multiplies.
const json kBase = {gather("s1"), record("s1", 1), wait("s0", 1), kernel("s0", "copy_out"),
                    gemm("s0")};

TEST(StudyClocks, Equal) { EXPECT_TRUE(equal_waits(kBase, kBase)); }

TEST(StudyClocks, MissingAndExtraWaits) {
  EXPECT_FALSE(equal_waits(kBase, {gather("s1"), kernel("s0", "copy_out"), gemm("s0")}));
  EXPECT_FALSE(equal_waits({gather("s1"), kernel("s0", "copy_out"), gemm("s0")}, kBase));
  // Too late: the product waits, the copy-out does not.
  EXPECT_FALSE(equal_waits(
      kBase, {gather("s1"), record("s1", 1), kernel("s0", "copy_out"), wait("s0", 1), gemm("s0")}));
  // A record before the gather is no dependency on it.
  EXPECT_FALSE(equal_waits(
      kBase, {record("s1", 1), gather("s1"), wait("s0", 1), kernel("s0", "copy_out"), gemm("s0")}));
}

// Event numbers, more records, redundant waits, and kernels that are no anchors do not matter.
TEST(StudyClocks, HowItIsDoneDoesNotMatter) {
  EXPECT_TRUE(equal_waits(
      kBase, {record("s1", 7), kernel("s1", "cast"), gather("s1"), record("s1", 8), wait("s1", 8),
              record("s1", 9), record("s1", 10), wait("s0", 10), kernel("s0", "fill"),
              wait("s0", 9), kernel("s0", "copy_out"), wait("s0", 10), gemm("s0")}));
}

// Through a third stream.
TEST(StudyClocks, Transitive) {
  EXPECT_TRUE(equal_waits(kBase, {gather("s1"), record("s1", 1), wait("s2", 1), record("s2", 2),
                                  wait("s0", 2), kernel("s0", "copy_out"), gemm("s0")}));
  // The third stream's own anchors count as well.
  EXPECT_FALSE(equal_waits(
      {gather("s1"), record("s1", 1), wait("s0", 1), scatter("s2"), kernel("s0", "copy_out")},
      {gather("s1"), record("s1", 1), wait("s2", 1), scatter("s2"), record("s2", 2), wait("s0", 2),
       kernel("s0", "copy_out")}));
}

// A wait is for the event's latest record before it.
TEST(StudyClocks, RecordedAgain) {
  const json twice = {gather("s1"),    record("s1", 1), gather("s1"),
                      record("s1", 1), wait("s0", 1),   kernel("s0", "copy_out")};
  const json later = {gather("s1"),  record("s1", 1), gather("s1"),
                      wait("s0", 1), record("s1", 1), kernel("s0", "copy_out")};
  EXPECT_FALSE(equal_waits(twice, later));  // two gathers, one gather
  EXPECT_TRUE(equal_waits(twice, {gather("s1"), gather("s1"), record("s1", 3), wait("s0", 3),
                                  kernel("s0", "copy_out")}));
}

// All that is issued after a host wait waits, on any stream; what was issued before does not.
TEST(StudyClocks, HostWaits) {
  const json by_host = {gather("s1"),
                        record("s1", 1),
                        {"event_sync", nullptr, 1},
                        kernel("s0", "copy_out"),
                        gemm("s0")};
  EXPECT_TRUE(equal_waits(kBase, by_host));
  EXPECT_TRUE(equal_waits(
      kBase, {gather("s1"), {"stream_sync", "s1"}, kernel("s0", "copy_out"), gemm("s0")}));
  EXPECT_TRUE(equal_waits(
      kBase, {gather("s1"), {"device_sync", nullptr}, kernel("s0", "copy_out"), gemm("s0")}));
  EXPECT_FALSE(equal_waits(
      kBase, {gather("s1"), {"stream_sync", "s2"}, kernel("s0", "copy_out"), gemm("s0")}));
  // The host knows what it waited for: a second stream is held too.
  EXPECT_FALSE(equal_waits(
      {gather("s1"), record("s1", 1), wait("s0", 1), kernel("s0", "copy_out"), scatter("s2")},
      {gather("s1"), {"stream_sync", "s1"}, kernel("s0", "copy_out"), scatter("s2")}));
  // What the stream itself had to wait for follows.
  EXPECT_TRUE(equal_waits({gather("s1"), record("s1", 1), wait("s2", 1), scatter("s2"),
                           record("s2", 2), wait("s0", 2), kernel("s0", "copy_out")},
                          {gather("s1"),
                           record("s1", 1),
                           wait("s2", 1),
                           scatter("s2"),
                           {"stream_sync", "s2"},
                           kernel("s0", "copy_out")}));
  // The number of host waits is another check.
  const Checks c = compare(record_of(kBase), record_of(by_host), false);
  EXPECT_EQ(c.waits, true);
  EXPECT_EQ(c.host_waits, false);
}

// Collectives of one communicator run one after another, but that is no part of the clock; nor is the
// host's order of calls on different streams.
TEST(StudyClocks, HostOrderDoesNotMatter) {
  EXPECT_TRUE(equal_waits({gather("s1"), scatter("s2"), gemm("s0")},
                          {gather("s1"), gemm("s0"), scatter("s2")}));
}

// An event recorded before the first compared section waits for nothing there.
TEST(StudyClocks, EventsOfInitialization) {
  const json before = {gather("s1"), record("s1", 5)};
  EXPECT_TRUE(equal_waits({wait("s0", 5), gather("s1"), gemm("s0")}, {gather("s1"), gemm("s0")},
                          before, before));
  EXPECT_TRUE(
      equal_waits({wait("s0", 5), gather("s1"), gemm("s0")}, {gather("s1"), gemm("s0")}, before));
}

TEST(StudyClocks, NumberKindAndSizesOfAnchors) {
  const auto waits = [](const json& a, const json& b) {
    return *compare(record_of(a), record_of(b), false).waits;
  };
  const json plain = {gather("s1"), kernel("s0", "copy_out"), gemm("s0")};
  EXPECT_TRUE(waits(plain, plain));
  EXPECT_FALSE(waits(plain, {gather("s1"), kernel("s0", "copy_out"), gemm("s0"), gemm("s0")}));
  EXPECT_FALSE(waits(plain, {gather("s1"), kernel("s0", "cat"), gemm("s0")}));
  EXPECT_FALSE(waits(plain, {gather("s1"), gemm("s0"), kernel("s0", "copy_out")}));
  EXPECT_FALSE(waits(
      plain, {gather("s1"), kernel("s0", "copy_out"), {"gemm", "s0", {8, 8, 9, 1}, 0.0, 1.0}}));
}

// What waits.py says of these recordings of FSDP1 and DDP (spec/conform.md): the host's speed and
// the older NCCL backend change no dependency; another prefetch does, and so does DDP's reducer.
TEST(StudyClocks, RecordedTwins) {
  const auto seen = [](const std::string& name) {
    return read_recording(test::recording("waits/" + name), name).seen;
  };
  const RunRecord pre = seen("full_shard_pre");
  for (const char* twin :
       {"full_shard_pre_legacy_nccl", "full_shard_pre_host_8us", "full_shard_pre_host_200us"}) {
    const Checks c = compare(pre, seen(twin), false);
    EXPECT_EQ(c.waits, true) << twin;
    EXPECT_EQ(c.streams, true) << twin;
    EXPECT_EQ(c.order, true) << twin;
    EXPECT_EQ(c.host_waits, true) << twin;
  }
  EXPECT_EQ(compare(pre, seen("full_shard_post"), false).waits, false);
  EXPECT_EQ(compare(seen("ddp_default"), seen("ddp_default_legacy_nccl"), false).waits, false);
}

}  // namespace
}  // namespace shardsim
