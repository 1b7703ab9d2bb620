// What a training takes, by hand.
#include "sim/report/planning.h"

#include <gtest/gtest.h>

namespace shardsim {
namespace {

// 8 GPUs, 8,192 tokens each in a step of 2 s: 32,768 tokens/s. 1e12 tokens are 1e12/65,536 = 15,258,789.06
// steps and 30,517,578.125 s = 8,477.105 hours = 353.213 days, 67,816.84 GPU-hours; at 2.5 each 169,542.1.
TEST(Planning, ByHand) {
  const std::optional<Planning> p = plan_tokens(1'000'000'000'000, 8192, 2, 8, 2.5);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->steps, 15'258'790);
  EXPECT_NEAR(p->hours, 8477.105, 1e-3);
  EXPECT_NEAR(p->days(), 353.213, 1e-3);
  EXPECT_NEAR(p->gpu_hours, 67816.84, 1e-2);
  ASSERT_TRUE(p->cost());
  EXPECT_NEAR(*p->cost(), 169542.1, 0.1);
}

// Llama 3 8B's 15e12 tokens, of which its model card says 1.3e6 hours of H100: at the published rate
// of 15e12/(1.3e6 x 3600) = 3,205 tokens a second and GPU.
TEST(Planning, ModelCard) {
  const double rate = 3205.128205;
  const std::optional<Planning> p = plan_tokens(15'000'000'000'000, 8192, 8192 / rate, 16'384, 0);
  ASSERT_TRUE(p);
  EXPECT_NEAR(p->gpu_hours, 1.3e6, 1);
  EXPECT_FALSE(p->cost());
}

TEST(Planning, StepsAreRoundedUp) {
  EXPECT_EQ(plan_tokens(65'536, 8192, 2, 8, 0)->steps, 1);
  EXPECT_EQ(plan_tokens(65'537, 8192, 2, 8, 0)->steps, 2);
  EXPECT_EQ(plan_tokens(1, 8192, 2, 8, 0)->steps, 1);
  EXPECT_EQ(plan_tokens(1'000'000'000'000'000, 1, 1e-9, 1, 0)->steps, 1'000'000'000'000'000);
}

TEST(Planning, NothingIsPlannedOrNoStepEnded) {
  EXPECT_FALSE(plan_tokens(0, 8192, 2, 8, 0));
  EXPECT_FALSE(plan_tokens(10, 8192, 0, 8, 0));
}

}  // namespace
}  // namespace shardsim
