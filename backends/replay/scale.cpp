#include "backends/replay/scale.h"

#include <algorithm>
#include <bit>

#include "backends/replay/communicators.h"

namespace shardsim {

namespace {

constexpr Bytes kGrain = 16;

Bytes scaled_part(Bytes part, int64_t scale) {
  const Bytes small = part / scale / kGrain * kGrain;
  return small > 0 ? small : std::min(part, kGrain);
}

}  // namespace

Schedule scaled(const Schedule& schedule, int64_t scale, int64_t world) {
  Schedule out = schedule;
  if (scale == 1) return out;
  for (Work& w : out.works) {
    w.flops /= scale;
    if (is_collective(w.kind)) {
      const int64_t parts = parts_of(w, out.comms[w.comm.v]);
      w.bytes = scaled_part(w.bytes / parts, scale) * parts;
    } else {
      w.bytes = ceil_div(w.bytes, scale);
    }
  }
  const auto smaller = static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(scale)) - 1);
  for (Instr& in : out.code)
    if (in.kind == Kind::PinnedTake || in.kind == Kind::PinnedRelease)
      in.a -= std::min(in.a, smaller);
  // Room for the smallest parts of all ranks.
  for (Buffer& b : out.buffers)
    b.bytes = std::max(ceil_div(b.bytes, scale), std::min(b.bytes, kGrain * world));
  return out;
}

int64_t scale_for(const Schedule& schedule, Bytes bytes, int64_t flops) {
  Bytes moved = 0;
  int64_t computed = 0;
  schedule.for_each_of_last_step([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    moved += schedule.works[in.a].bytes;
    computed += schedule.works[in.a].flops;
  });
  int64_t scale = 1;
  while (moved / scale > bytes || computed / scale > flops) scale *= 2;
  return scale;
}

}  // namespace shardsim
