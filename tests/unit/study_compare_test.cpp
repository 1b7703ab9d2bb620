// What changes between two scenarios. Counts and bytes are from recordings of PyTorch or by hand;
// the reasons have to add up to what they explain.
#include "sim/study/compare.h"

#include <gtest/gtest.h>

#include <map>

#include "sim/study/recorded_program.h"
#include "tests/unit/play_scenario.h"
#include "tests/unit/recordings.h"

namespace shardsim {
namespace {

using test::bag_scenario;
using test::stack_scenario;

Diff compared(const Scenario& a, const Scenario& b) {
  return compare({"a.yaml", &a, {}}, {"b.yaml", &b, {}});
}

Scenario no_reshard(Scenario s) {
  s.training.fsdp2.reshard_after_forward = {Reshard::Kind::no, 0};
  return s;
}

const Figure* find(const Diff& d, const std::string& key) {
  for (const Figure& f : d.summary)
    if (f.key == key) return &f;
  return nullptr;
}

double change(const Diff& d, const std::string& key) {
  const Figure* f = find(d, key);
  return f == nullptr ? -1e300 : f->value[1].value() - f->value[0].value();
}

using Counted = std::map<std::tuple<Phase, std::string>, std::pair<int64_t, Bytes>>;

Counted counted(const Diff& d, size_t side) {
  Counted out;
  for (const CollectiveChange& c : d.collectives) {
    if (c.count[side] == 0) continue;
    auto& x = out[{c.phase, std::string(name_of(c.kind))}];
    x.first += c.count[side];
    x.second += c.bytes[side];
  }
  return out;
}

// Of the last step of a recording.
Counted counted(const Recording& r) {
  Counted out;
  std::string last;
  for (const Section& s : r.seen.sections)
    if (s.until.starts_with("step")) last = s.until.substr(0, s.until.find('.'));
  for (const Section& s : r.seen.sections) {
    if (!s.until.starts_with(last + ".")) continue;
    for (const Call& c : s.calls) {
      if (!is_collective(c.kind)) continue;
      auto& x = out[{phase_before(s.until),
                     c.kind == CallKind::all_gather ? "all_gather" : "reduce_scatter"}];
      ++x.first;
      x.second += c.bytes;
    }
  }
  return out;
}

void expect_sums(const Diff& d) {
  Time exposed{}, path{}, phases{}, phases_exposed{};
  for (const ExposedChange& x : d.exposed) exposed += x.time[1] - x.time[0];
  for (const PathChange& x : d.path) path += x.time[1] - x.time[0];
  for (const PhaseChange& x : d.phases) {
    phases += x.time[1] - x.time[0];
    phases_exposed += x.exposed[1] - x.exposed[0];
  }
  EXPECT_NEAR(exposed.as_s(), change(d, "exposed_comm_s"), 1e-15);
  EXPECT_NEAR(phases_exposed.as_s(), change(d, "exposed_comm_s"), 1e-15);
  EXPECT_NEAR(path.as_s(), change(d, "step_time_s"), 1e-15);
  EXPECT_NEAR(phases.as_s(), change(d, "step_time_s"), 1e-15);
}

// Four groups of one (4096, 256) fp32 parameter, 4 MiB gathered each: reshard_after_forward false
// saves the 4 all-gathers of the backward, as PyTorch does (toy_fp32, toy_fp32_reshard_false).
TEST(Compare, ReshardAsRecorded) {
  const Recording a = read_recording(test::recording_path("fsdp2/toy_fp32"));
  const Recording b = read_recording(test::recording_path("fsdp2/toy_fp32_reshard_false"));
  const RecordedProgram pa = recorded_program(a.program, a.environment, a.torch);
  const RecordedProgram pb = recorded_program(b.program, b.environment, b.torch);
  ASSERT_EQ(pa.skipped + pb.skipped, "");
  const Diff d = compared(pa.scenario, pb.scenario);
  EXPECT_EQ(counted(d, 0), counted(a));
  EXPECT_EQ(counted(d, 1), counted(b));
  EXPECT_EQ(change(d, "collectives"), -4);
  EXPECT_EQ(change(d, "collective_bytes"), -4.0 * 4 * kMiB);
  int changed = 0;
  for (const CollectiveChange& c : d.collectives) {
    if (!c.changed()) continue;
    ++changed;
    EXPECT_EQ(c.kind, WorkKind::AllGather);
    EXPECT_EQ(c.phase, Phase::backward);
    EXPECT_EQ(c.count, (Two<int64_t>{1, 0}));
    EXPECT_EQ(c.bytes, (Two<Bytes>{4 * kMiB, 0}));
  }
  EXPECT_EQ(changed, 4);
  expect_sums(d);
}

// Collectives that are gone are said to be, with what held them where they were.
TEST(Compare, ReasonsNameWhatHeldACollective) {
  const Scenario a = stack_scenario(4);
  const Diff d = compared(a, no_reshard(a));
  expect_sums(d);
  bool seen = false;
  for (const ExposedChange& x : d.exposed) {
    if (x.what != "all_gather" || x.phase != Phase::backward || x.time[0].ps == 0) continue;
    seen = true;
    EXPECT_EQ(x.time[1].ps, 0);
    EXPECT_FALSE(x.issued[1]);
    ASSERT_EQ(reasons(d, x).size(), 2u);
    EXPECT_EQ(reasons(d, x)[1], "B: not issued");
  }
  EXPECT_TRUE(seen);
}

TEST(Compare, SameScenario) {
  const Scenario a = bag_scenario();
  const Diff d = compared(a, a);
  for (const Figure& f : d.summary) EXPECT_EQ(f.value[0], f.value[1]) << f.key;
  for (const CollectiveChange& c : d.collectives) EXPECT_FALSE(c.changed());
  EXPECT_TRUE(d.memory.empty());
  EXPECT_TRUE(d.notes.empty());
  expect_sums(d);
}

// Two blocks in one group against one each: 4 groups of 4 MiB become 2 of 8 MiB; each of them is a
// unit with the two that hold the same parameters, and carries as many bytes.
TEST(Compare, GroupsArePairedByParameters) {
  const Scenario a = bag_scenario(4);
  Scenario b = a;
  b.training.wrap.policy = WrapPolicy::every_k;
  b.training.wrap.every = 2;
  const Diff d = compared(a, b);
  ASSERT_EQ(d.units.size(), 2u);
  for (const DiffUnit& u : d.units) {
    EXPECT_EQ(u.groups[0].size(), 2u);
    EXPECT_EQ(u.groups[1].size(), 1u);
  }
  EXPECT_EQ(d.units[0].name, "layers.0,layers.1");
  for (const CollectiveChange& c : d.collectives) {
    EXPECT_EQ(c.count, (Two<int64_t>{2, 1}));
    EXPECT_EQ(c.bytes, (Two<Bytes>{8 * kMiB, 8 * kMiB}));
  }
  expect_sums(d);
}

TEST(Compare, WhatOnlyOneHasIsSaid) {
  const Scenario a = bag_scenario(2), b = bag_scenario(3);
  const Diff d = compared(a, b);
  ASSERT_EQ(d.units.size(), 3u);
  EXPECT_TRUE(d.units[2].groups[0].empty());
  ASSERT_EQ(d.notes.size(), 1u);
  EXPECT_EQ(d.notes[0], "only B has the parameters of layers.2: their works have no counterpart");
  for (const CollectiveChange& c : d.collectives) EXPECT_EQ(c.changed(), c.unit == 2);
}

// A reducing run of 8 ranks on a device with no room for it: nothing to time, and it is said.
TEST(Compare, OutOfMemory) {
  Scenario a = stack_scenario(2);
  a.options.memory = MemoryLevel::blocks;
  a.cluster.gpu.context_bytes = 0;
  Scenario b = a;
  b.cluster.gpu.memory_bytes = 24 * kMiB;
  const Diff d = compared(a, b);
  EXPECT_TRUE(d.timed[0]);
  EXPECT_FALSE(d.timed[1]);
  EXPECT_FALSE(find(d, "step_time_s")->value[1].has_value());
  EXPECT_TRUE(d.exposed.empty());
  EXPECT_TRUE(d.path.empty());
  ASSERT_FALSE(d.notes.empty());
  EXPECT_NE(d.notes.back().find("B runs out of memory"), std::string::npos);
}

// "layers.0" and "layers.1" fold; a digit in a word is no index.
TEST(Compare, FoldSumsLayers) {
  const Scenario a = bag_scenario(4);
  const Diff d = compared(a, no_reshard(a)), f = fold(d);
  ASSERT_EQ(f.units.size(), 1u);
  EXPECT_EQ(f.units[0].name, "layers.*");
  expect_sums(f);
  for (const CollectiveChange& c : f.collectives) {
    if (!c.changed()) continue;
    EXPECT_EQ(c.count, (Two<int64_t>{4, 0}));
    EXPECT_EQ(c.bytes, (Two<Bytes>{16 * kMiB, 0}));
  }
}

}  // namespace
}  // namespace shardsim
