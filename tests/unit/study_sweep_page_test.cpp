// The page of a sweep; that it draws, and that its scenarios are the points', is tests/html/check.py's.
#include "sim/study/sweep_page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/study/sweep_scenarios.h"

namespace shardsim {
namespace {

using nlohmann::json;

constexpr const char* kHostile = "</script><img src=x onerror=alert(1)>";

json data_of(const std::string& page) {
  const size_t from = page.find("id=\"data\">") + 10;
  return json::parse(page.substr(from, page.find("</script>", from) - from));
}

// Points 0 to n - 1 on a grid of 100 columns, each a scenario of its own.
StoredSweep grid(int64_t n) {
  StoredSweep s;
  s.name = s.question = kHostile;
  s.axes = {"training.micro_batch", kHostile};
  for (int64_t i = 0; i < n; ++i) {
    SweepRow r;
    r.key = short_key(std::to_string(i));
    r.step_time_s = 1.0 / 3 + static_cast<double>(i % 7919) / 7;
    r.tokens_per_s = 1e6 / r.step_time_s;
    r.tokens_per_s_per_gpu = r.tokens_per_s / 8;
    r.mfu = 0.3 / r.step_time_s;
    r.exposed_comm_s = r.step_time_s / 11;
    r.overlap_fraction = 1.0 / 7;
    r.peak_bytes = 80'000'000'000 - i * 1'234'567;
    r.headroom_bytes = i * 1'234'567;
    r.fits = true;
    r.gpus = 8;
    r.params = 8'030'261'248;
    r.cost = r.step_time_s * 70;
    s.rows[r.key] = r;
    s.points.push_back({i, r.key, {std::to_string(i % 100), std::to_string(i / 100)}});
  }
  return s;
}

TEST(SweepPage, TenThousandPointsAreBelowFiveMegabytes) {
  const StoredSweep sweep = grid(10'000);
  const std::string page = sweep_page(sweep, {});
  EXPECT_LT(page.size(), 5'000'000U);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  const json data = data_of(page);
  EXPECT_EQ(data["left_out"], 0);
  EXPECT_EQ(data["points"]["number"].size(), 10'000U);
  EXPECT_EQ(data["axes"][1]["name"], kHostile);
  // Figures are those of the store, to the last bit.
  EXPECT_EQ(data["rows"]["step_time_s"][9'999].get<double>(),
            sweep.rows.at(sweep.points[9'999].key).step_time_s);
  EXPECT_EQ(sweep_page(sweep, {}), page);
}

// Of 100 points the 20 fastest stay; step time rises with the number, memory falls, so all are on the
// front of which the first 20 come first.
TEST(SweepPage, PointsBeyondTheMostAreSaid) {
  const json data = data_of(sweep_page(grid(100), {}, 20));
  EXPECT_EQ(data["left_out"], 80);
  ASSERT_EQ(data["points"]["number"].size(), 20U);
  EXPECT_EQ(data["points"]["number"][19], 19);
}

// Headroom rises by 1,234,567 bytes a point: 3 of 5 points have 2 MB.
TEST(SweepPage, AnswersCountWhatTheStudyRequires) {
  StoredSweep s = grid(5);
  s.rows.at(s.points[4].key).budget_hours = 7.5;
  const json data = data_of(
      sweep_page(s, {Objective::step_time, {true, {{"headroom_bytes", false, 2e6, "2 MB"}}}}));
  EXPECT_EQ(data["require"], json({"headroom_bytes at least 2 MB"}));
  EXPECT_EQ(data["rows"]["excluded"], json({1, 1, 0, 0, 0}));
  EXPECT_EQ(data["rows"]["budget_hours"], json({nullptr, nullptr, nullptr, nullptr, 7.5}));
}

TEST(SweepPage, SharedRowsErrorsAndWhatIsNotPlayed) {
  StoredSweep s = grid(3);
  s.points[1].key = s.points[0].key;
  SweepRow& wrong = s.rows.at(s.points[2].key);
  wrong = {};
  wrong.key = s.points[2].key;
  wrong.error = std::string(kHostile) + std::string(1'000, 'x');
  s.points.push_back({3, "no row", {"3", "0"}});
  const std::string page = sweep_page(s, {Objective::cost, {true, {}}});
  const json data = data_of(page);
  EXPECT_EQ(page.find("<img"), std::string::npos);
  EXPECT_EQ(data["objective"], "cost");
  EXPECT_EQ(data["missing"], 1);
  EXPECT_EQ(data["points"]["row"], json::parse("[0, 0, 1]"));
  EXPECT_EQ(data["rows"]["error"], json::parse("[-1, 0]"));
  EXPECT_TRUE(data["rows"]["step_time_s"][1].is_null());
  EXPECT_EQ(data["errors"][0].get<std::string>().size(), 503U);
  EXPECT_TRUE(data["scenarios"].is_null());
  s.scenarios = "no JSON";
  EXPECT_TRUE(data_of(sweep_page(s, {}))["scenarios"].is_null());
}

TEST(SweepScenarios, ValuesStandAsInTheFile) {
  const Study study = parse_study(R"(
shardsim_study: 1
axes:
  training.micro_batch: {from: 1, to: 2}
  choice: {choices: {a: ~, b: {training.wrap: {modules: [x, "y"]}}}}
scenario:
  shardsim: 1
  name: "n: 1"
  training: {micro_batch: 1e0, none: ~}
)",
                                  "dir/s.yaml");
  const json parts = json::parse(scenario_parts(study));
  EXPECT_EQ(parts["file"], "s.yaml");
  EXPECT_EQ(parts["base"], json::parse(R"({"m": [["shardsim", "1"], ["name", {"q": "n: 1"}],
    ["training", {"m": [["micro_batch", "1e0"], ["none", null]]}]]})"));
  EXPECT_EQ(parts["axes"][0]["places"][1],
            json::parse(R"({"label": "2", "settings": [[["training", "micro_batch"], "2"]]})"));
  EXPECT_EQ(parts["axes"][1]["places"][0]["settings"], json::array());
  EXPECT_EQ(parts["axes"][1]["places"][1]["settings"], json::parse(R"([[["training", "wrap"],
    {"m": [["modules", ["x", {"q": "y"}]]]}]])"));
}

}  // namespace
}  // namespace shardsim
