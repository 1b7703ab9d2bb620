#include "sim/memory/allocator_settings.h"

#include <gtest/gtest.h>

#include <string>

#include "sim/base/error.h"

namespace shardsim {
namespace {

std::string problem(const std::string& text) {
  try {
    parse_allocator_settings(text);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

// 512-byte multiples, at least one (kMinBlockSize).
TEST(AllocatorSettings, RoundsTo512) {
  const AllocatorSettings s;
  EXPECT_EQ(s.round(1), 512);
  EXPECT_EQ(s.round(512), 512);
  EXPECT_EQ(s.round(513), 1024);
  EXPECT_EQ(s.round(kMiB + 1), kMiB + 512);
}

// Recordings pool_thresholds and large_segment: neither limit moves with large_segment_size_mb.
TEST(AllocatorSettings, SegmentSizes) {
  AllocatorSettings s;
  EXPECT_EQ(s.segment(512), 2 * kMiB);
  EXPECT_EQ(s.segment(kMiB), 2 * kMiB);
  EXPECT_EQ(s.segment(kMiB + 512), 20 * kMiB);
  EXPECT_EQ(s.segment(10 * kMiB - 512), 20 * kMiB);
  EXPECT_EQ(s.segment(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(s.segment(10 * kMiB + 512), 12 * kMiB);
  s = parse_allocator_settings("large_segment_size_mb:64");
  EXPECT_EQ(s.segment(10 * kMiB - 512), 64 * kMiB);
  EXPECT_EQ(s.segment(10 * kMiB), 10 * kMiB);
}

// 4 divisions: between 2 MiB and 4 MiB the steps are 512 KiB; 2100 B lies between 2048 and 4096 and
// goes up by 512; 2048 = 512 x 4 is not above the limit, a power of two stays.
TEST(AllocatorSettings, RoundupDivisions) {
  const AllocatorSettings s = parse_allocator_settings("roundup_power2_divisions:4");
  EXPECT_EQ(s.round(2000), 2048);
  EXPECT_EQ(s.round(2048), 2048);
  EXPECT_EQ(s.round(2100), 2560);
  EXPECT_EQ(s.round(2 * kMiB), 2 * kMiB);
  EXPECT_EQ(s.round(2 * kMiB + 1), 2 * kMiB + 512 * kKiB);
  EXPECT_EQ(s.round(19 * kMiB), 20 * kMiB);
}

// The list's first entry also holds below it, > above the last; recording roundup_list.
TEST(AllocatorSettings, RoundupList) {
  const AllocatorSettings s =
      parse_allocator_settings("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
  EXPECT_EQ(s.roundup_divisions[0], 1);
  EXPECT_EQ(s.roundup_divisions[8], 1);
  EXPECT_EQ(s.roundup_divisions[9], 2);
  EXPECT_EQ(s.roundup_divisions[10], 4);
  EXPECT_EQ(s.roundup_divisions[11], 8);
  EXPECT_EQ(s.roundup_divisions[15], 8);
  EXPECT_EQ(s.round(600 * kMiB), 768 * kMiB);        // 512..1024 in halves
  EXPECT_EQ(s.round(1100 * kMiB), 1280 * kMiB);      // 1024..2048 in quarters
  EXPECT_EQ(s.round(3 * kMiB + 1), 3 * kMiB + 512);  // one division: as without
  // A list that begins with > leaves the first slot alone (std::fill from last_index + 1).
  EXPECT_EQ(parse_allocator_settings("roundup_power2_divisions:[>:2]").roundup_divisions[0], 0);
}

TEST(AllocatorSettings, ReadsAllOptions) {
  const AllocatorSettings s = parse_allocator_settings(
      " max_split_size_mb : 64, max_non_split_rounding_mb:30,garbage_collection_threshold:.5,"
      "expandable_segments:True,per_process_memory_fraction:0.25,backend:native,"
      "pinned_use_background_threads:True,expandable_segments_reserve_by_class:[a:0.5,b:1G]");
  EXPECT_EQ(s.max_split, 64 * kMiB);
  EXPECT_EQ(s.max_non_split_rounding, 30 * kMiB);
  EXPECT_EQ(s.gc_threshold, 0.5);
  EXPECT_TRUE(s.expandable);
  EXPECT_EQ(s.memory_fraction, 0.25);
  EXPECT_EQ(parse_allocator_settings(""), AllocatorSettings());
}

// Seen on 2.15: an unnamed max_non_split_rounding_mb is large_segment_size_mb, in whatever order;
// recordings max_non_split_default_*.
TEST(AllocatorSettings, NonSplitRoundingFollowsTheLargeSegment) {
  EXPECT_EQ(parse_allocator_settings("max_split_size_mb:128,large_segment_size_mb:64")
                .max_non_split_rounding,
            64 * kMiB);
}

// Seen on 2.15 with settings changed while running: these fall back, those stay.
TEST(AllocatorSettings, ChangesWhileRunning) {
  const AllocatorSettings first = parse_allocator_settings(
      "max_split_size_mb:128,max_non_split_rounding_mb:30,roundup_power2_divisions:4,"
      "garbage_collection_threshold:0.5,expandable_segments:True,large_segment_size_mb:24");
  const AllocatorSettings s = parse_allocator_settings("", first);
  EXPECT_EQ(s.max_split, INT64_MAX);
  EXPECT_FALSE(s.roundup);
  EXPECT_EQ(s.gc_threshold, 0);
  EXPECT_EQ(s.max_non_split_rounding, 24 * kMiB);
  EXPECT_EQ(s.large_segment, 24 * kMiB);
  EXPECT_TRUE(s.expandable);
}

// What PyTorch 2.15 refuses, and what it would do that is not simulated.
TEST(AllocatorSettings, Refuses) {
  EXPECT_NE(problem("max_split_size_mb:19").find("at least 20"), std::string::npos);
  EXPECT_NE(problem("large_segment_size_mb:64,max_split_size_mb:40").find("at least 64"),
            std::string::npos);
  EXPECT_NE(problem("large_segment_size_mb:10").find("at least 11"), std::string::npos);
  EXPECT_NE(problem("garbage_collection_threshold:1.0"), "");
  EXPECT_NE(problem("per_process_memory_fraction:1.5"), "");
  EXPECT_NE(problem("roundup_power2_divisions:3"), "");
  EXPECT_NE(problem("roundup_power2_divisions:0"), "");
  EXPECT_NE(problem("roundup_power2_divisions:[300:2]"), "");
  EXPECT_NE(problem("expandable_segments:true"), "");
  EXPECT_NE(problem("max_split_size_mb=40").find("there is no option"), std::string::npos);
  EXPECT_NE(problem("backend:cudaMallocAsync").find("not simulated"), std::string::npos);
  EXPECT_NE(problem("throw_on_cudamalloc_oom:True").find("not simulated"), std::string::npos);
  EXPECT_EQ(problem("expandable_segments:True,"), "");
}

}  // namespace
}  // namespace shardsim
