#include "sim/report/text.h"
#include "sim/base/escape.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace shardsim {

std::string duration(Time t) {
  const double us = t.as_us();
  if (std::abs(us) >= 1e6) return fmt::format("{:.3f} s", us * 1e-6);
  if (std::abs(us) >= 1e3) return fmt::format("{:.3f} ms", us * 1e-3);
  return fmt::format("{:.1f} us", us);
}

std::string folded_name(const std::string& name) {
  std::string out;
  bool inside = false;
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    // Part of a word, as in "w1" or "ln_1", a digit is no index.
    const bool index = digit && (inside || out.empty() || out.back() == '.');
    if (!index) out += c;
    if (index && !inside) out += '*';
    inside = index;
  }
  return out;
}

std::string decimal_bytes(Bytes n) {
  const auto size = static_cast<double>(n);
  if (n < 1000) return fmt::format("{} B", n);
  if (n < 1'000'000) return fmt::format("{:.2f} KB", size / 1e3);
  if (n < 1'000'000'000) return fmt::format("{:.2f} MB", size / 1e6);
  return fmt::format("{:.2f} GB", size / 1e9);
}

double percent(Time part, Time whole) {
  return whole.ps == 0 ? 0 : 100.0 * static_cast<double>(part.ps) / static_cast<double>(whole.ps);
}

std::string grouped(int64_t n) {
  std::string s = std::to_string(n);
  for (auto i = static_cast<int>(s.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3)
    s.insert(static_cast<size_t>(i), ",");
  return s;
}

// Quotes a field that CSV would misread (RFC 4180).
std::string csv_field(const std::string& s) {
  if (s.find_first_of(",\"\n\r") == std::string::npos) return s;
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string aligned(std::vector<std::vector<std::string>> rows, std::string_view align) {
  for (auto& row : rows)
    for (std::string& cell : row) cell = printable(cell);
  std::vector<size_t> width(align.size());
  for (const auto& row : rows)
    for (size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string padding(width[c] - row[c].size(), ' ');
      line += "  ";
      line += align[c] == 'r' ? padding + row[c] : row[c] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace shardsim
