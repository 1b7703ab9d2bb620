// Tables by RFC 4180; expected fields are written out by hand.
#include "sim/config/csv.h"

#include <gtest/gtest.h>

namespace shardsim {
namespace {

using Fields = std::vector<std::string>;

TEST(Csv, QuotesCommasAndLineBreaks) {
  const CsvTable t = parse_csv("a,b\r\n1,\"x, \"\"y\"\"\"\r\n\r\n\"two\nlines\",\n", "t.csv");
  EXPECT_EQ(t.header, (Fields{"a", "b"}));
  ASSERT_EQ(t.rows.size(), 2u);
  EXPECT_EQ(t.rows[0].fields, (Fields{"1", "x, \"y\""}));
  EXPECT_EQ(t.rows[0].line, 2);
  EXPECT_EQ(t.rows[1].fields, (Fields{"two\nlines", ""}));
  EXPECT_EQ(t.rows[1].line, 4);
}

TEST(Csv, MistakesHaveTheirLine) {
  const auto error = [](std::string_view text) -> std::string {
    try {
      parse_csv(text, "t.csv");
    } catch (const Error& e) {
      return e.text();
    }
    return "none";
  };
  EXPECT_EQ(error(""), "t.csv: error: the table is empty\n  hint: its first line names columns");
  EXPECT_EQ(error("a,b\n1\n"), "t.csv:2: error: expected 2 fields as in the header, got 1");
  EXPECT_EQ(error("a,a\n"), "t.csv:1: error: the column 'a' is there twice");
  EXPECT_EQ(error("a\n\"open\n"), "t.csv:2: error: a field in quotes is never closed");
  EXPECT_EQ(error("a\n\"x\"y\n"), "t.csv:2: error: text behind the closing quote of a field");
}

TEST(Csv, NumbersAreFinite) {
  const CsvTable t = parse_csv("x\n1.5\n\"\"\nnan\n1e999\n12 GB\n", "t.csv");
  EXPECT_EQ(number_of(t, t.rows[0], 0), 1.5);
  EXPECT_EQ(number_of(t, t.rows[1], 0), std::nullopt);
  for (size_t i = 2; i < 5; ++i) EXPECT_THROW(number_of(t, t.rows[i], 0), Error) << i;
}

TEST(Csv, AColumnThatIsNeededAndMissing) {
  const CsvTable t = parse_csv("a,b\n", "t.csv");
  EXPECT_EQ(t.need("b"), 1u);
  EXPECT_THROW(t.need("c"), Error);
}

}  // namespace
}  // namespace shardsim
