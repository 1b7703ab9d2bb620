// Sweeps: what is stored, what is played again, and the answers.
#include "sim/study/sweep.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "sim/base/error.h"
#include "sim/study/sweep_query.h"

namespace shardsim {
namespace {

constexpr const char* kStudy = R"(
shardsim_study: 1
name: s
axes:
  training.micro_batch: [64, 128, 256, x]
  training.strategy: [fsdp2, ddp]
  same: {choices: {one: ~, two: ~}}
scenario:
  shardsim: 1
  model: {model_type: stack, hidden_size: 256, blocks: [[[256, 256]], [[256, 256]]]}
  cluster: {gpu: h100-sxm5-80gb, gpus_per_node: 8, links: {intra: {alpha: 5 us, bus: 354 GB/s}}}
  training: {strategy: ddp, micro_batch: 256}
  cost: {model: flat}
)";

class Sweep : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("sweep_test_" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

SweepResult play(const std::string& path, const SweepOptions& options) {
  const Study study = parse_study(kStudy, "s.yaml");
  SweepStore store(path, study);
  return sweep(study, store, options);
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// 4 x 2 x 2 = 16 points; "same" changes nothing, so 8 scenarios; "x" is no micro-batch: 2 of them fail.
TEST_F(Sweep, AlikePointsArePlayedOnceAndErrorsAreRows) {
  const SweepResult r = play(file("a.db"), {});
  EXPECT_EQ(r.points, 16);
  EXPECT_EQ(r.played, 8);
  EXPECT_EQ(r.found, 8);
  EXPECT_EQ(r.failed, 2);
  const StoredSweep s = SweepStore::read(file("a.db"));
  EXPECT_EQ(s.points.size(), 16U);
  EXPECT_EQ(s.rows.size(), 8U);
  EXPECT_NE(s.rows.at(s.points[12].key).error.find("training.micro_batch: expected a whole number"),
            std::string::npos);
}

TEST_F(Sweep, ThreadsShardsAndResumingGiveTheSame) {
  play(file("one.db"), {});
  SweepOptions two;
  two.threads = 2;
  play(file("two.db"), two);
  // Stopped after five points, and gone on with.
  SweepOptions cut;
  std::atomic<int> left = 5;
  cut.interrupted = [&] { return left-- <= 0; };
  EXPECT_FALSE(play(file("cut.db"), cut).whole);
  const SweepResult rest = play(file("cut.db"), {});
  EXPECT_LT(rest.played, 8);
  for (int64_t i = 1; i <= 3; ++i) {
    SweepOptions shard;
    shard.shard = i;
    shard.shards = 3;
    play(file("s" + std::to_string(i) + ".db"), shard);
  }
  SweepStore::merge({file("s1.db"), file("s2.db"), file("s3.db")}, file("merged.db"));
  const std::string want = sweep_csv(SweepStore::read(file("one.db")), {});
  for (const char* other : {"two.db", "cut.db", "merged.db"})
    EXPECT_EQ(sweep_csv(SweepStore::read(file(other)), {}), want) << other;
}

TEST_F(Sweep, StoresThatAreRefused) {
  play(file("a.db"), {});
  const Study other =
      parse_study(std::string(kStudy).replace(std::string(kStudy).find("64"), 2, "32"), "s.yaml");
  EXPECT_NE(refusal([&] { SweepStore(file("a.db"), other); }).find("another study"),
            std::string::npos);
  play(file("old.db"), {});
  sqlite3* old = nullptr;
  ASSERT_EQ(sqlite3_open(file("old.db").c_str(), &old), SQLITE_OK);
  sqlite3_exec(old, "UPDATE meta SET value = '0' WHERE key = 'schema'", nullptr, nullptr, nullptr);
  sqlite3_close(old);
  EXPECT_EQ(refusal([&] { play(file("old.db"), {}); }),
            "this store has schema 0, and this shardsim writes 3");
  std::ofstream(file("text.db")) << "no database, but a text that is longer than a header of one: "
                                    "it has a hundred bytes and more, all of them letters.\n";
  EXPECT_NE(refusal([&] { SweepStore::read(file("text.db")); }), "");
  EXPECT_NE(refusal([&] { play(file("text.db"), {}); }), "");
  EXPECT_NE(refusal([&] { SweepStore::read(file("none.db")); }).find("no such store"),
            std::string::npos);
  const Study study = parse_study(kStudy, "s.yaml");
  const SweepStore first(file("b.db"), study);
  EXPECT_EQ(refusal([&] { SweepStore(file("b.db"), study); }),
            "another sweep writes to this store");
  EXPECT_NE(refusal([&] { SweepStore::merge({file("a.db")}, file("b.db")); }).find("there already"),
            std::string::npos);
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = kStudy;
  return text.replace(text.find(from), from.size(), to);
}

// The same error whether the rows are played or found; a part's are rows and no more.
TEST_F(Sweep, AStudyOfNothingButMistakesIsOne) {
  const Study study = parse_study(with("training.micro_batch", "training.micro_butch"), "s.yaml");
  std::string first;
  for (int i = 0; i < 2; ++i) {
    SweepStore store(file("a.db"), study);
    const std::string error = refusal([&] { sweep(study, store, {}); });
    EXPECT_NE(error.find("micro_butch"), std::string::npos);
    EXPECT_TRUE(i == 0 || error == first);
    first = error;
  }
  EXPECT_EQ(SweepStore::read(file("a.db")).rows.size(), 8U);
  SweepStore store(file("b.db"), study);
  SweepOptions part;
  part.shards = 2;
  EXPECT_EQ(sweep(study, store, part).failed, 8);
}

// 16 points in 20 parts: the last has none, and its store says what study it is of.
TEST_F(Sweep, APartMayHaveNoPoints) {
  SweepOptions part;
  part.shard = part.shards = 20;
  EXPECT_EQ(play(file("a.db"), part).points, 0);
  const StoredSweep s = SweepStore::read(file("a.db"));
  EXPECT_EQ(s.points.size(), 0U);
  EXPECT_EQ(s.total, 16);
  EXPECT_NE(sweep_table(s, {}, 1).find("s: 0 of 16 points"), std::string::npos);
}

// What a named file holds is part of the study and of the scenario's key.
TEST_F(Sweep, NamedFilesAreDigested) {
  const std::string text = with("{model: flat}", "{model: flat, nccl_table: t.txt}");
  const auto write = [&](const char* what) { std::ofstream(file("t.txt")) << what; };
  write("one");
  const Study one = parse_study(text, file("s.yaml"));
  { const SweepStore store(file("a.db"), one); }
  write("two");
  const Study two = parse_study(text, file("s.yaml"));
  EXPECT_NE(one.key(0), two.key(0));
  EXPECT_EQ(one.key(0), one.key(1));
  EXPECT_NE(refusal([&] { SweepStore(file("a.db"), two); }).find("a file that it names"),
            std::string::npos);
}

// Skipped: micro-batch 64 with ddp (2 points), and "two" (8, one of them among these): 7 are left.
TEST_F(Sweep, PointsAreCounted) {
  const Study study = parse_study(std::string(kStudy) +
                                      "skip:\n  - {training.micro_batch: 64, training.strategy: "
                                      "ddp}\n  - {same: two}\n",
                                  "s.yaml");
  EXPECT_EQ(study.count(), 7);
  int64_t left = 0;
  for (int64_t p = 0; p < study.size(); ++p) left += study.left_out(p) ? 0 : 1;
  EXPECT_EQ(left, 7);
}

void change(const std::string& path, const char* sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK) << sql;
  sqlite3_close(db);
}

TEST_F(Sweep, DamagedStoresAreRefused) {
  play(file("a.db"), {});
  int i = 0;
  for (const char* sql :
       {"UPDATE points SET labels = '[\"64\"]' WHERE point = 3",
        "UPDATE rows SET error = CAST(x'80ff' AS TEXT)", "UPDATE rows SET step_time_s = 'one'",
        "UPDATE rows SET step_time_s = 9e999", "UPDATE rows SET params = 1.5",
        "UPDATE meta SET value = '[]' WHERE key = 'axes'",
        "UPDATE meta SET value = '{}' WHERE key = 'scenarios'",
        "UPDATE meta SET value = 'x' WHERE key = 'total'", "DROP TABLE points",
        "DELETE FROM meta WHERE key = 'study'"}) {
    const std::string path = file("d" + std::to_string(i++) + ".db");
    std::filesystem::copy_file(file("a.db"), path);
    change(path, sql);
    EXPECT_NE(refusal([&] { SweepStore::read(path); }).find("damaged"), std::string::npos) << sql;
  }
}

std::string bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_F(Sweep, OtherFilesAreLeftAlone) {
  change(file("f.db"), "PRAGMA journal_mode = WAL; CREATE TABLE t (a)");
  const std::string before = bytes(file("f.db"));
  EXPECT_NE(refusal([&] { play(file("f.db"), {}); }).find("no store"), std::string::npos);
  EXPECT_EQ(bytes(file("f.db")), before);
  EXPECT_NE(refusal([&] { play(":memory:", {}); }).find("a file's name"), std::string::npos);
  EXPECT_NE(refusal([&] { SweepStore::read(std::string(300, 'x')); }).find("cannot be read"),
            std::string::npos);
}

TEST_F(Sweep, MergesTouchNoOtherFile) {
  play(file("m.db.part"), {});
  const std::string before = bytes(file("m.db.part"));
  SweepStore::merge({file("m.db.part")}, file("m.db"));
  EXPECT_EQ(bytes(file("m.db.part")), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
  // Another figure of the same scenario, another version of the program.
  change(file("m.db"), "UPDATE rows SET mfu = 0.5");
  EXPECT_NE(refusal([&] {
              SweepStore::merge({file("m.db.part"), file("m.db")}, file("n.db"));
            }).find("says something else"),
            std::string::npos);
  change(file("m.db"), "UPDATE meta SET value = '0.0' WHERE key = 'version'");
  EXPECT_NE(refusal([&] {
              SweepStore::merge({file("m.db.part"), file("m.db")}, file("n.db"));
            }).find("of shardsim 0.0"),
            std::string::npos);
  EXPECT_NE(refusal([&] { play(file("m.db"), {}); }).find("of shardsim 0.0"), std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
}

SweepRow row(double step, Bytes peak, bool fits) {
  SweepRow r;
  r.step_time_s = step;
  r.tokens_per_s = 1 / step;
  r.peak_bytes = peak;
  r.fits = fits;
  return r;
}

// The header's: 2, 1, 4 s at 10, 20, 30 GiB, and a fourth of .5 s that does not fit.
StoredSweep four() {
  StoredSweep s;
  s.axes = {"a", "b"};
  const double steps[] = {2, 1, 4, .5};
  for (int i = 0; i < 4; ++i) {
    const std::string key = std::to_string(i);
    s.points.push_back({i, key, {i < 2 ? "x" : "y", i % 2 == 0 ? "p" : "q"}});
    SweepRow r = row(steps[i], (10 + 10 * i) * kGiB, i < 3);
    r.key = key;
    s.rows.emplace(key, r);
  }
  return s;
}

std::vector<int64_t> points(const std::vector<Answer>& answers) {
  std::vector<int64_t> out;
  for (const Answer& a : answers) out.push_back(a.point->point);
  return out;
}

TEST(SweepQuery, BestParetoAndAxes) {
  const StoredSweep s = four();
  EXPECT_EQ(points(ranked(s, {})), (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(points(ranked(s, {Objective::step_time, {false, {}}})),
            (std::vector<int64_t>{3, 1, 0, 2}));
  EXPECT_EQ(points(ranked(s, {Objective::peak_memory, {}})), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(points(pareto(s, {})), (std::vector<int64_t>{1, 0}));
  // a: best of x is 1, of y 4: 300 % apart. b: p has 2 and 4, q has 1: 100 %.
  const std::vector<AxisEffect> axes = sensitivity(s, {});
  EXPECT_EQ(axes[0].axis, "a");
  EXPECT_DOUBLE_EQ(axes[0].spread, 3);
  EXPECT_EQ(axes[1].axis, "b");
  EXPECT_DOUBLE_EQ(axes[1].spread, 1);
  EXPECT_EQ(axes[1].places[0].points, 2);
  EXPECT_EQ(refusal([&] {
              ranked(s, {Objective::cost, {}});
            }),
            "--objective cost: no scenario of this sweep states a price");
}

// At most 3 s leaves the first two; at least 11 GiB of these the second. A figure that is not known
// excludes.
TEST(SweepQuery, RequirementsExcludeAndSayWhy) {
  const StoredSweep s = four();
  const Requirements fast{true, {{"step_time_s", true, 3, "3 s"}}};
  EXPECT_EQ(points(ranked(s, {Objective::step_time, fast})), (std::vector<int64_t>{1, 0}));
  Requirements large = fast;
  large.bounds.push_back({"peak_bytes", false, static_cast<double>(11 * kGiB), "11 GiB"});
  EXPECT_EQ(points(pareto(s, {Objective::step_time, large})), (std::vector<int64_t>{1}));
  EXPECT_EQ(why_excluded(large, s.rows.at("0")), "peak_bytes is not at least 11 GiB");
  EXPECT_EQ(why_excluded(large, s.rows.at("1")), "");
  EXPECT_EQ(why_excluded(large, s.rows.at("2")), "step_time_s is not at most 3 s");
  EXPECT_EQ(why_excluded(large, s.rows.at("3")), "does not fit in memory");
  EXPECT_EQ(why_excluded({true, {{"budget_hours", true, 1, "1"}}}, s.rows.at("0")),
            "budget_hours is not known");
}

// What is required is no part of the study that a store is of: it may change, and the rows stay.
TEST_F(Sweep, RequirementsMayChange) {
  play(file("a.db"), {});
  const Study strict =
      parse_study(std::string(kStudy) + "require: {step_time_s: {at_most: 1 us}}\n", "s.yaml");
  {
    SweepStore store(file("a.db"), strict);
    EXPECT_EQ(sweep(strict, store, {}).played, 0);
  }
  const StoredSweep s = SweepStore::read(file("a.db"));
  ASSERT_EQ(s.require.bounds.size(), 1U);
  EXPECT_DOUBLE_EQ(s.require.bounds[0].value, 1e-6);
  EXPECT_TRUE(ranked(s, {Objective::step_time, s.require}).empty());
  EXPECT_NE(sweep_csv(s, s.require).find(",step_time_s is not at most 1 us,"), std::string::npos);
}

}  // namespace
}  // namespace shardsim
