#include "sim/base/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>

namespace shardsim {
namespace {

constexpr double kExact = 9007199254740992.0;  // 2^53: whole numbers up to here are exact

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The length of the number that text starts with; 0 if it does not start with one.
size_t number_length(std::string_view text) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t from = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return i - from;
  };
  if (i < text.size() && text[i] == '-') ++i;
  const size_t first = i;
  const size_t whole = digits();
  if (whole == 0) return 0;
  if (whole > 1 && text[first] == '0') return 0;
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (digits() == 0) return 0;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    const size_t before = i++;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    if (digits() == 0) i = before;  // "5 e" is left to the unit
  }
  return i;
}

Parsed<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    return {0, "is outside the range of numbers (about 1e-308 to 1e308)"};
  if (error != std::errc() || end != text.data() + text.size()) return {0, "is not a number"};
  return {value, {}};
}

bool looks_octal(std::string_view text) {
  if (!text.empty() && text[0] == '-') text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && is_digit(text[1]);
}

struct UnitRow {
  std::string_view name;
  double factor;
};

constexpr std::array kBytes{
    UnitRow{"B", 1},       UnitRow{"KB", 1e3},       UnitRow{"MB", 1e6},
    UnitRow{"GB", 1e9},    UnitRow{"TB", 1e12},      UnitRow{"PB", 1e15},
    UnitRow{"KiB", 1024.}, UnitRow{"MiB", 1048576.}, UnitRow{"GiB", 1073741824.},
    UnitRow{"K", 1024.},   UnitRow{"M", 1048576.},   UnitRow{"G", 1073741824.},
    UnitRow{"T", 0x1p40},  UnitRow{"TiB", 0x1p40},   UnitRow{"PiB", 0x1p50},
    UnitRow{"P", 0x1p50},
};
constexpr std::array kRates{
    UnitRow{"B/s", 1e-9},
    UnitRow{"KB/s", 1e-6},
    UnitRow{"MB/s", 1e-3},
    UnitRow{"GB/s", 1},
    UnitRow{"TB/s", 1e3},
    UnitRow{"KiB/s", 1024e-9},
    UnitRow{"MiB/s", 1.048576e-3},
    UnitRow{"GiB/s", 1.073741824},
    UnitRow{"TiB/s", 1099.511627776},
    UnitRow{"b/s", .125e-9},
    UnitRow{"Kb/s", .125e-6},
    UnitRow{"Mb/s", .125e-3},
    UnitRow{"Gb/s", .125},
    UnitRow{"Tb/s", 125},
    UnitRow{"bps", .125e-9},
    UnitRow{"Kbps", .125e-6},
    UnitRow{"Mbps", .125e-3},
    UnitRow{"Gbps", .125},
    UnitRow{"Tbps", 125},
    UnitRow{"Kbit/s", .125e-6},
    UnitRow{"Mbit/s", .125e-3},
    UnitRow{"Gbit/s", .125},
    UnitRow{"Tbit/s", 125},
};
constexpr std::array kTimes{
    UnitRow{"ps", 1e-6},     UnitRow{"ns", 1e-3},     UnitRow{"us", 1},
    UnitRow{"\xC2\xB5s", 1}, UnitRow{"\xCE\xBCs", 1}, UnitRow{"ms", 1e3},
    UnitRow{"s", 1e6},       UnitRow{"min", 60e6},    UnitRow{"h", 3600e6},
};
constexpr std::array kFlops{
    UnitRow{"FLOPS", 1e-12}, UnitRow{"GFLOPS", 1e-3},  UnitRow{"TFLOPS", 1},
    UnitRow{"PFLOPS", 1e3},  UnitRow{"FLOP/s", 1e-12}, UnitRow{"GFLOP/s", 1e-3},
    UnitRow{"TFLOP/s", 1},   UnitRow{"PFLOP/s", 1e3},
};

std::span<const UnitRow> units(Dimension dimension) {
  switch (dimension) {
    case Dimension::bytes: return kBytes;
    case Dimension::rate: return kRates;
    case Dimension::time: return kTimes;
    case Dimension::flops: return kFlops;
  }
  return {};
}

}  // namespace

Parsed<double> parse_decimal(std::string_view text) {
  if (looks_octal(text)) return {0, "starts with a zero (octal in YAML)"};
  if (text.empty() || number_length(text) != text.size()) return {0, "is not a number"};
  return number(text);
}

Parsed<int64_t> parse_whole(std::string_view text) {
  const Parsed<double> decimal = parse_decimal(text);
  if (!decimal.ok()) return {0, decimal.problem};
  int64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (end == text.data() + text.size()) {
    if (error == std::errc::result_out_of_range) return {0, "is too large"};
    return {whole, {}};
  }
  if (std::fabs(decimal.value) > kExact) return {0, "is too large"};
  if (decimal.value != std::floor(decimal.value)) return {0, "is not a whole number"};
  return {static_cast<int64_t>(decimal.value), {}};
}

Parsed<double> parse_quantity(std::string_view text, Dimension dimension, double bare) {
  const size_t length = number_length(text);
  if (length == 0)
    return {0, looks_octal(text) ? "starts with a zero (octal in YAML)" : "is not a number"};
  const Parsed<double> count = number(text.substr(0, length));
  if (!count.ok()) return count;
  std::string_view unit = text.substr(length);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  double factor = bare;
  if (!unit.empty()) {
    bool known = false;
    for (const UnitRow& row : units(dimension)) {
      if (row.name != unit) continue;
      factor = row.factor;
      known = true;
    }
    if (!known) return {0, fmt::format("has an unknown unit; known are {}", unit_names(dimension))};
  }
  const double value = count.value * factor;
  if (!std::isfinite(value)) return {0, "is outside the range of numbers (about 1e-308 to 1e308)"};
  return {value, {}};
}

Parsed<Bytes> parse_bytes(std::string_view text) {
  const Parsed<double> value = parse_quantity(text, Dimension::bytes);
  if (!value.ok()) return {0, value.problem};
  if (std::fabs(value.value) >= kExact) return {0, "is too large"};
  return {static_cast<Bytes>(std::floor(value.value + 0.5)), {}};
}

std::string_view unit_names(Dimension dimension) {
  switch (dimension) {
    case Dimension::bytes: return "B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB";
    case Dimension::rate: return "GB/s, GiB/s, Gb/s and the like with K, M, T";
    case Dimension::time: return "ps, ns, us, ms, s, min, h";
    case Dimension::flops: return "GFLOPS, TFLOPS, PFLOPS";
  }
  return {};
}

std::string format_bytes(Bytes n) {
  constexpr std::array kNames{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const double size = std::fabs(static_cast<double>(n));
  if (size < 1024) return fmt::format("{} B", n);
  double value = static_cast<double>(n) / 1024;
  size_t unit = 0;
  while (std::fabs(value) >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kNames[unit]);
}

}  // namespace shardsim
