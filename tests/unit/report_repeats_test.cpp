#include "sim/report/repeats.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace shardsim {
namespace {

using Rows = std::vector<std::tuple<size_t, size_t, size_t>>;  // first, count, last

Rows folded(const std::string& rows) {
  Rows out;
  for (const Repeat& r :
       repeats(rows.size(), [&](size_t i, size_t j) { return rows[i] == rows[j]; }))
    out.emplace_back(r.first, r.count, r.last());
  return out;
}

TEST(Repeats, OfOneRow) { EXPECT_EQ(folded("abbbc"), (Rows{{0, 1, 0}, {1, 3, 3}, {4, 1, 4}})); }

TEST(Repeats, OfSeveralRows) {
  EXPECT_EQ(folded("abcbcbcd"), (Rows{{0, 1, 0}, {1, 3, 5}, {2, 3, 6}, {7, 1, 7}}));
}

// The layer q k v with k alike v is three rows, though k and v could be one.
TEST(Repeats, LayersComeBeforeWhatIsAlikeInThem) {
  EXPECT_EQ(folded("qkkqkk"), (Rows{{0, 2, 3}, {1, 2, 4}, {2, 2, 5}}));
  EXPECT_EQ(folded("qkk"), (Rows{{0, 1, 0}, {1, 2, 2}}));
}

TEST(Repeats, OfNothing) { EXPECT_EQ(folded(""), Rows{}); }

}  // namespace
}  // namespace shardsim
