#include "backends/replay/communicators.h"

#include <fmt/format.h>

#include "sim/schedule/works.h"

namespace shardsim {

std::string describe(const Schedule& schedule, const Work& w) {
  if (!is_collective(w.kind)) return fmt::format("{} {} ({} B)", name_of(w.kind), w.name, w.bytes);
  const Comm& comm = schedule.comms[w.comm.v];
  std::string out = fmt::format("{} {} B {} of {} ({} ranks, stride {})", name_of(w.kind), w.bytes,
                                name_of(w.dtype), comm.name, comm.size, comm.stride);
  if (w.kind == WorkKind::Broadcast || w.kind == WorkKind::Reduce)
    out += fmt::format(", root {}", w.root);
  return out;
}

std::vector<std::string> collectives_in_order(const Schedule& schedule) {
  std::vector<std::string> out;
  schedule.for_each([&](const Instr& in, const Segment&) {
    if (in.kind == Kind::Launch && is_collective(schedule.works[in.a].kind))
      out.push_back(describe(schedule, schedule.works[in.a]));
  });
  return out;
}

}  // namespace shardsim
