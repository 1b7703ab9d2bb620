#include "sim/study/memory_replay.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/study/pickle.h"

namespace shardsim {
namespace {

namespace fs = std::filesystem;

const std::string kTraces = SHARDSIM_SOURCE_DIR "/tests/recordings/allocator/traces/";

MemoryReplay checked(const std::string& path) {
  const MemoryTrace trace = read_memory_trace(path);
  EXPECT_TRUE(trace.left_out.empty());
  MemoryReplayOptions options;
  options.settings = trace.settings;
  options.device = trace.device.value();
  options.check = true;
  return replay_memory(trace, options);
}

void expect_equal(const std::string& path) {
  SCOPED_TRACE(path);
  const MemoryReplay r = checked(path);
  EXPECT_TRUE(r.check->equal(r.reserved_peak))
      << (r.check->differences.empty() ? "the reserved peak" : r.check->differences.front());
}

// Every buffer where it was recorded, every segment at its row, and the same peak of reserved bytes.
TEST(MemoryReplay, TrainingHistories) {
  expect_equal(kTraces + "fsdp2_basic_bf16.json");
  expect_equal(kTraces + "fsdp1_full_shard_no_limiter.json");  // recorded streams
  expect_equal(kTraces + "ddp_bf16_compress_hook.json");
  expect_equal(kTraces + "zero_ds_stage3_no_overlap.json");  // empty_cache
}

// In `tied` two buffers of 8 KiB in segment -1 are freed in an order that rows do not tell: its
// buffers are input, all others are checked.
TEST(MemoryReplay, TheSegmentBeforeTheHistory) {
  const MemoryReplay r = checked(kTraces + "fsdp2_tied.json");
  EXPECT_TRUE(r.check->equal(r.reserved_peak));
  EXPECT_GT(r.check->given, 0);
  EXPECT_LT(r.check->given, r.check->allocs / 2);
  EXPECT_EQ(checked(kTraces + "fsdp2_basic_bf16.json").check->given, 0);
}

// All there are beside the project: 412 histories, 214,391 buffers.
TEST(MemoryReplay, AllBesideTheProject) {
  for (const char* folder : {"fsdp2", "fsdp1", "ddp", "zero", "random", "compiled", "memory",
                             "pytorch-2.7/fsdp2", "pytorch-2.7/fsdp1", "pytorch-2.7/ddp"}) {
    const std::string path = std::string(SHARDSIM_SOURCE_DIR "/../shared/oracle/") + folder;
    if (!fs::is_directory(path)) continue;
    for (const auto& e : fs::directory_iterator(path)) {
      if (e.path().extension() != ".json" || e.path().filename() == "cases.json" ||
          e.path().filename() == "operators.json")
        continue;
      try {
        expect_equal(e.path().string());
      } catch (const Error& error) {  // a recording that keeps no history
        EXPECT_NE(std::string(error.what()).find("keeps no history"), std::string::npos);
      }
    }
  }
}

// The small program of the snapshot reserved 274,726,912 B at its peak: 20 MiB for three buffers, 40
// and 2 from before, 20, 14, 70 and 96 MiB.
TEST(MemoryReplay, Snapshot) {
  const MemoryTrace t = read_memory_trace(kTraces + "snapshot.pickle");
  EXPECT_EQ(t.kind, "snapshot");
  EXPECT_EQ(t.before, 3U);
  EXPECT_EQ(t.reserved_peak, 274726912);
  MemoryReplayOptions options;
  options.device = {1024 * kGiB, 0};
  const MemoryReplay r = replay_memory(t, options);
  EXPECT_EQ(r.reserved_peak, 274726912);
  EXPECT_EQ(r.peak_free_whole, 54 * kMiB);  // 40 from before, 14 of the largest temporary
  EXPECT_EQ(r.reserved_peak - r.peak_active, r.peak_free_split + r.peak_free_whole);
  ASSERT_FALSE(r.free_blocks.empty());
  EXPECT_EQ(r.free_blocks[0].size, 40 * kMiB);
  EXPECT_TRUE(r.free_blocks[0].whole);
  EXPECT_EQ(t.buffers[r.free_blocks[0].left_by].origin, "before the history");
  EXPECT_EQ(t.buffers[r.free_blocks[1].left_by].origin, "hidden model.py:2 < forward model.py:7");
}

TEST(MemoryReplay, OtherSettings) {
  const MemoryTrace t = read_memory_trace(kTraces + "snapshot.pickle");
  MemoryReplayOptions options;
  options.settings = parse_allocator_settings("expandable_segments:True");
  options.device = {1024 * kGiB, 0};
  const MemoryReplay r = replay_memory(t, options);
  EXPECT_EQ(r.reserved_peak % (2 * kMiB), 0);
  EXPECT_EQ(r.peak_free_whole, 0);  // one range each for the pools
  options.device = {700 * kMiB, 500 * kMiB};
  const MemoryReplay small = replay_memory(t, options);
  ASSERT_TRUE(small.oom_row.has_value());
  EXPECT_EQ(small.oom.expandable, true);
}

ValueTree pickled(const std::vector<int>& bytes) {
  std::string text;
  for (const int b : bytes) text += static_cast<char>(b);
  return read_pickle(text, "test.pickle");
}

// One clear error, or rows that are counted; never a crash.
TEST(MemoryReplay, NonsenseIsCountedOrRefused) {
  using nlohmann::json;
  const auto recorded = [](const json& rows, const json& environment = json::object()) {
    return recorded_memory_trace({{"environment", environment}, {"allocator", rows}}, "f.json");
  };
  for (const char* gib : {"", "x", "1e999", "-1"})
    EXPECT_THROW(recorded(json::array(), {{"FAKE_MEM_GIB", gib}}), Error) << gib;
  EXPECT_THROW(recorded(5), Error);
  EXPECT_THROW(recorded({{"alloc"}}), Error);
  EXPECT_THROW(recorded({{"alloc", 1 << 20, 0, 512, 7}}), Error);
  EXPECT_THROW(recorded({{"alloc", INT64_MAX, 0, 512, "s0"}}), Error);
  const json rows = {{"alloc", 0, 0, 0, "s0"},
                     {"alloc", 0, 512, 1.5, "s0"},
                     {"alloc", 0, 512, -512, "s0"},
                     {"alloc", 0, 512, int64_t{1} << 62, "s0"},
                     {"alloc", 0, 512, UINT64_MAX, "s0"},
                     {"alloc", 0, 512, "many", "s0"},
                     {"free_requested", 0, 512, 512, "s0"}};
  MemoryTrace t = recorded(rows);
  EXPECT_EQ(t.rows.size(), 1u);
  EXPECT_EQ(t.left_out.at("a size that is no whole number from 0 to 1 PiB"), 5);
  EXPECT_EQ(t.left_out.at("free_requested of nothing that was allocated"), 1);
  MemoryReplayOptions options;
  EXPECT_EQ(replay_memory(t, options).allocated_peak, 0);  // 0 bytes take no block
  options.check = true;
  EXPECT_EQ(replay_memory(t, options).check->allocs, 1);
  options.check = false;

  const std::string text = R"({"device_traces": [[
    {"action": "alloc", "addr": 4096, "size": 0, "stream": 0},
    {"action": "alloc", "addr": 8192, "size": "many", "stream": 0},
    {"action": "alloc", "addr": 8192, "size": 1.5, "stream": "x"},
    {"action": "segment_map", "addr": 1e300, "size": 4611686018427387904},
    {"action": "segment_map", "addr": [], "size": 1e300},
    {"action": "free_requested", "addr": 4096, "size": -5}, 7, null]],
    "segments": [{"device": 0, "address": 0, "total_size": 1e300,
                  "blocks": [{"size": -1, "state": "active_allocated"}, 5]}]})";
  t = snapshot_memory_trace(read_json_tree(text, "f.json"), "f.json");
  EXPECT_EQ(t.rows.size(), 1u);
  EXPECT_GE(t.left_out.at("a size that is no whole number from 0 to 1 PiB"), 5);
  replay_memory(t, options);
  EXPECT_THROW(read_memory_trace(SHARDSIM_SOURCE_DIR "/tests"), Error);
}

