#include "backends/host/kernels.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace shardsim {

namespace {

constexpr Bytes kScratch = 8 * kMiB;
constexpr int kLanes = 64;

}  // namespace

HostKernels::HostKernels(Bytes largest)
    : from_(static_cast<size_t>(std::clamp<Bytes>(largest, 1, kScratch))), to_(from_.size()) {}

void HostKernels::run(const Work& work) {
  switch (work.kind) {
    case WorkKind::Gemm: return multiply_add(work.flops);
    case WorkKind::Memset:
      for (Bytes left = work.bytes; left > 0; left -= static_cast<Bytes>(to_.size()))
        std::memset(to_.data(), 0, static_cast<size_t>(std::min<Bytes>(left, std::ssize(to_))));
      return;
    case WorkKind::Kernel: move(work.bytes / 2); return multiply_add(work.flops);
    default: return move(work.bytes);
  }
}

void HostKernels::move(Bytes bytes) {
  for (; bytes > 0; bytes -= std::ssize(from_))
    std::memcpy(to_.data(), from_.data(),
                static_cast<size_t>(std::min<Bytes>(bytes, std::ssize(from_))));
}

void HostKernels::multiply_add(int64_t flops) {
  std::array<float, kLanes> x;
  x.fill(1);
  for (int64_t i = flops / (2 * kLanes); i > 0; --i)
    for (float& v : x) v = v * .999F + .001F;
  sink_ = x[0];
}

}  // namespace shardsim
