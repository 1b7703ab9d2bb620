#include "sim/plan/flat_layout.h"

#include <algorithm>
#include <numeric>

#include "sim/base/units.h"

namespace shardsim {

namespace {

constexpr int64_t kAlignmentBytes = 16;  // _get_aligned_numel

int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }

}  // namespace

int64_t FlatLayout::numel() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

FlatLayout::Range FlatLayout::of_rank(int64_t rank) const {
  return {std::min(length, rank * shard), std::min(length, (rank + 1) * shard)};
}

FlatLayout::Range FlatLayout::of_param(size_t param, int64_t rank) const {
  const Range r = of_rank(rank);
  const int64_t begin = offsets[param], end = begin + sizes[param];
  const int64_t from = std::clamp(r.begin, begin, end), to = std::clamp(r.end, begin, end);
  return {from - begin, to - begin};
}

FlatLayout flat_layout(std::span<const int64_t> sizes, int64_t ranks, DType forward,
                       bool use_orig_params) {
  FlatLayout out;
  out.ranks = ranks;
  out.sizes.assign(sizes.begin(), sizes.end());
  out.offsets.reserve(sizes.size());
  const int64_t aligned = use_orig_params ? kAlignmentBytes / bytes_of(forward) : 1;
  for (int64_t n : sizes) {
    out.length = round_up(out.length, aligned);
    out.offsets.push_back(out.length);
    out.length += n;
  }
  if (use_orig_params) out.length = round_up(out.length, ranks);
  out.shard = ceil_div(out.length, ranks);
  return out;
}

}  // namespace shardsim
