// Time and bytes. Time is a whole number of picoseconds, bytes a whole number: nothing in a schedule
// or a trace is a float, so results repeat bit for bit.
// Worked number: Time::us(10) + Time::ns(500) is 10,500,000 ps; as_us() gives 10.5.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

namespace shardsim {

using Bytes = int64_t;

struct Time {
  int64_t ps = 0;

  static constexpr Time ns(int64_t n) { return {n * 1000}; }
  static constexpr Time us(int64_t n) { return {n * 1'000'000}; }
  // The nearest picosecond; halves away from zero.
  static Time from_us(double us) { return {std::llround(us * 1e6)}; }
  static constexpr Time max() { return {INT64_MAX / 4}; }

  constexpr double as_us() const { return static_cast<double>(ps) * 1e-6; }
  constexpr double as_s() const { return static_cast<double>(ps) * 1e-12; }

  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads a defaulted comparison
  friend constexpr auto operator<=>(Time, Time) = default;
  friend constexpr Time operator+(Time a, Time b) { return {a.ps + b.ps}; }
  friend constexpr Time operator-(Time a, Time b) { return {a.ps - b.ps}; }
  constexpr Time& operator+=(Time b) {
    ps += b.ps;
    return *this;
  }
};

inline constexpr Bytes kKiB = 1024;
inline constexpr Bytes kMiB = 1024 * kKiB;
inline constexpr Bytes kGiB = 1024 * kMiB;

// Blocks of the caching allocator are multiples of 512 bytes (kMinBlockSize, c10/cuda/
// CUDACachingAllocator.cpp). round_block(1) = 512, round_block(1024) = 1024.
inline constexpr Bytes kBlock = 512;
constexpr Bytes round_block(Bytes n) { return n <= 0 ? 0 : (n + kBlock - 1) / kBlock * kBlock; }

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace shardsim
