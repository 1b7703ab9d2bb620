// DDP's buckets and ZeroRedundancyOptimizer's partition: vectors 36-38 and 40 of
// fsdp1-ddp-zero-runtime section 8, which are PyTorch's own answers.
#include <gtest/gtest.h>

#include "sim/plan/buckets.h"
#include "sim/plan/zero_partition.h"

namespace shardsim {
namespace {

std::vector<BucketTensor> registered(const std::vector<double>& mib) {
  std::vector<BucketTensor> out;
  for (uint32_t i = 0; i < mib.size(); ++i)
    out.push_back({i, static_cast<Bytes>(mib[i] * static_cast<double>(kMiB)), DType::fp32});
  return out;
}

// The gradients are ready in reversed order.
std::vector<BucketTensor> ready(const std::vector<double>& mib) {
  std::vector<BucketTensor> out = registered(mib);
  return {out.rbegin(), out.rend()};
}

DdpOptions unused() {
  DdpOptions o;
  o.find_unused_parameters = true;
  return o;
}

const std::vector<double> kSixTimesTen(6, 10);
const std::vector<double> kThreeSmall = {0.4, 0.4, 0.4, 10, 10, 10};

TEST(PlanBuckets, SixOfTenMebibytes) {  // 36
  EXPECT_EQ(initial_buckets(registered(kSixTimesTen), {}), (Buckets{{0, 1, 2, 3, 4, 5}}));
  EXPECT_EQ(initial_buckets(registered(kSixTimesTen), unused()), (Buckets{{4, 5}, {1, 2, 3}, {0}}));
  EXPECT_EQ(rebuilt_buckets(ready(kSixTimesTen), {}), (Buckets{{5}, {4, 3, 2}, {1, 0}}));
}

TEST(PlanBuckets, ThreeSmallOnes) {  // 37
  EXPECT_EQ(initial_buckets(registered(kThreeSmall), unused()), (Buckets{{3, 4, 5}, {0, 1, 2}}));
  EXPECT_EQ(rebuilt_buckets(ready(kThreeSmall), {}), (Buckets{{5}, {4, 3, 2, 1, 0}}));
  DdpOptions ten;
  ten.bucket_cap_mb = 10;  // in place of the first bucket's 1 MiB too
  EXPECT_EQ(rebuilt_buckets(ready(kThreeSmall), ten), (Buckets{{5}, {4}, {3}, {2, 1, 0}}));
}

TEST(PlanBuckets, OneThatOvershoots) {  // 38
  const std::vector<double> sizes = {
      4, 30, 512.0 / 1024, 256.0 / 1024, 256.0 / 1024, 100.0 / (1024 * 1024)};
  EXPECT_EQ(rebuilt_buckets(ready(sizes), {}), (Buckets{{5, 4, 3, 2}, {1}, {0}}));
}

// 1 MiB closes a bucket that reaches it, the 1 MiB of the last bucket stays behind: recorded as
// ddp_cap_list and ddp_cap_1mb_small_last_bucket, three blocks of two linears [1024, 1024] with bias.
TEST(PlanBuckets, ListsOfCapsAndTheSmallLastBucket) {
  std::vector<double> sizes;
  for (int i = 0; i < 6; ++i) sizes.insert(sizes.end(), {4, 4096.0 / (1024 * 1024)});
  DdpOptions list;
  list.bucket_cap_mb_list = {4, 8, 16};
  const auto bytes = [&](const Buckets& buckets) {
    std::vector<Bytes> out;
    for (const auto& b : buckets) {
      out.push_back(0);
      for (uint32_t i : b) out.back() += registered(sizes)[i].bytes;
    }
    return out;
  };
  EXPECT_EQ(bytes(initial_buckets(registered(sizes), list)),
            (std::vector<Bytes>{12599296, 8396800, 4194304}));
  EXPECT_EQ(bytes(rebuilt_buckets(ready(sizes), list)),
            (std::vector<Bytes>{4198400, 8396800, 12595200}));
  DdpOptions small;
  small.bucket_cap_mb = 1;
  small.small_last_bucket = true;
  EXPECT_EQ(bytes(rebuilt_buckets(ready(sizes), small)),
            (std::vector<Bytes>{4096, 4198400, 4198400, 4198400, 4198400, 4198400, 4194304}));
}

// Recorded as ddp_mixed_dtypes: the second of three blocks in bf16.
TEST(PlanBuckets, NeverMixTypes) {
  std::vector<BucketTensor> all;
  for (uint32_t i = 0; i < 12; ++i) {
    const bool narrow = i >= 4 && i < 8;
    const Bytes element = narrow ? 2 : 4;
    all.push_back(
        {i, (i % 2 == 0 ? 1024 * 1024 : 1024) * element, narrow ? DType::bf16 : DType::fp32});
  }
  EXPECT_EQ(initial_buckets(all, {}), (Buckets{{4, 5, 6, 7}, {0, 1, 2, 3, 8, 9, 10, 11}}));
  const std::vector<BucketTensor> order(all.rbegin(), all.rend());
  EXPECT_EQ(rebuilt_buckets(order, {}), (Buckets{{11, 10}, {7, 6}, {5, 4}, {9, 8, 3, 2, 1, 0}}));
}

TEST(PlanZeroPartition, LargestFirstToTheLeast) {  // 40
  using Parts = std::vector<std::vector<uint32_t>>;
  EXPECT_EQ(partition_parameters(std::vector<int64_t>{100, 40, 30, 30, 20, 10}, 2),
            (Parts{{0, 4}, {1, 2, 3, 5}}));
  EXPECT_EQ(partition_parameters(std::vector<int64_t>{7, 5, 4, 4, 3, 2}, 3),
            (Parts{{0, 5}, {1, 4}, {2, 3}}));
}

}  // namespace
}  // namespace shardsim
