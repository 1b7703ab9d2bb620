#include "sim/base/short_key.h"

#include <fmt/format.h>

#include <cstdint>

namespace shardsim {

// FNV-1a, 128 bits as two of 64 from different bases.
std::string short_key(std::string_view text) {
  uint64_t a = 0xcbf29ce484222325, b = 0x84222325cbf29ce4;
  for (const char c : text) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    b = (b ^ static_cast<unsigned char>(c)) * 0x100000001b3 + (a >> 57);
  }
  return fmt::format("{:016x}{:016x}", a, b);
}

}  // namespace shardsim
