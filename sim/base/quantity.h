// Numbers as people write them: "80 GiB", "400 Gb/s", "25 us", "1e9".
//
// A number is an optional minus, digits, an optional fraction and an optional exponent: -1, 0.5,
// 1e9, 2.5e-3. Refused: 010 (octal in YAML 1.1), 0x10, 1_000, .5, 5., +5, nan, inf, and what a
// double cannot hold (1e400, 1e-400).
// A whole number may have an exponent or a zero fraction (1e9, 4.0) if it stays exact: up to 2^53.
//
// A quantity is a number, optional spaces, a unit. Upper and lower case matter: b is bits, B bytes.
//   bytes   B; KB MB GB TB PB = 1000^n; KiB MiB GiB TiB PiB and K M G T P = 1024^n
//   rate    (bytes)/s; b/s Kb/s Mb/s Gb/s Tb/s and the same as ...bps, ...bit/s = bits, 1000^n
//   time    ps ns us (or the micro sign) ms s min h
//   flops   FLOPS GFLOPS TFLOPS PFLOPS, and the same as .../s with FLOP
// A number without a unit is in the unit that the key names; the caller says which.
// Bytes are rounded to the nearest whole byte, halves up, and must stay below 2^53 (9 PB).
// Worked numbers: "80 GiB" = 85,899,345,920 bytes; "400 Gb/s" = 50 GB/s; "0.025 ms" = 25 us.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/base/units.h"

namespace shardsim {

// A value, or why there is none: `problem` completes the sentence "'12 parsecs' ...".
template <class T>
struct Parsed {
  T value{};
  std::string problem;
  bool ok() const { return problem.empty(); }
};

enum class Dimension : uint8_t {
  bytes,  // in bytes
  rate,   // in 1e9 bytes a second
  time,   // in microseconds
  flops,  // in 1e12 operations a second
};

Parsed<double> parse_decimal(std::string_view text);
Parsed<int64_t> parse_whole(std::string_view text);

// In the unit written above. A bare number counts as `bare` of those units.
Parsed<double> parse_quantity(std::string_view text, Dimension dimension, double bare = 1);
Parsed<Bytes> parse_bytes(std::string_view text);

// The units a person may write, for messages: "B, KB, MB, ...".
std::string_view unit_names(Dimension dimension);

// For people: "85.9 GB" is never printed, 1024-based units only. format_bytes(1536) = "1.50 KiB",
// format_bytes(512) = "512 B".
std::string format_bytes(Bytes n);

}  // namespace shardsim
