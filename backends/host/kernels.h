// What a work costs a core of the host: bytes read and written in scratch memory that no cache holds,
// and multiply-adds in registers.
// Worked number: a kernel of 32 MiB copies 16 MiB from one half of the scratch memory to the other,
// as often as its halves (8 MiB each) fit: twice.
#pragma once

#include <vector>

#include "sim/schedule/instruction.h"

namespace shardsim {

class HostKernels {
 public:
  // `largest`: bytes of the largest work; one object a stream.
  explicit HostKernels(Bytes largest);
  void run(const Work& work);

 private:
  void move(Bytes bytes);
  void multiply_add(int64_t flops);

  std::vector<char> from_, to_;
  volatile float sink_ = 0;
};

}  // namespace shardsim
