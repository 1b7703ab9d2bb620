#include "backends/replay/pattern.h"

#include <cmath>

#include "backends/replay/elements.h"

namespace shardsim {

void fill_pattern(void* at, const Pattern& pattern) {
  with_type(pattern.dtype, [&]<class T>(T*) {
    T* const out = static_cast<T*>(at);
    for (int64_t i = 0; i < pattern.elements * pattern.parts; ++i)
      out[i] = T::from(static_cast<float>(pattern_at(pattern, i)));
  });
}

int64_t count_differences(const void* at, const Pattern& pattern) {
  const double tolerance = pattern.of == Pattern::Of::average ? kAverageTolerance : 0;
  return with_type(pattern.dtype, [&]<class T>(T*) {
    const T* const in = static_cast<const T*>(at);
    int64_t different = 0;
    for (int64_t i = 0; i < pattern.elements * pattern.parts; ++i) {
      const double want = pattern_at(pattern, i);
      different += !(std::abs(in[i].value() - want) <= tolerance * want);  // a NaN differs
    }
    return different;
  });
}

}  // namespace shardsim
