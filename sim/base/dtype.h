// Element types of tensors. bytes_of(DType::bf16) = 2.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace shardsim {

enum class DType : uint8_t { fp32, bf16, fp16, fp8, i64, u8 };

constexpr int bytes_of(DType t) {
  switch (t) {
    case DType::fp32: return 4;
    case DType::bf16:
    case DType::fp16: return 2;
    case DType::i64: return 8;
    case DType::fp8:
    case DType::u8: return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::fp32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::fp16: return "fp16";
    case DType::fp8: return "fp8";
    case DType::i64: return "int64";
    case DType::u8: return "uint8";
  }
  return "?";
}

// Parameter, compute and reduce types that a scenario may name; nullopt for any other word.
constexpr std::optional<DType> parse_float_dtype(std::string_view s) {
  if (s == "fp32" || s == "float32") return DType::fp32;
  if (s == "bf16" || s == "bfloat16") return DType::bf16;
  if (s == "fp16" || s == "float16") return DType::fp16;
  return std::nullopt;
}

}  // namespace shardsim