// {"a": [1, -2, 2**33], "b": None, "c": 0.5} as Python writes it, protocol 2.
TEST(Pickle, PlainValues) {
  const ValueTree t =
      pickled({0x80, 2,   '}', 'q',  0,    '(', 'X', 1,   0,   0,    0,   'a', 'q', 1, ']', 'q',
               2,    '(', 'K', 1,    'J',  254, 255, 255, 255, 0x8a, 5,   0,   0,   0, 0,   2,
               'e',  'X', 1,   0,    0,    0,   'b', 'q', 3,   'N',  'X', 1,   0,   0, 0,   'c',
               'q',  4,   'G', 0x3f, 0xe0, 0,   0,   0,   0,   0,    0,   'u', '.'});
  const auto list = t.list(t.get(t.root(), "a"));
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(t.integer(list[0]), 1);
  EXPECT_EQ(t.integer(list[1]), -2);
  EXPECT_EQ(t.integer(list[2]), int64_t{1} << 33);
  EXPECT_EQ(t.kind(t.get(t.root(), "b")), ValueTree::Kind::none);
  EXPECT_EQ(t.kind(t.get(t.root(), "c")), ValueTree::Kind::real);
}

// A list named twice is one value (MEMOIZE, BINGET), as frames are in a snapshot.
TEST(Pickle, SharedValues) {
  const ValueTree t = pickled({0x80, 4, ']', 0x94, '(', ']', 0x94, 'K', 7, 'a', 'h', 1, 'e', '.'});
  const auto list = t.list(t.root());
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0], list[1]);
}

TEST(Pickle, Refuses) {
  EXPECT_THROW(pickled({0x80, 2, 'c', 'o', 's', '\n', 's', '\n', '.'}), Error);  // a class
  EXPECT_THROW(pickled({0x80, 2, ']'}), Error);                                  // ends early
  EXPECT_THROW(pickled({0x80, 2, 'a', '.'}), Error);
  EXPECT_THROW(pickled({0x80, 2, 'h', 9, '.'}), Error);
  EXPECT_THROW(pickled({0x80, 2, 'u', '.'}), Error);
  EXPECT_THROW(pickled({0x80, 9, 'N', '.'}), Error);
  EXPECT_THROW(pickled({0x80, 2, 'X', 255, 255, 255, 127, 'a', '.'}), Error);
}

}  // namespace
}  // namespace shardsim
