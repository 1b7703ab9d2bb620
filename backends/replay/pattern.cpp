#include "backends/replay/pattern.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace shardsim {

namespace {

// Whole numbers up to 256 are exact in both; averages are rounded to nearest.
uint16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
float from_bf16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

// Numbers of at least 2^-14, which is all that occurs beside 0.
uint16_t to_fp16(float x) {
  if (x == 0) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = bits + 0xfffu + ((bits >> 13) & 1u);
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) |
                               ((((rounded >> 23) & 0xffu) - 112u) << 10) |
                               ((rounded >> 13) & 0x3ffu));
}
float from_fp16(uint16_t x) {
  const uint32_t exponent = (x >> 10) & 0x1fu, mantissa = x & 0x3ffu;
  if (exponent == 0) return std::ldexp(static_cast<float>(mantissa), -24);
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000u) << 16;
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

}  // namespace

void store(void* at, DType type, int64_t i, double value) {
  auto* const bytes = static_cast<unsigned char*>(at) + i * bytes_of(type);
  const auto write = [&](auto x) { std::memcpy(bytes, &x, sizeof x); };
  switch (type) {
    case DType::fp32: return write(static_cast<float>(value));
    case DType::bf16: return write(to_bf16(static_cast<float>(value)));
    case DType::fp16: return write(to_fp16(static_cast<float>(value)));
    case DType::i64: return write(static_cast<int64_t>(value));
    case DType::fp8:
    case DType::u8: return write(static_cast<uint8_t>(value));
  }
}

double load(const void* at, DType type, int64_t i) {
  const auto* const bytes = static_cast<const unsigned char*>(at) + i * bytes_of(type);
  const auto read = [&](auto x) {
    std::memcpy(&x, bytes, sizeof x);
    return x;
  };
  switch (type) {
    case DType::fp32: return read(float{});
    case DType::bf16: return from_bf16(read(uint16_t{}));
    case DType::fp16: return from_fp16(read(uint16_t{}));
    case DType::i64: return static_cast<double>(read(int64_t{}));
    case DType::fp8:
    case DType::u8: return read(uint8_t{});
  }
  return 0;
}

void fill_pattern(void* at, const Pattern& pattern) {
  for (int64_t i = 0; i < pattern.elements * pattern.parts; ++i)
    store(at, pattern.dtype, i, pattern_at(pattern, i));
}

int64_t count_differences(const void* at, const Pattern& pattern) {
  const double tolerance = pattern.of == Pattern::Of::average ? kAverageTolerance : 0;
  int64_t different = 0;
  for (int64_t i = 0; i < pattern.elements * pattern.parts; ++i) {
    const double want = pattern_at(pattern, i);
    const double off = std::abs(load(at, pattern.dtype, i) - want);
    different += !(off <= tolerance * want);  // a NaN differs
  }
  return different;
}

}  // namespace shardsim
