// The options of PyTorch's CUDA caching allocator, as PYTORCH_CUDA_ALLOC_CONF gives them:
//   "expandable_segments:True,max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:8]"
// A text given while the process runs (_set_allocator_settings) sets max_split, its rounding, roundup
// and the garbage collector's threshold anew: these fall back to their defaults if it does not name
// them. The other options keep their values (seen in random scripts played on 2.15), and the memory
// fraction is read only when the process starts.
//
// Sizes (c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.15, and
// spec/memory-model.md section A):
//   round(n): up to a multiple of 512, at least 512. With D = divisions for n above 1 and n > 512 D:
//     powers of two stay, others go up to a multiple of (largest power of two below n) / D.
//   segment(n): n <= 1 MiB: 2 MiB; n < 10 MiB: large_segment (20 MiB); else up to 2 MiB.
// Worked numbers: round(1049600) = 1049600, with 4 divisions 1310720; segment(10 MiB + 1) = 12 MiB.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "sim/base/units.h"

namespace shardsim {

inline constexpr Bytes kSmallAllocation = kMiB;       // the largest of the small pool
inline constexpr Bytes kSmallSegment = 2 * kMiB;      // also its page
inline constexpr Bytes kMinLargeSegment = 10 * kMiB;  // from here a segment has the request's size
inline constexpr Bytes kSegmentRounding = 2 * kMiB;

struct AllocatorSettings {
  Bytes large_segment = 20 * kMiB;  // segments of requests below 10 MiB, and the large pool's page
  Bytes max_split = INT64_MAX;      // blocks from this size on are never split
  Bytes max_non_split_rounding = 20 * kMiB;  // not named: large_segment
  // Divisions of the interval between two powers of two, by floor(log2(n)) - 20 clamped to 0..15.
  std::array<int64_t, 16> roundup_divisions{};
  bool roundup = false;  // some entry is above 1
  double gc_threshold = 0;
  bool expandable = false;
  double memory_fraction = 1;  // per_process_memory_fraction: read once, when the process starts
  // Address space of an expandable range; neither: 9/8 of the device.
  double range_fraction = 0;
  Bytes range_bytes = 0;

  Bytes round(Bytes n) const {
    if (roundup) return round_divided(n);
    return n < kBlock ? kBlock : round_block(n);
  }
  Bytes segment(Bytes n) const {
    if (n <= kSmallAllocation) return kSmallSegment;
    if (n < kMinLargeSegment) return large_segment;
    return (n + kSegmentRounding - 1) / kSegmentRounding * kSegmentRounding;
  }
  friend bool operator==(const AllocatorSettings&, const AllocatorSettings&) = default;

 private:
  Bytes round_divided(Bytes n) const;
};

// `running` is the configuration that the text changes. Throws Error at an option or value that PyTorch refuses, or that changes what is allocated in a
// way this allocator has no part for (backend:cudaMallocAsync, throw_on_cudamalloc_oom:True).
AllocatorSettings parse_allocator_settings(std::string_view text,
                                           const AllocatorSettings& running = {});

}  // namespace shardsim
