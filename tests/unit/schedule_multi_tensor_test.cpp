// Launches of foreach kernels.
#include "sim/schedule/multi_tensor.h"

#include <gtest/gtest.h>

namespace shardsim {
namespace {

int64_t launches(const Behaviour& b, int lists, int64_t tensors, int64_t elements) {
  ForeachLaunches x(b, lists);
  for (int64_t i = 0; i < tensors; ++i) x.add(elements);
  return x.count();
}

// 2.7's limits as read in its MultiTensorApply.cuh; torch._foreach_norm launched this often on 2.7.1:
// 110 tensors in one kernel, 111 in two, 400 in four, 1000 in ten.
TEST(MultiTensor, LimitsOf27) {
  const Behaviour& b = *behaviour_of("2.7");
  EXPECT_EQ(launches(b, 1, 110, 10), 1);
  EXPECT_EQ(launches(b, 1, 111, 10), 2);
  EXPECT_EQ(launches(b, 1, 400, 10), 4);
  EXPECT_EQ(launches(b, 1, 1000, 10), 10);
  EXPECT_EQ(launches(b, 2, 65, 10), 2);
  // 320 chunks of 65,536 elements; a tensor cut in the middle goes on in the next launch.
  EXPECT_EQ(launches(b, 1, 1, 320 * 65'536), 1);
  EXPECT_EQ(launches(b, 1, 1, 320 * 65'536 + 1), 2);
  EXPECT_EQ(launches(b, 3, 2, 160 * 65'536 + 1), 2);
  EXPECT_EQ(launches(b, 1, 3, 0), 0);
}

// A block of Llama-3-8B on 8 ranks: 4 copy-in launches (cast and copy) in 2.7, 2 in 2.15 (recorded).
TEST(MultiTensor, CopyInOfABlock) {
  for (const auto& [release, count] : {std::pair{"2.7", 2}, std::pair{"2.15", 1}}) {
    ForeachLaunches x(*behaviour_of(release), 2);
    for (int64_t n : {4096 * 4096, 1024 * 4096, 1024 * 4096, 4096 * 4096, 14336 * 4096,
                      14336 * 4096, 14336 * 4096, 4096, 4096})
      x.add(n / 8);
    EXPECT_EQ(x.count(), count) << release;
  }
}

TEST(MultiTensor, Releases) {
  EXPECT_EQ(behaviour_of("2.6"), nullptr);
  EXPECT_FALSE(behaviour_of("2.15")->internal_streams);
  EXPECT_TRUE(behaviour_of("2.7")->internal_streams);
}

}  // namespace
}  // namespace shardsim
