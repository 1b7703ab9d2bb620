#include "sim/report/html/pack.h"

#include <zlib.h>

#include "sim/base/error.h"

namespace shardsim {
namespace {

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t n = 0;
    for (size_t k = 0; k < 3; ++k)
      n = n << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kDigits[n >> (18 - 6 * k) & 63U] : '=';
  }
  return out;
}

}  // namespace

void Packer::add(uint64_t n) {
  for (; n >= 0x80; n >>= 7) bytes_ += static_cast<char>((n & 0x7f) | 0x80);
  bytes_ += static_cast<char>(n);
}

void Packer::add_signed(int64_t n) {
  add(n < 0 ? 2 * static_cast<uint64_t>(-(n + 1)) + 1 : 2 * static_cast<uint64_t>(n));
}

std::string Packer::text() const {
  uLongf size = compressBound(bytes_.size());
  std::string out(size, '\0');
  const int code =
      compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                reinterpret_cast<const Bytef*>(bytes_.data()), bytes_.size(), Z_BEST_COMPRESSION);
  SHARDSIM_ASSERT(code == Z_OK, "what fits into memory can be compressed");
  out.resize(size);
  return base64(out);
}

}  // namespace shardsim
