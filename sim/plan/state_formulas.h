// The account that people make on paper: what a rank holds and moves with P parameters of b bytes
// (gradients the same), AdamW's two moments in fp32 (8 bytes a parameter) and N ranks.
//
//   scheme                    parameters  gradients  optimizer   moved each step
//   no_shard, ddp             P b         P b        8 P         2 P b (N-1)/N, an all-reduce
//   zero1                     P b         P b        8 P/N       2 P b (N-1)/N
//   zero2                     P b         P b/N      8 P/N       2 P b (N-1)/N
//   shard_grad_op             P b/N       P b/N      8 P/N       2 P b (N-1)/N
//   full_shard, zero3         P b/N       P b/N      8 P/N       3 P b (N-1)/N
// Worst peak: what is held, and where parameters are sharded one whole copy of them, P b.
// What is moved is what a rank sends in a ring; of ZeRO-1 and 2 it is the ZeRO paper's figure. No
// padding, activations, buffers, unsharded gradients, nor fp32 master: sim/report/ledger.h says what
// those add. What full_shard holds at the worst peak needs one group for the whole model, which
// moves only 2 P b (N-1)/N: the two figures never occur together.
//
// Worked number: P 7e9, b 2, N 8, full_shard: 1.75 + 1.75 + 7 = 10.5 GB held, 24.5 GB at the peak,
// 36.75 GB moved; a whole copy of everything is 84 GB.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/base/units.h"
#include "sim/plan/scenario.h"

namespace shardsim {

enum class Scheme : uint8_t { ddp, zero1, zero2, zero3, full_shard, shard_grad_op, no_shard };
inline constexpr std::array kSchemes{Scheme::ddp,     Scheme::zero1,      Scheme::zero2,
                                     Scheme::zero3,   Scheme::full_shard, Scheme::shard_grad_op,
                                     Scheme::no_shard};

std::string_view name_of(Scheme scheme);  // "full_shard"
bool shards_params(Scheme scheme);
// Of P elements, those that cross the ring: 3 where parameters are gathered twice, otherwise 2. One of
// them is the reduction where parameters are sharded, otherwise both are.
int64_t passes(Scheme scheme);

struct StateFormula {
  Scheme scheme = Scheme::full_shard;
  int64_t params = 0;  // P
  int64_t ranks = 1;   // N
  int64_t bytes = 2;   // b
  int64_t optimizer_bytes = 8;
  // Of the elements that are gathered and reduced, where they are of another type than b's.
  std::optional<int64_t> gather_bytes, reduce_bytes;

  bool shards_params() const { return shardsim::shards_params(scheme); }
  bool shards_grads() const { return shards_params() || scheme == Scheme::zero2; }
  bool shards_optimizer() const { return shards_grads() || scheme == Scheme::zero1; }
  int64_t passes() const { return shardsim::passes(scheme); }

  // Each is rounded to the nearest byte.
  Bytes parameters() const;
  Bytes gradients() const;
  Bytes optimizer() const;
  Bytes resident() const { return parameters() + gradients() + optimizer(); }
  Bytes whole_copy() const {
    return shards_params() ? params * gather_bytes.value_or(bytes) : 0;
  }  // at the peak
  Bytes peak() const { return resident() + whole_copy(); }
  Bytes communication() const;
  Bytes everything() const { return params * (2 * bytes + optimizer_bytes); }
};

// n / ranks, to the nearest whole number; n - share(n, ranks) is n (ranks - 1) / ranks.
constexpr int64_t share(int64_t n, int64_t ranks) { return (n + ranks / 2) / ranks; }

// The scheme whose formula a scenario's strategy is, and its N. FSDP2 that keeps parameters after
// forward is shard_grad_op; with a shard mesh of 1 it replicates. Replicas (HSDP) are in no formula: N
// is the ranks that share one copy.
StateFormula formula_of(const Training& training, int64_t params);

}  // namespace shardsim
