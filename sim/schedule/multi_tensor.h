// How many launches a foreach kernel over many tensors takes. It works on chunks of 65,536 elements and
// a launch holds so many: in 2.15 between 2209 and 2429 (kernel-sequence 6 and 9: seen on both sides;
// 2300 is fitted in between). In 2.7 a launch's arguments have 4 KiB: 320 chunks, and of tensors that
// end in it 110, 64, 48, 36 or 30, by how many lists of tensors the kernel takes
// (aten/src/ATen/native/cuda/MultiTensorApply.cuh).
// Worked number: AdamW on Llama-3-8B's 1.0e9 local elements is 7 launches a kernel, 56 in all; 49 and
// 392 in 2.7.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/base/units.h"
#include "sim/model/version.h"

namespace shardsim {

inline constexpr int64_t kChunkElements = 65'536;

constexpr int64_t chunks_of(int64_t elements) { return ceil_div(elements, kChunkElements); }

class ForeachLaunches {
 public:
  // `lists`: of tensors that the kernel takes, 1 to 5.
  ForeachLaunches(const Behaviour& behaviour, int lists)
      : small_(behaviour.small_foreach), most_tensors_(kTensors[lists - 1]) {}

  // The next tensor.
  void add(int64_t elements) {
    int64_t chunks = chunks_of(elements);
    if (chunks == 0) return;
    if (!small_) {
      chunks_ += chunks;
      return;
    }
    ++tensors_;
    while (chunks > 0) {
      const int64_t taken = std::min(chunks, kSmallChunks - chunks_);
      chunks -= taken;
      chunks_ += taken;
      const bool full = chunks_ == kSmallChunks || (chunks == 0 && tensors_ == most_tensors_);
      if (!full) continue;
      ++full_launches_;
      chunks_ = 0;
      tensors_ = chunks == 0 ? 0 : 1;
    }
  }
  int64_t count() const {
    return full_launches_ + (small_ ? (chunks_ > 0 ? 1 : 0) : ceil_div(chunks_, kChunks));
  }

 private:
  static constexpr int64_t kChunks = 2300, kSmallChunks = 320;
  static constexpr int kTensors[5] = {110, 64, 48, 36, 30};

  bool small_;
  int most_tensors_;
  int64_t full_launches_ = 0;
  int64_t chunks_ = 0;  // in the launch being filled
  int tensors_ = 0;
};

}  // namespace shardsim
