// Figures and lines as the tables of reports write them.
// duration(1,072,000 us) is "1.072 s", duration(754 us) "754.0 us"; grouped(1234567) "1,234,567".
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/base/units.h"

namespace shardsim {

std::string duration(Time t);
std::string grouped(int64_t n);
// In powers of 1000, as accounts on paper are: decimal_bytes(36,750,000,000) is "36.75 GB".
std::string decimal_bytes(Bytes n);
// Names that differ by the numbers of modules only are one: "layers.12.mlp" is "layers.*.mlp".
std::string folded_name(const std::string& name);
double percent(Time part, Time whole);  // 0 of nothing
std::string csv_field(const std::string& text);
// Rows of cells as lines with columns under each other, two spaces in front and between; `align`
// has an l or r for each column.
std::string aligned(std::vector<std::vector<std::string>> rows, std::string_view align);

class Lines {
 public:
  template <class... A>
  void add(fmt::format_string<A...> f, A&&... args) {
    fmt::format_to(std::back_inserter(text_), f, std::forward<A>(args)...);
    text_.erase(text_.find_last_not_of(' ') + 1);
    text_ += '\n';
  }
  // Whole lines.
  void text(const std::string& lines) { text_ += lines; }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace shardsim
