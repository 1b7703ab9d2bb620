#include "sim/base/spelling.h"

#include <gtest/gtest.h>

namespace shardsim {
namespace {

TEST(Spelling, Distance) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("micro_btach", "micro_batch"), 1);  // neighbours swapped
}

TEST(Spelling, Hints) {
  EXPECT_EQ(spelling_hint("polcy", {"policy", "every"}, "keys"), "did you mean 'policy'?");
  EXPECT_EQ(spelling_hint("colour", {"policy", "every"}, "keys"), "known keys: policy, every");
  EXPECT_EQ(spelling_hint("h100", {"a10g", "h100-pcie", "h100-sxm"}, "GPUs"),
            "GPUs with 'h100': h100-pcie, h100-sxm");
  EXPECT_EQ(spelling_hint(std::string(1000, 'x'), {"policy"}, "keys"), "known keys: policy");
}

}  // namespace
}  // namespace shardsim
