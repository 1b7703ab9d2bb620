// Scripts of allocations, played on real PyTorch and here (tests/recordings/allocator), and the
// larger collection beside the project where it is there.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/study/allocator_script.h"

namespace shardsim {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> scripts(const std::string& folder) {
  std::vector<std::string> out;
  if (!fs::is_directory(folder)) return out;
  for (const auto& e : fs::directory_iterator(folder))
    if (e.path().extension() == ".json") out.push_back(e.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

nlohmann::json read(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

// Every row of 17 statistics, every block at the end, every out-of-memory text that was kept.
void equal(const std::string& path) {
  SCOPED_TRACE(path);
  const nlohmann::json file = read(path);
  const AllocatorConformance c = conform_allocator_script(file);
  EXPECT_EQ(c.skipped, "");
  EXPECT_EQ(c.allocator, true) << (c.differences.empty() ? "" : c.differences.front());
  EXPECT_EQ(c.allocated_error, 0.0);
  EXPECT_EQ(c.peak_error, 0.0);
  EXPECT_EQ(c.active_error, 0.0);
  EXPECT_EQ(c.reserved_error, 0.0);
  EXPECT_TRUE(c.oom_texts_equal || !file.contains("oom"));
}

TEST(AllocatorScripts, Kept) {
  const auto files = scripts(SHARDSIM_SOURCE_DIR "/tests/recordings/allocator");
  EXPECT_EQ(files.size(), 83U);  // 77 of the recordings, 6 of settings changed while running
  for (const std::string& path : files) equal(path);
}

TEST(AllocatorScripts, Beside) {
  for (const std::string& path : scripts(SHARDSIM_SOURCE_DIR "/../shared/oracle/allocator"))
    equal(path);
}

// 500 us of work on stream 1 hold the block over an alloc at 400 us, not over one at 500 us.
TEST(AllocatorScripts, VirtualTime) {
  const auto script = nlohmann::json::parse(R"([
    ["alloc", "a", 33554432, 0], ["record_stream", "a", 1], ["work", 1, 500], ["free", "a"],
    ["advance", 400], ["alloc", "b", 512, 0], ["advance", 100], ["alloc", "c", 512, 0]])");
  const ScriptRun run = play_allocator_script(script, {}, {});
  EXPECT_EQ(run.steps[5][1], 33554432 + 512);
  EXPECT_EQ(run.steps[7][1], 1024);
}

// What the check reads and what it does not: `steps` and `final` are the answer, not the input.
TEST(AllocatorScripts, FindsADifference) {
  nlohmann::json file = read(SHARDSIM_SOURCE_DIR "/tests/recordings/allocator/vector_15.json");
  file["steps"][2][0] = 1;
  const AllocatorConformance c = conform_allocator_script(file);
  EXPECT_EQ(c.allocator, false);
  ASSERT_FALSE(c.differences.empty());
  EXPECT_EQ(c.differences[0].rfind("allocator: steps [2]:", 0), 0U);
  file.erase("steps");
  file["final"][0]["blocks"][0][2] = "p";
  EXPECT_EQ(conform_allocator_script(file).allocator, false);
  file.erase("final");
  EXPECT_FALSE(conform_allocator_script(file).allocator.has_value());
}

// Neither a crash nor a skip: what cannot be read is an error.
TEST(AllocatorScripts, MalformedIsAnError) {
  using nlohmann::json;
  const json good = read(SHARDSIM_SOURCE_DIR "/tests/recordings/allocator/vector_15.json");
  const auto play = [&](const std::string& part, const json& value) {
    json file = good;
    file[json::json_pointer(part)] = value;
    return conform_allocator_script(file);
  };
  for (const json& script :
       {json(5), json("alloc"), json(nullptr), json{5}, json{json::array()}, json{{"alloc"}},
        json{{"alloc", "a", "many"}}, json{{"alloc", "a", 1.5}}, json{{"alloc", "a", -1}},
        json{{"alloc", "a", UINT64_MAX}}, json{{"alloc", "a", 512, -1}}, json{{"work", 1, -5}},
        json{{"work", 1, 1e30}}, json{{"free", 7}}, json{{"fraction", 2}}, json{{7, "a"}}})
    EXPECT_THROW(play("/script", script), Error) << script;
  for (const json& steps : {json(5), json{5}, json{{"x"}}, json{{1.5}}, json{{-1}}})
    EXPECT_THROW(play("/steps", steps), Error) << steps;
  for (const json& final : {json(5), json{5}, json{{{"segment", 0}}}})
    EXPECT_THROW(play("/final", final), Error) << final;
  for (const json& total : {json("x"), json(-1), json(1.5), json(int64_t{1} << 62)})
    EXPECT_THROW(play("/device_total", total), Error) << total;
  EXPECT_THROW(play("/environment", 5), Error);
  json file = good;
  file.erase("device_total");
  for (const char* gib : {"", "x", "1e999", "nan", "-1", "0"}) {
    file["environment"] = {{"FAKE_MEM_GIB", gib}};
    EXPECT_THROW(conform_allocator_script(file), Error) << gib;
  }
}

TEST(AllocatorScripts, UnknownStepsAreSkipped) {
  nlohmann::json file = read(SHARDSIM_SOURCE_DIR "/tests/recordings/allocator/vector_15.json");
  file["script"][0][0] = "teleport";
  EXPECT_NE(conform_allocator_script(file).skipped, "");
}

}  // namespace
}  // namespace shardsim
