// FSDP1's flat parameter: where each parameter of a unit starts, how long the whole is and what each
// rank holds of it. FlatParamHandle._init_flat_param_and_metadata, _get_shard.
//
// Parameters stand one behind the other; with use_orig_params each starts at a multiple of 16 bytes
// of the forward type, and the end is padded to a multiple of the ranks. L is the length, a rank stores
// S = ceil(L / N) elements, zero-padded at the end, and the gathered buffer has N S.
// Worked number: sizes 3 and 5 in bf16 on 4 ranks are L 8, S 2; with use_orig_params 3 + 5 + 5 + 3 =
// 16 and S 4, where rank 0 holds p0 and a padding, rank 1 none, rank 2 p1[0..3], rank 3 p1[4].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/dtype.h"

namespace shardsim {

struct FlatLayout {
  std::vector<int64_t> offsets;  // of each parameter
  std::vector<int64_t> sizes;    // in elements, as given
  int64_t ranks = 1;             // N
  int64_t length = 0;            // L
  int64_t shard = 0;             // S

  int64_t gathered() const { return ranks * shard; }
  int64_t numel() const;                                  // without padding
  int64_t padding() const { return length - numel(); }    // inside L
  bool pad_copy() const { return gathered() != length; }  // before the reduce-scatter

  // [begin, end) of the flat parameter; nothing where begin == end.
  struct Range {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };
  Range of_rank(int64_t rank) const;  // without the zeros at the end
  // Elements of a parameter that a rank holds, counted from the parameter's own first one.
  Range of_param(size_t param, int64_t rank) const;
};

// forward: MixedPrecision.param_dtype, or the stored type without it.
FlatLayout flat_layout(std::span<const int64_t> sizes, int64_t ranks, DType forward,
                       bool use_orig_params);

}  // namespace shardsim
