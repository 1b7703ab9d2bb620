#include "sim/base/escape.h"

#include <fmt/format.h>

namespace shardsim {

namespace {

// The control character that a text begins with, and how many bytes it has: C0, DEL, or in UTF-8 C1 and
// what turns the direction of the text or ends a line (U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to
// U+2069).
struct Control {
  unsigned code = 0;
  size_t bytes = 0;  // 0: there is none
};

Control control_at(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  if (byte(0) < 0x20 || byte(0) == 0x7F) return {byte(0), 1};
  if (byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) < 0xA0) return {byte(1), 2};
  if (byte(0) == 0xD8 && byte(1) == 0x9C) return {0x61C, 2};
  if (byte(0) != 0xE2 || byte(1) < 0x80 || byte(1) > 0x81 || byte(2) < 0x80) return {};
  const unsigned code = 0x2000 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  if (code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
      (code >= 0x2066 && code <= 0x2069))
    return {code, 3};
  return {};
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (; !text.empty(); text.remove_prefix(1)) {
    if (const Control c = control_at(text); c.bytes > 0) {
      out += fmt::format("\\u{:04x}", c.code);
      text.remove_prefix(c.bytes - 1);
      continue;
    }
    if (text[0] == '"' || text[0] == '\\') out += '\\';
    out += text[0];
  }
  return out;
}

std::string printable(std::string_view text, bool lines) {
  std::string out;
  for (; !text.empty(); text.remove_prefix(1)) {
    const Control c = control_at(text);
    const bool stays = lines && (text[0] == '\n' || text[0] == '\t');
    if (c.bytes == 0 || stays) {
      out += text[0];
      continue;
    }
    out += c.code > 0xFF ? fmt::format("\\u{:04x}", c.code) : fmt::format("\\x{:02x}", c.code);
    text.remove_prefix(c.bytes - 1);
  }
  return out;
}

}  // namespace shardsim
