// The data that a replay checks its collectives with. Each rank fills what it sends with numbers that
// only this rank and this launch have, and what arrives is compared, element by element, with what it
// must be: so a shard in the wrong place, a stale buffer or a missing rank shows.
//
// An element is a whole number below modulus(ranks), mixed from its place, its rank and its launch. It
// is small enough that the sum over all ranks is at most 256, which every type that is reduced holds
// exactly, in any order of addition.
// Worked number: 4 ranks, numbers from 0 to 15, sums up to 60; 100 ranks, 0 and 1, sums up to 100.
#pragma once

#include <cstdint>

#include "sim/base/dtype.h"
#include "sim/base/units.h"

namespace shardsim {

constexpr uint32_t modulus(int64_t ranks) { return ranks <= 17 ? 16 : ranks <= 85 ? 4 : 2; }

constexpr uint32_t pattern_value(int64_t element, int64_t rank, int64_t launch, int64_t ranks) {
  uint32_t x = static_cast<uint32_t>(element) * 2654435761u;
  x ^= static_cast<uint32_t>(rank) * 0x9e3779b1u + static_cast<uint32_t>(launch) * 0x85ebca6bu;
  x ^= x >> 15;
  x *= 0x2c1b3c6du;
  x ^= x >> 12;
  return x % modulus(ranks);
}

// What a region holds: `parts` parts one behind another, of `elements` each.
struct Pattern {
  enum class Of : uint8_t {
    rank,     // rank `first` in the first part, the next one in the next part
    sum,      // one part: over all ranks
    average,  // the same, divided by their number
  };
  Of of = Of::rank;
  DType dtype = DType::fp32;
  int64_t elements = 0;
  int64_t parts = 1;
  int64_t first = 0;
  int64_t offset = 0;  // of a part's first element in the rank's data
  int64_t ranks = 1;   // of the communicator
  int64_t launch = 0;

  Bytes bytes() const { return elements * parts * bytes_of(dtype); }
};

// The number at element i of the region, parts counted through.
constexpr double pattern_at(const Pattern& p, int64_t i) {
  const int64_t part = i / p.elements, at = p.offset + i % p.elements;
  if (p.of == Pattern::Of::rank) return pattern_value(at, p.first + part, p.launch, p.ranks);
  int64_t sum = 0;
  for (int64_t r = 0; r < p.ranks; ++r) sum += pattern_value(at, r, p.launch, p.ranks);
  return p.of == Pattern::Of::sum ? static_cast<double>(sum)
                                  : static_cast<double>(sum) / static_cast<double>(p.ranks);
}

// An average of ranks that are no power of two is rounded by the device, to 8 bits in bf16.
constexpr double kAverageTolerance = 1.0 / 64;

// In host memory; the CUDA backend has kernels that do the same.
void fill_pattern(void* at, const Pattern& pattern);
int64_t count_differences(const void* at, const Pattern& pattern);

}  // namespace shardsim
