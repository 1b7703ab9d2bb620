#include "sim/schedule/fingerprint.h"

#include <string_view>
#include <unordered_map>

namespace shardsim {
namespace {

class Hash {
 public:
  void add(uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) {
      value_ ^= word >> (8 * byte) & 0xFF;
      value_ *= 0x100000001b3;
    }
  }
  void add(int64_t word) { add(static_cast<uint64_t>(word)); }
  void add(std::string_view text) {
    add(uint64_t{text.size()});
    for (const char c : text) add(uint64_t{static_cast<unsigned char>(c)});
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

// Ids by the order of their first use.
class FirstUses {
 public:
  uint64_t number(uint32_t id) { return seen_.try_emplace(id, seen_.size()).first->second; }

 private:
  std::unordered_map<uint32_t, uint64_t> seen_;
};

void add_work(Hash& hash, const Schedule& schedule, const Work& w) {
  for (const uint64_t v : {uint64_t(w.kind), uint64_t(w.dtype), uint64_t(w.kernel), uint64_t(w.op),
                           uint64_t{w.recomputed}, uint64_t{w.group.v}})
    hash.add(v);
  for (const int64_t v : {w.m, w.n, w.k, w.batch, w.flops, w.bytes}) hash.add(v);
  hash.add(std::string_view(w.name));
  if (w.comm.v >= schedule.comms.size()) return;
  const Comm& comm = schedule.comms[w.comm.v];
  hash.add(comm.size);
  hash.add(comm.stride);
  hash.add(std::string_view(comm.name));
}

}  // namespace

uint64_t step_fingerprint(const Schedule& schedule, int step) {
  int steps = 0;
  for (uint32_t m = 0; m < schedule.marks.size(); ++m) steps += schedule.step_follows(m) ? 1 : 0;
  const int wanted = step < 0 ? steps - 1 : step;
  Hash hash;
  FirstUses events, buffers;
  int at = -1;
  schedule.for_each([&](const Instr& in, const Segment& s) {
    if (in.kind == Kind::Mark) {
      if (!schedule.marks[in.a].begins_step) return;
      // Behind the last step there may be an evaluation.
      at = schedule.step_follows(in.a) ? at + 1 : steps;
      return;
    }
    if (at != wanted) return;
    hash.add(uint64_t(in.kind));
    hash.add(uint64_t{in.stream});
    switch (in.kind) {
      case Kind::Launch: add_work(hash, schedule, schedule.works[in.a]); break;
      case Kind::Record:
      case Kind::Wait:
      case Kind::WaitUnlessDone:
      case Kind::HostWait:
      case Kind::EventPush: hash.add(events.number(s.event(in).v)); break;
      case Kind::Alloc:
      case Kind::AllocOnce:
      case Kind::Free:
      case Kind::UseOn: {
        const uint32_t buffer = s.buffer(in).v;
        hash.add(buffers.number(buffer));
        if (buffer < schedule.buffers.size()) hash.add(schedule.buffers[buffer].bytes);
        break;
      }
      case Kind::HostWork: {
        const HostWork& w = schedule.host_works[in.a];
        hash.add(std::string_view(w.name));
        hash.add(w.accesses);
        hash.add(w.bytes);
        break;
      }
      default: hash.add(uint64_t{in.a});
    }
  });
  return hash.value();
}

std::string fingerprint_text(uint64_t fingerprint) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4) out += kDigits[fingerprint >> shift & 15];
  return out;
}

}  // namespace shardsim
