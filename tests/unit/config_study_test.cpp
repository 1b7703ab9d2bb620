// Studies: points by their axes, what they set, and every mistake at its place.
#include "sim/config/study.h"

#include <gtest/gtest.h>

#include "sim/base/error.h"
#include "sim/config/overlay.h"

namespace shardsim {
namespace {

constexpr const char* kScenario = R"(
scenario:
  shardsim: 1
  model: {preset: llama-3-8b}
  cluster: {preset: dgx-h100}
  training: {strategy: fsdp2, seq_len: 2048, micro_batch: 1}
)";

Study study(const std::string& axes) {
  return parse_study("shardsim_study: 1\nname: s\n" + axes + kScenario, "s.yaml");
}

std::string mistake(const std::string& axes) {
  try {
    const Study s = study(axes);
    s.scenario(0);
  } catch (const Error& e) {
    return e.text();
  }
  return "";
}

std::vector<std::string> labels(const Axis& axis) {
  std::vector<std::string> out;
  for (const AxisPlace& p : axis.places) out.push_back(p.label);
  return out;
}

// Axes of 2, 3 and 4 places: 24 points, the last axis fastest, so point 5 is place 0, 1, 1.
TEST(Study, PointsCountThroughTheProduct) {
  const Study s = study(
      "axes:\n"
      "  training.micro_batch: [1, 2]\n"
      "  training.seq_len: [1024, 2048, 4096]\n"
      "  cluster.nodes: {from: 1, to: 4}\n");
  EXPECT_EQ(s.size(), 24);
  EXPECT_EQ(s.places(5), (std::vector<size_t>{0, 1, 1}));
  const Scenario p = s.scenario(23);
  EXPECT_EQ(p.training.micro_batch, 2);
  EXPECT_EQ(p.training.seq_len, 4096);
  EXPECT_EQ(p.cluster.nodes, 4);
}

TEST(Study, Ranges) {
  const Study s = study(
      "axes:\n"
      "  cluster.nodes: {from: 1, to: 8, times: 2}\n"
      "  training.micro_batch: {from: 1, to: 5, step: 2}\n"
      "  cost.scale_tax: {from: 0, to: 0.3, step: 0.1}\n");
  EXPECT_EQ(labels(s.axes()[0]), (std::vector<std::string>{"1", "2", "4", "8"}));
  EXPECT_EQ(labels(s.axes()[1]), (std::vector<std::string>{"1", "3", "5"}));
  EXPECT_EQ(labels(s.axes()[2]), (std::vector<std::string>{"0", "0.1", "0.2", "0.3"}));
  // Not rounded, whatever their size; negative ends are met too.
  const Study small = study(
      "axes:\n"
      "  cost.jitter.rank_sigma: {from: 9e-10, to: 9e-8, times: 10}\n"
      "  training.mesh.shard: {from: -5, to: -1, step: 4}\n");
  EXPECT_EQ(labels(small.axes()[0]), (std::vector<std::string>{"9e-10", "9e-09", "9e-08"}));
  EXPECT_EQ(labels(small.axes()[1]), (std::vector<std::string>{"-5", "-1"}));
  EXPECT_THROW(study("axes:\n  training.micro_batch: {from: 1, to: 6, step: 2}\n"), Error);
}

TEST(Study, KeysThatMoveTogether) {
  const Study s =
      study("axes:\n  size: {zip: {cluster.nodes: [1, 2], training.micro_batch: [4, 2]}}\n");
  EXPECT_EQ(s.size(), 2);
  EXPECT_EQ(s.axes()[0].places[1].label, "2, 2");
  const Scenario p = s.scenario(1);
  EXPECT_EQ(p.cluster.nodes, 2);
  EXPECT_EQ(p.training.micro_batch, 2);
}

// A choice may set whole maps and keys that the scenario has not; ~ leaves it as it is.
TEST(Study, Choices) {
  const Study s = study(
      "axes:\n  wrap:\n    choices:\n"
      "      as is: ~\n"
      "      root: {training.wrap: {policy: root_only}, training.fsdp2.reshard_after_forward: "
      "false}\n");
  EXPECT_EQ(s.scenario(0).training.wrap.policy, WrapPolicy::per_block);
  EXPECT_EQ(s.scenario(1).training.wrap.policy, WrapPolicy::root_only);
}

TEST(Study, SkipAndOnly) {
  const std::string axes = "axes:\n  training.micro_batch: [1, 2, 4]\n  cluster.nodes: [1, 2]\n";
  const Study skips = study(axes + "skip:\n  - {training.micro_batch: [2, 4], cluster.nodes: 2}\n");
  std::vector<int64_t> left;
  for (int64_t p = 0; p < skips.size(); ++p)
    if (!skips.left_out(p)) left.push_back(p);
  EXPECT_EQ(left, (std::vector<int64_t>{0, 1, 2, 4}));
  const Study only = study(axes + "only:\n  - {cluster.nodes: 1}\n");
  left.clear();
  for (int64_t p = 0; p < only.size(); ++p)
    if (!only.left_out(p)) left.push_back(p);
  EXPECT_EQ(left, (std::vector<int64_t>{0, 2, 4}));
}

// A micro-batch that the scenario has already is the same scenario; a name is no part of it.
TEST(Study, AlikePointsHaveOneKey) {
  const Study s = study(
      "axes:\n  a: {choices: {as is: ~, one: {training.micro_batch: 1}, two: "
      "{training.micro_batch: 2}}}\n");
  EXPECT_EQ(s.key(0), s.key(1));
  EXPECT_NE(s.key(0), s.key(2));
}

TEST(Study, MistakesStandWhereTheyAre) {
  EXPECT_EQ(mistake("axes:\n  training.micro_batchs: [1]\n"),
            "s.yaml:4:27: error: training: unknown key 'micro_batchs'\n  hint: did you mean "
            "'micro_batch'?");
  EXPECT_EQ(mistake("axes:\n  training.micro_batch: [many]\n").substr(0, 60),
            "s.yaml:4:26: error: training.micro_batch: expected a whole n");
  EXPECT_EQ(mistake("axes:\n  training.micro_batch: []\n"),
            "s.yaml:4:25: error: axes.training.micro_batch: expected a list of values, got an "
            "empty list");
  EXPECT_EQ(mistake("axes:\n  training.micro_batch.x: [1]\n").substr(0, 60),
            "s.yaml:4:28: error: training.micro_batch: the scenario's val");
  EXPECT_NE(mistake("axes:\n  a: {zip: {cluster.nodes: [1, 2], training.seq_len: [1]}}\n")
                .find("1 values beside lists of 2"),
            std::string::npos);
  EXPECT_NE(mistake("axes:\n  training.seq_len: [1, 2, 1]\n").find("is here twice"),
            std::string::npos);
  EXPECT_EQ(mistake("axes:\n  training.micro_batch: [1]\n  training: [{strategy: ddp}]\n"),
            "s.yaml:5:3: error: axes.training: training is set by axis 'training.micro_batch' too\n"
            "  hint: each key is set in one place: zip keys that move together, or merge the axes");
  EXPECT_NE(mistake("axes:\n  a: {choices: {x: {training: {}, training.seq_len: 1}}}\n")
                .find("training.seq_len is set by the same place of the axis too"),
            std::string::npos);
  EXPECT_NE(mistake("axes: {}\n").find("no axis is given"), std::string::npos);
  EXPECT_NE(mistake("axes:\n  cluster.nodes: [1]\nskip:\n  - {training.seq_len: 1}\n")
                .find("is no axis of this study"),
            std::string::npos);
  EXPECT_NE(mistake("axes:\n  cluster.nodes: [1]\nskip:\n  - {cluster.nodes: 3}\n")
                .find("the axis has no place '3'"),
            std::string::npos);
}

TEST(Study, Require) {
  const Requirements r = study(
                             "axes:\n  cluster.nodes: [1]\n"
                             "require:\n  fits: any\n  step_time_s: {at_most: 1500 ms}\n"
                             "  exposed_comm_s: {at_most: 0.1}\n"
                             "  headroom_bytes: {at_least: 4 GiB, at_most: 8 GiB}\n")
                             .require();
  EXPECT_FALSE(r.fits);
  ASSERT_EQ(r.bounds.size(), 4U);
  EXPECT_EQ(r.bounds[0].figure, "step_time_s");
  EXPECT_DOUBLE_EQ(r.bounds[0].value, 1.5);
  EXPECT_DOUBLE_EQ(r.bounds[1].value, 0.1);
  EXPECT_FALSE(r.bounds[2].at_most);
  EXPECT_DOUBLE_EQ(r.bounds[2].value, 4294967296.0);
  EXPECT_EQ(r.bounds[3].text, "8 GiB");
  const std::string axes = "axes:\n  cluster.nodes: [1]\nrequire: ";
  EXPECT_NE(mistake(axes + "{step_time: {at_most: 1}}\n").find("did you mean 'step_time_s'?"),
            std::string::npos);
  EXPECT_NE(mistake(axes + "{mfu: 0.4}\n").find("expected {at_most: ...}, {at_least: ...} or both"),
            std::string::npos);
  EXPECT_NE(mistake(axes + "{mfu: {}}\n").find("expected {at_most"), std::string::npos);
  EXPECT_NE(mistake(axes + "{mfu: {at_least: nan}}\n").find("got 'nan'"), std::string::npos);
  EXPECT_NE(mistake(axes + "{peak_bytes: {at_most: 3 s}}\n").find("has an unknown unit"),
            std::string::npos);
  EXPECT_NE(mistake(axes + "{fits: false}\n").find("require.fits"), std::string::npos);
}

TEST(Overlay, TakesKeysAway) {
  const Document base = parse_yaml("a: {b: 1, c: {d: 2}}\ne: 3\n", "b.yaml");
  const Document four = parse_yaml("4", "v.yaml");
  const auto without = [&](std::vector<Setting> s) { return canonical_text(overlaid(base, s)); };
  EXPECT_EQ(without({{{"a", "c"}, nullptr, 0}}), "a:{b:'1',},e:'3'");
  EXPECT_EQ(without({{{"a", "x", "y"}, nullptr, 0}, {{"e"}, nullptr, 0}}), "a:{b:'1',c:{d:'2',},}");
  EXPECT_EQ(without({{{"e", "x"}, nullptr, 0}}), "a:{b:'1',c:{d:'2',},},e:'3'");
  // The later one holds.
  EXPECT_EQ(without({{{"e"}, nullptr, 0}, {{"e"}, &four, four.root()}}),
            "a:{b:'1',c:{d:'2',},},e:'4'");
  EXPECT_EQ(without({{{"e"}, &four, four.root()}, {{"e"}, nullptr, 0}}), "a:{b:'1',c:{d:'2',},}");
}

TEST(Study, TooManyPoints) {
  EXPECT_NE(mistake("axes:\n  training.seq_len: {from: 1, to: 100000}\n"
                    "  training.micro_batch: {from: 1, to: 100000}\n")
                .find("more than 1000000000 points"),
            std::string::npos);
  EXPECT_NE(
      mistake("axes:\n  training.seq_len: {from: 1, to: 1e12}\n").find("too many for one axis"),
      std::string::npos);
}

}  // namespace
}  // namespace shardsim
