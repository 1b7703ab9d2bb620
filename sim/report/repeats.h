// Rows that repeat, so that a table shows them once: sixteen layers of one group each, or of seven.
//
// Worked example: of a b c b c b c d, with b alike b and c alike c, the rows are a once, b three times
// two apart, c three times two apart, and d once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace shardsim {

struct Repeat {
  size_t first = 0, count = 1, step = 1;
  size_t last() const { return first + (count - 1) * step; }
};

// From each row on, the period that covers the most; of those that cover the same, the shortest.
template <class Alike>
std::vector<Repeat> repeats(size_t rows, Alike alike) {
  constexpr size_t kLongest = 64;  // rows of a layer
  std::vector<Repeat> out;
  for (size_t i = 0; i < rows;) {
    size_t best = 1, count = 1;
    for (size_t period = 1; period <= std::min(kLongest, (rows - i) / 2); ++period) {
      size_t same = 0;
      while (i + period + same < rows && alike(i + same, i + period + same)) ++same;
      const size_t times = 1 + same / period;
      if (times > 1 && times * period > count * best) {
        best = period;
        count = times;
      }
    }
    for (size_t k = 0; k < best; ++k) out.push_back({i + k, count, best});
    i += best * count;
  }
  return out;
}

}  // namespace shardsim
