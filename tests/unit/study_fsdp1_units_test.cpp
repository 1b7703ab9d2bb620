// PyTorch's own flat parameters (`case.observed.units` of the FSDP1 recordings) against the plan.
#include <gtest/gtest.h>

#include <filesystem>

#include "sim/plan/flat_layout.h"
#include "sim/study/recorded_program.h"
#include "sim/study/simulate.h"
#include "tests/unit/recordings.h"

namespace shardsim {
namespace {

using test::json;

void expect_units(const json& recording, const std::string& name) {
  const json& program = recording.at("case");
  const RecordedProgram r = recorded_program(program, recording.at("environment"), "2.15.0");
  ASSERT_EQ(r.skipped, "") << name;
  const Training& t = r.scenario.training;
  const Model model = build_model(r.scenario.model);
  const Plan plan = build_plan(model, t);
  const json& units = program.at("observed").at("units");
  size_t next = 0;
  for (const ShardState& s : plan.states) {
    if (!s.group.valid()) continue;
    const Group& g = plan.groups[s.group.v];
    ASSERT_LT(next, units.size()) << name;
    const json& u = units[next++];
    std::vector<int64_t> offsets, sizes;
    int64_t at = 0;
    for (size_t i = 0; i < u.at("is_padding").size(); ++i) {
      const int64_t n = u.at("numels_with_padding")[i];
      if (u.at("is_padding")[i] == 0) {
        offsets.push_back(at);
        sizes.push_back(n);
      }
      at += n;
    }
    ASSERT_EQ(g.params.size(), offsets.size()) << name;
    for (size_t p = 0; p < offsets.size(); ++p) {
      EXPECT_EQ(g.params[p].offset, offsets[p]) << name;
      EXPECT_EQ(g.params[p].numel, sizes[p]) << name;
    }
    EXPECT_EQ(g.flat, u.at("unsharded")) << name;
    EXPECT_EQ(g.shard, u.at("shard")) << name;
    const FlatLayout layout =
        flat_layout(sizes, t.mesh.shard, compute_dtype(t.precision), t.fsdp1.use_orig_params);
    const json& ranks = u.at("real_elements_by_rank");
    for (size_t k = 0; k < ranks.size(); ++k)
      EXPECT_EQ(layout.of_rank(static_cast<int64_t>(k)).size(), ranks[k]) << name << " rank " << k;
  }
  EXPECT_EQ(next, units.size()) << name;
}

TEST(StudyFsdp1Units, AreThoseThatWereRecorded) {
  int seen = 0;
  for (const std::string& name : test::recordings_in("fsdp1")) {
    const json r = test::recording(name);
    if (!r.is_object() || !r.contains("case") || !r.at("case").contains("observed")) continue;
    if (r.at("environment").contains("TORCH_DIST_USE_NCCL2")) continue;
    expect_units(r, name);
    ++seen;
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace shardsim
