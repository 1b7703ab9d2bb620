// Elements of tensors in host memory, as numbers that can be added.
// Worked number: Bf16::from(257.0F).value() is 256: eight bits of mantissa, ties to even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "sim/base/dtype.h"

namespace shardsim {

struct Bf16 {
  uint16_t bits;
  static Bf16 from(float x) {
    const uint32_t b = std::bit_cast<uint32_t>(x);
    return {static_cast<uint16_t>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16)};
  }
  float value() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// Finite numbers; below 2^-14 they become 0, above 65504 infinite.
struct Fp16 {
  uint16_t bits;
  static Fp16 from(float x) {
    const uint32_t b = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (b & 0x7fffffffu) + 0xfffu + ((b >> 13) & 1u);
    const auto exponent = static_cast<int32_t>(rounded >> 23) - 112;
    const uint32_t sign = (b >> 16) & 0x8000u;
    if (exponent <= 0) return {static_cast<uint16_t>(sign)};
    if (exponent >= 31) return {static_cast<uint16_t>(sign | 0x7c00u)};
    return {static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent) << 10 |
                                  ((rounded >> 13) & 0x3ffu))};
  }
  float value() const {
    const uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    if (exponent == 0)
      return std::bit_cast<float>(
          sign | std::bit_cast<uint32_t>(std::ldexp(static_cast<float>(mantissa), -24)));
    return std::bit_cast<float>(sign | ((exponent == 31 ? 255u : exponent + 112u) << 23) |
                                (mantissa << 13));
  }
};

// Any other type: its numbers are the language's own.
template <class T>
struct Plain {
  T number;
  static Plain from(double x) { return {static_cast<T>(x)}; }
  double value() const { return static_cast<double>(number); }
};

// f with a null pointer to the element type: with_type(DType::bf16, [](auto* t) { ... }). fp8 is moved
// and never reduced: its byte is a number.
template <class F>
auto with_type(DType type, F&& f) {
  switch (type) {
    case DType::bf16: return f(static_cast<Bf16*>(nullptr));
    case DType::fp16: return f(static_cast<Fp16*>(nullptr));
    case DType::i64: return f(static_cast<Plain<int64_t>*>(nullptr));
    case DType::fp8:
    case DType::u8: return f(static_cast<Plain<uint8_t>*>(nullptr));
    case DType::fp32: break;
  }
  return f(static_cast<Plain<float>*>(nullptr));
}

}  // namespace shardsim
