// The factors of units against a hand's computation, and their file read back.
#include "sim/study/source_factors.h"

#include <gtest/gtest.h>

#include <cmath>

namespace shardsim {
namespace {

TEST(SourceFactors, ShrinkTheMedianByTheRowsThereAre) {
  FitOptions noise;
  noise.row_error = noise.shared_error = .025;
  SourceFactors factors;
  // Median .98; equal errors: w = 3/4; exp(.75 ln .98) = .98496.
  factors.learn("three", {std::log(.97), std::log(.99), std::log(.98)}, noise);
  EXPECT_NEAR(factors.find("three")->factor, .98496, 1e-5);
  EXPECT_EQ(factors.find("three")->rows, 3);
  // w = 1/2: the root of 1.21.
  factors.learn("one", {std::log(1.21)}, noise);
  EXPECT_NEAR(factors.find("one")->factor, 1.1, 1e-12);
  // The mean of the middle two logarithms, ln .9 + ln 1.6 = ln 1.44 halved: ln 1.2; w = 4/5.
  factors.learn("four", {std::log(.5), std::log(1.6), std::log(.9), std::log(9)}, noise);
  EXPECT_NEAR(factors.find("four")->factor, std::pow(1.2, .8), 1e-12);
  factors.learn("none", {}, noise);
  EXPECT_EQ(factors.find("none"), nullptr);
}

TEST(SourceFactors, ReadBackWhateverAUnitIsCalled) {
  const std::string names[] = {"a \"b\", c", "two\nlines", "back\\slash", "tab\t#: x", "no"};
  SourceFactors factors;
  for (const std::string& name : names) factors.learn(name, {std::log(1.21)}, {});
  const SourceFactors read = SourceFactors::parse(factors.yaml(), "sources.yaml");
  for (const std::string& name : names) {
    ASSERT_NE(read.find(name), nullptr) << name;
    EXPECT_NEAR(read.find(name)->factor, 1.1, 5e-5);
  }
}

}  // namespace
}  // namespace shardsim
