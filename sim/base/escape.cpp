#include "sim/base/escape.h"

#include <fmt/format.h>

namespace shardsim {

namespace {

// The control character that a text begins with, and how many bytes it has: C0, DEL, or C1 in UTF-8.
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
    out += fmt::format("\\x{:02x}", c.code);
    text.remove_prefix(c.bytes - 1);
  }
  return out;
}

}  // namespace shardsim
