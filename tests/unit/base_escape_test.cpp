// Control characters: C0 and DEL are a byte, C1 (U+0080 to U+009F) two in UTF-8; CSI is U+009B.
#include "sim/base/escape.h"

#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace shardsim {
namespace {

TEST(Escape, NothingSteersATerminal) {
  EXPECT_EQ(printable("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(printable("a\nb\tc\rd\x7f"), "a\\x0ab\\x09c\\x0dd\\x7f");
  EXPECT_EQ(printable("a\nb\tc\rd", true), "a\nb\tc\\x0dd");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J"),
            "\\x9b2J");
  EXPECT_EQ(printable("M\xC3\xBCller \xC2\xA0"),
            "M\xC3\xBCller \xC2\xA0");  // no control characters
  EXPECT_EQ(printable("cut \xC2"), "cut \xC2");
}

// RIGHT-TO-LEFT OVERRIDE is E2 80 AE, LINE SEPARATOR E2 80 A8, FIRST STRONG ISOLATE E2 81 A8; EN DASH is
// E2 80 93 and stays.
TEST(Escape, NothingTurnsText) {
  EXPECT_EQ(printable("a\xE2\x80\xAE"
                      "b\xE2\x80\xA8\xE2\x81\xA8\xD8\x9C"),
            "a\\u202eb\\u2028\\u2068\\u061c");
  EXPECT_EQ(printable("1 \xE2\x80\x93 2"), "1 \xE2\x80\x93 2");
  EXPECT_EQ(printable("cut \xE2\x80"), "cut \xE2\x80");
}

TEST(Escape, JsonStrings) {
  EXPECT_EQ(escaped("a\"b\\\n"), "a\\\"b\\\\\\u000a");
  EXPECT_EQ(escaped("\x7f\xC2\x9B"), "\\u007f\\u009b");
}

TEST(Escape, AnErrorsFileToo) {
  EXPECT_EQ(Error("no\x1b", {"a\x1b[2J.yaml", 1, 2}).text(), "a\\x1b[2J.yaml:1:2: error: no\\x1b");
}

}  // namespace
}  // namespace shardsim
