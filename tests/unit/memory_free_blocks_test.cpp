#include "sim/memory/free_blocks.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace shardsim {
namespace {

TEST(FreeBlocks, SmallestThenLowest) {
  FreeBlocks free;
  free.insert(20 * kMiB, 100, 1);
  free.insert(20 * kMiB, 50, 2);
  free.insert(21 * kMiB - 512, 10, 3);  // the same bin as 20 MiB
  free.insert(64 * kMiB, 5, 4);
  EXPECT_EQ(free.at(free.lower_bound(1)).block, 2U);
  EXPECT_EQ(free.at(free.lower_bound(20 * kMiB + 512)).block, 3U);
  EXPECT_EQ(free.at(free.lower_bound(21 * kMiB)).block, 4U);
  EXPECT_FALSE(free.lower_bound(64 * kMiB + 512).valid());
  free.erase(20 * kMiB, 50);
  EXPECT_EQ(free.at(free.lower_bound(1)).block, 1U);
}

// Against std::set under random changes: bins of many equal sizes, and sizes beyond the last bin.
TEST(FreeBlocks, LikeASet) {
  std::mt19937 random(7);
  FreeBlocks free;
  std::set<std::pair<Bytes, Bytes>> set;
  for (int i = 0; i < 200000; ++i) {
    const int kind = static_cast<int>(random() % 4);
    Bytes size = 512 * (1 + static_cast<Bytes>(random() % 40));
    if (kind == 1) size = 512 * (1 + static_cast<Bytes>(random() % 4000000));
    if (kind == 2) size = 20 * kMiB;
    if (kind == 3)
      size = (Bytes{1} << (30 + random() % 20)) + 512 * static_cast<Bytes>(random() % 3);
    if (random() % 2 == 0 || set.empty()) {
      const Bytes address = 512 * static_cast<Bytes>(random() % 1000000);
      if (set.emplace(size, address).second) free.insert(size, address, 0);
    } else {
      auto it = set.lower_bound({size, 0});
      if (it == set.end()) it = set.begin();
      free.erase(it->first, it->second);
      set.erase(it);
    }
    const auto expected = set.lower_bound({size, -1});
    const FreeBlocks::Cursor c = free.lower_bound(size);
    ASSERT_EQ(c.valid(), expected != set.end());
    if (c.valid()) {
      ASSERT_EQ(free.at(c).size, expected->first);
      ASSERT_EQ(free.at(c).address, expected->second);
    }
    const FreeBlocks::Cursor before = free.previous(c);
    ASSERT_EQ(before.valid(), expected != set.begin());
    if (before.valid()) {
      ASSERT_EQ(free.at(before).address, std::prev(expected)->second);
    }
    if (i % 5000 != 0) continue;
    auto it = set.begin();
    for (FreeBlocks::Cursor at = free.first(); at.valid(); at = free.next(at), ++it) {
      ASSERT_NE(it, set.end());
      ASSERT_EQ(free.at(at).size, it->first);
      ASSERT_EQ(free.at(at).address, it->second);
    }
    ASSERT_EQ(it, set.end());
  }
}

}  // namespace
}  // namespace shardsim
