// Combinations of keys that once went wrong, each played on the caching allocator, where a buffer
// taken twice or a free without an owner breaks an invariant.
#include <gtest/gtest.h>

#include <string>

#include "sim/base/error.h"
#include "sim/config/scenario.h"
#include "sim/study/memory_snapshot.h"
#include "sim/study/run_report.h"
#include "sim/study/simulate.h"

namespace shardsim {
namespace {

Scenario scenario(const std::string& model, const std::string& gpus, const std::string& training) {
  return parse_scenario("shardsim: 1\nmodel: {preset: " + model +
                            "}\ncluster: {preset: hgx-h100, gpus_per_node: " + gpus +
                            "}\ntraining: {strategy: fsdp2, seq_len: 64, " + training +
                            "}\noptions: {memory: blocks}\n",
                        "corner.yaml");
}

Simulation play(const std::string& gpus, const std::string& training) {
  return simulate(scenario("gpt2", gpus, training));
}

// A cast has no step of its own, also where it is the node that a first accumulated gradient leaves.
TEST(StudyCorners, CastOutputsOfNestedGroups) {
  const Simulation s =
      simulate(scenario("llama-3-8b", "4",
                        "wrap: {policy: nested, head: true}, precision: {compute: bf16, "
                        "reduce: bf16, output: fp32}, grad_accum: 2, "
                        "fsdp2: {requires_gradient_sync: last}"));
  EXPECT_EQ(s.schedule.marks.back().name.find("step"), 0u);
}

// One rank gathers nothing: a prefetch that nobody uses leaves nothing to free either.
TEST(StudyCorners, UnusedPrefetchOnOneRank) {
  const Simulation s =
      simulate(scenario("qwen3-8b", "1",
                        "wrap: {embedding: true}, frozen: [\"model.embed_tokens.weight\"], "
                        "precision: {storage: bf16}, optimizer: {name: none}"));
  EXPECT_FALSE(s.trace.out_of_memory);
  for (const Work& w : s.schedule.works) EXPECT_NE(w.kind, WorkKind::AllGather);
}

// reduce_scatter_max_input_buffers beyond the groups: a group's second reduction has a buffer of its
// own while the first is kept. So memory grows with the passes: at least by the inputs of a pass,
// 8 ranks' shards in fp32, more than 4 B x 124 M parameters.
TEST(StudyCorners, InputsKeptOverPasses) {
  const auto peak_of = [](const char* accum) {
    const Simulation s =
        play("8", std::string("grad_accum: ") + accum +
                      ", fsdp2: {reduce_scatter_max_input_buffers: 64, is_last_backward: last}");
    Bytes peak = 0;
    for (const MarkRow& m : s.trace.marks) peak = std::max(peak, m.allocated_peak);
    return peak;
  };
  EXPECT_GT(peak_of("3") - peak_of("2"), Bytes{4} * 124'000'000);
}

TEST(StudyCorners, NothingToTrain) {
  try {
    play("8", "activation_checkpointing: {mode: full}, frozen: [\"*\"]");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(e.text().find("corner.yaml:4:"), std::string::npos) << e.text();
    EXPECT_NE(e.text().find("training.frozen"), std::string::npos) << e.text();
  }
}

// The step that is reported is the last one, whether an evaluation follows or nothing.
TEST(StudyCorners, AnEvaluationIsNoStep) {
  const auto report = [](const char* more) {
    const Scenario s = scenario("gpt2", "8", std::string("wrap: {policy: per_block}") + more);
    return run_report(s, simulate(s));
  };
  const StepReport without = report(""), with = report(", evaluate_after: true");
  EXPECT_EQ(with.steady.length().ps, without.steady.length().ps);
  EXPECT_EQ(with.collectives.size(), without.collectives.size());
  EXPECT_EQ(with.mfu(), without.mfu());
  EXPECT_EQ(with.hfu(), without.hfu());
}

// Groups and categories are two divisions of the same bytes.
TEST(StudyCorners, PeakByGroup) {
  const Scenario s = scenario("gpt2", "8", "wrap: {policy: per_block}");
  const StepReport report = run_report(s, simulate(s));
  Bytes by_category = 0, by_group = 0;
  for (const Bytes b : report.memory.by_category) by_category += b;
  for (const Bytes b : report.memory.by_group) {
    EXPECT_GE(b, 0);
    by_group += b;
  }
  EXPECT_EQ(by_group, by_category);
  ASSERT_EQ(report.memory.by_group.size(), 14u);  // 12 blocks, the root, no group
  // A block of 7,087,872 parameters: 12 B each over 8 ranks, parameters and AdamW's two moments.
  for (size_t i = 0; i < report.groups.size(); ++i) {
    if (report.groups[i].name.empty()) continue;
    EXPECT_GE(report.memory.by_group[i], 12 * 7'087'872 / 8);
  }
}

// Where memory runs out the report is of that moment: all categories together are what is allocated.
TEST(StudyCorners, OutOfMemory) {
  Scenario s = scenario("gpt2", "8", "wrap: {policy: per_block}");
  s.cluster.gpu.memory_bytes = s.cluster.gpu.context_bytes + 300 * kMiB;
  const Simulation run = simulate(s);
  ASSERT_TRUE(run.trace.out_of_memory);
  const StepReport report = run_report(s, run);
  Bytes sum = 0;
  for (const Bytes b : report.memory.by_category) sum += b;
  EXPECT_GT(sum, 0);
  Bytes by_group = 0;
  for (const Bytes b : report.memory.by_group) by_group += b;
  EXPECT_EQ(by_group, sum);
  EXPECT_LE(sum, report.memory.peak_allocated);
  EXPECT_GE(*report.memory.peak_reserved, sum);
}

// The free blocks and those in use fill what is reserved; the pickle is one that replay reads back.
TEST(StudyCorners, SnapshotOfARun) {
  const Scenario s = scenario("gpt2", "8", "wrap: {policy: per_block}");
  const Simulation run = simulate(s);
  const FreeAtPeak free = free_at_peak(s, run, 8);
  EXPECT_EQ(free.active + free.free_in_use + free.free_whole, free.reserved);
  EXPECT_EQ(free.reserved, *run_report(s, run).memory.peak_reserved);
  const std::string pickle = memory_snapshot(s, run);
  EXPECT_EQ(pickle.substr(0, 2), "\x80\x02");
  EXPECT_EQ(pickle.back(), '.');
}

}  // namespace
}  // namespace shardsim
