#include "sim/base/quantity.h"

#include <gtest/gtest.h>

namespace shardsim {
namespace {

TEST(Quantity, Bytes) {
  EXPECT_EQ(parse_bytes("80 GiB").value, 85'899'345'920);  // 80 * 2^30
  EXPECT_EQ(parse_bytes("80GB").value, 80'000'000'000);
  EXPECT_EQ(parse_bytes("512").value, 512);
  EXPECT_EQ(parse_bytes("4K").value, 4096);
  EXPECT_EQ(parse_bytes("1.5 GiB").value, 1'610'612'736);  // 3 * 2^29
  EXPECT_EQ(parse_bytes("1.1 GB").value, 1'100'000'000);
  EXPECT_EQ(parse_bytes("0.1 B").value, 0);
  EXPECT_EQ(parse_bytes("0.5 B").value, 1);
  EXPECT_EQ(parse_bytes("-1 KiB").value, -1024);
  EXPECT_EQ(parse_bytes("8 PB").value, 8'000'000'000'000'000);
  EXPECT_EQ(parse_bytes("10 PB").problem, "is too large");
  EXPECT_EQ(parse_bytes("9 EB").problem,
            "has an unknown unit; known are B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB");
  EXPECT_FALSE(parse_bytes("80 gib").ok());
  EXPECT_FALSE(parse_bytes("80 Gb").ok());
}

TEST(Quantity, Rates) {
  EXPECT_DOUBLE_EQ(parse_quantity("400 Gb/s", Dimension::rate).value, 50);
  EXPECT_DOUBLE_EQ(parse_quantity("400 Gbps", Dimension::rate).value, 50);
  EXPECT_DOUBLE_EQ(parse_quantity("3.35 TB/s", Dimension::rate).value, 3350);
  EXPECT_DOUBLE_EQ(parse_quantity("450", Dimension::rate).value, 450);
  EXPECT_DOUBLE_EQ(parse_quantity("1 GiB/s", Dimension::rate).value, 1.073741824);
  EXPECT_FALSE(parse_quantity("400 GHz", Dimension::rate).ok());
}

TEST(Quantity, TimesAndFlops) {
  EXPECT_DOUBLE_EQ(parse_quantity("25 us", Dimension::time).value, 25);
  EXPECT_DOUBLE_EQ(parse_quantity("25 \xC2\xB5s", Dimension::time).value, 25);
  EXPECT_DOUBLE_EQ(parse_quantity("0.025 ms", Dimension::time).value, 25);
  EXPECT_DOUBLE_EQ(parse_quantity("2 min", Dimension::time).value, 120e6);
  EXPECT_DOUBLE_EQ(parse_quantity("7.5", Dimension::time).value, 7.5);
  EXPECT_DOUBLE_EQ(parse_quantity("989 TFLOPS", Dimension::flops).value, 989);
  EXPECT_DOUBLE_EQ(parse_quantity("1.98 PFLOP/s", Dimension::flops).value, 1980);
}

TEST(Quantity, WholeNumbers) {
  EXPECT_EQ(parse_whole("8192").value, 8192);
  EXPECT_EQ(parse_whole("0").value, 0);
  EXPECT_EQ(parse_whole("-1").value, -1);
  EXPECT_EQ(parse_whole("1e9").value, 1'000'000'000);
  EXPECT_EQ(parse_whole("4.0").value, 4);
  EXPECT_EQ(parse_whole("9223372036854775807").value, INT64_MAX);
  EXPECT_EQ(parse_whole("9223372036854775808").problem, "is too large");
  EXPECT_EQ(parse_whole("1e19").problem, "is too large");
  EXPECT_EQ(parse_whole("2.5").problem, "is not a whole number");
  EXPECT_EQ(parse_whole("010").problem, "starts with a zero (octal in YAML)");
}

TEST(Quantity, NotNumbers) {
  for (const char* text :
       {"",      " ",  "-",  "nan", ".nan", "NaN", "inf", ".inf", "-.inf", "0x10", "1_000",
        "1,000", ".5", "5.", "+5",  "1e",   "1e+", "two", "1 2",  "--1",   "1\n",  "\xff"}) {
    EXPECT_EQ(parse_decimal(text).problem, "is not a number") << text;
    EXPECT_FALSE(parse_whole(text).ok()) << text;
    EXPECT_FALSE(parse_bytes(text).ok()) << text;
  }
  EXPECT_FALSE(parse_decimal("1e400").ok());
  EXPECT_FALSE(parse_decimal("1e-400").ok());
  EXPECT_FALSE(parse_quantity("1e308 PFLOPS", Dimension::flops).ok());
  EXPECT_FALSE(parse_bytes(std::string("1\0B", 3)).ok());
}

TEST(Quantity, Format) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(85'899'345'920), "80.00 GiB");
  EXPECT_EQ(format_bytes(-1536), "-1.50 KiB");
}

}  // namespace
}  // namespace shardsim
