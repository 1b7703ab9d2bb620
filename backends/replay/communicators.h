// Who takes part in a collective: a schedule says size and stride of a communicator, a rank knows its
// own place in it.
// Worked number: 8 ranks, replicas {size 2, stride 4}: rank 5 is number 1 of ranks 1 and 5.
#pragma once

#include <string>
#include <vector>

#include "sim/schedule/schedule.h"

namespace shardsim {

struct Membership {
  int first = 0;  // rank of number 0
  int number = 0;
  int size = 1;
  int stride = 1;
  int rank_of(int n) const { return first + n * stride; }
};

constexpr Membership membership(const Comm& comm, int rank) {
  const int size = static_cast<int>(comm.size), stride = static_cast<int>(comm.stride);
  const int number = rank / stride % size;
  return {rank - number * stride, number, size, stride};
}

// The parts that a collective's bytes are cut in: one a rank where it gathers or scatters.
constexpr int64_t parts_of(const Work& w, const Comm& comm) {
  return w.kind == WorkKind::AllGather || w.kind == WorkKind::ReduceScatter ? comm.size : 1;
}

// "all_gather 436224000 B bf16 of shard (8 ranks, stride 1)".
std::string describe(const Schedule& schedule, const Work& work);
// By collective, in the host's order: what ranks must agree on.
std::vector<std::string> collectives_in_order(const Schedule& schedule);

}  // namespace shardsim
