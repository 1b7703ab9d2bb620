// The data of checked collectives.
#include "backends/replay/pattern.h"

#include <gtest/gtest.h>

#include <vector>

#include "backends/replay/elements.h"
#include "backends/replay/regions.h"

namespace shardsim {
namespace {

// IEEE 754: bf16 is the upper half of a float, 8 bits of mantissa with the hidden one; 257 lies halfway
// between 256 and 258 and goes to the even one. 2049 is the first whole number that fp16 has not.
TEST(Elements, RoundToEven) {
  EXPECT_EQ(Bf16::from(1.0F).bits, 0x3f80);
  EXPECT_EQ(Bf16::from(257.0F).value(), 256);
  EXPECT_EQ(Bf16::from(259.0F).value(), 260);
  EXPECT_EQ(Fp16::from(1.0F).bits, 0x3c00);
  EXPECT_EQ(Fp16::from(-2.0F).bits, 0xc000);
  EXPECT_EQ(Fp16::from(2049.0F).value(), 2048);
  EXPECT_EQ(Fp16::from(65504.0F).value(), 65504);
  EXPECT_EQ(Fp16::from(1e6F).bits, 0x7c00);
  EXPECT_EQ(Fp16{0x0001}.value(), std::ldexp(1.0F, -24));
}

// The largest sum of n numbers below the modulus is n (modulus - 1): bf16 holds whole numbers exactly
// up to 256.
TEST(Pattern, SumsStayExactInBf16) {
  for (int64_t ranks = 1; ranks <= 256; ++ranks)
    EXPECT_LE(ranks * (modulus(ranks) - 1), 256) << ranks;
}

TEST(Pattern, OneElementOffIsCounted) {
  for (DType type : {DType::fp32, DType::bf16, DType::fp16, DType::i64, DType::u8}) {
    Pattern p;
    p.dtype = type;
    p.elements = 100;
    p.parts = 3;
    p.ranks = 3;
    p.launch = 5;
    std::vector<char> data(static_cast<size_t>(p.bytes()));
    fill_pattern(data.data(), p);
    EXPECT_EQ(count_differences(data.data(), p), 0);
    data[static_cast<size_t>(150 * bytes_of(type) + bytes_of(type) - 1)] ^= 0x40;
    EXPECT_EQ(count_differences(data.data(), p), 1);
  }
}

// A shard that is out of place, of another rank or of an earlier launch holds other numbers: of a
// thousand elements hardly one in 16 is the same by chance.
TEST(Pattern, PlaceRankAndLaunchShow) {
  Pattern p;
  p.elements = 1000;
  p.ranks = 4;
  p.first = 1;
  p.launch = 7;
  std::vector<float> data(1000);
  fill_pattern(data.data(), p);
  for (auto change : {+[](Pattern& q) { q.offset = 1000; }, +[](Pattern& q) { q.first = 2; },
                      +[](Pattern& q) { q.launch = 8; }}) {
    Pattern q = p;
    change(q);
    EXPECT_GT(count_differences(data.data(), q), 800);
  }
}

// 1 + 2 ranks, by hand: what rank 1 of a reduce-scatter gets is the second half of both ranks' data.
TEST(Pattern, AScatterGetsItsPartOfTheSum) {
  Work w;
  w.kind = WorkKind::ReduceScatter;
  w.op = ReduceOp::sum;
  w.bytes = 64;
  const Membership rank1{0, 1, 2, 1};
  const Pattern sent = data_sent(w, rank1, 9), got = data_received(w, rank1, 9);
  EXPECT_EQ(sent.elements, 16);
  EXPECT_EQ(got.elements, 8);
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(pattern_at(got, i),
              pattern_value(8 + i, 0, 9, 2) + static_cast<double>(pattern_value(8 + i, 1, 9, 2)));
}

// 6 bytes in fp32 are no whole elements: they are moved as bytes.
TEST(Pattern, OddBytesAreMovedAsBytes) {
  Work w;
  w.kind = WorkKind::Broadcast;
  w.bytes = 6;
  EXPECT_EQ(data_sent(w, {0, 0, 2, 1}, 0).elements, 6);
  EXPECT_EQ(moved_as(w, 1), DType::u8);
}

}  // namespace
}  // namespace shardsim
