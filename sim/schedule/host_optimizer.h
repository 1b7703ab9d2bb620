// The optimizer's step where parameters and gradients are on the host (CPU offload): the CPU computes
// it, on the thread that would issue the device's work, so nothing is issued meanwhile. What it reads
// and writes is counted as torch/optim (2.15) runs it:
//   loop    operator by operator over each parameter. What AdamW and SGD are on CPU tensors unless
//           fused=True is said: foreach is only the default where all are on a GPU.
//   fused   one pass over p, g, m and v
// Temporaries of 32 MiB and more are new pages each time, for glibc gives those back (M_MMAP_THRESHOLD
// grows no further); smaller ones are used again.
// Worked number: AdamW's loop on 1e9 parameters in fp32 is 21e9 accesses and 84 GB (mul_ 2, lerp_ 3,
// mul_ 2, addcmul_ 4, sqrt 2, / 2, add_ 2, addcdiv_ 4), of which the results of sqrt and / are 8 GB of
// new pages; fused 7e9 accesses and 28 GB.
#pragma once

#include <vector>

#include "sim/plan/scenario.h"
#include "sim/schedule/host.h"
#include "sim/schedule/optimizer.h"

namespace shardsim {

// What operators on a tensor of the host read and write.
struct HostPasses {
  int accesses = 0;   // of each element
  int fresh = 0;      // tensors of this size that they make
  int operators = 0;  // calls

  void add(const HostPasses& more) {
    accesses += more.accesses;
    fresh += more.fresh;
    operators += more.operators;
  }
};

// A fill and a norm take as long as two accesses of each element, as a product with a number does.
inline constexpr HostPasses kHostScan{2, 0, 1};
inline constexpr HostPasses kHostSum{3, 0, 1};  // in place

// Adds those passes over so many elements.
void add_passes(HostWork& work, const HostPasses& passes, int64_t numel, DType dtype);
// The optimizer's on one parameter, in a step that is not its first.
HostPasses optimizer_passes(const Optimizer& optimizer);

class HostOptimizer {
 public:
  HostOptimizer(Host& host, const Optimizer& options, DType dtype,
                std::vector<OptimizerParam> params);

  // Over the parameters that have a gradient, by their positions in `params`.
  void step(const std::vector<uint32_t>& with_grad);
  // zero_grad(set_to_none=False).
  void zero(const std::vector<uint32_t>& with_grad);

 private:
  // Over those parameters, as one work; the same list again is the same work.
  void work(const char* name, const HostPasses& passes, const std::vector<uint32_t>& with_grad,
            bool makes_state = false);

  struct Made {
    HostWork work;
    uint32_t id = 0;
  };
  Host& host_;
  const Optimizer options_;
  const DType dtype_;
  std::vector<OptimizerParam> params_;
  std::vector<bool> has_state_;
  std::vector<Made> made_;
};

}  // namespace shardsim
