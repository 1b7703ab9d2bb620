// A whole program of one rank: instruction spans, the tables they refer to, and the phases.
//
// Blocks that are alike are laid out once: a Segment plays code[begin, end) with its buffer ids
// shifted, each by the shift that its instruction names (buffer()). Positions count instructions in the order they are played, segment by segment;
// launches are numbered in that order too, and a Trace is indexed by launch.
// Worked number: Llama-3-8B without checkpointing plays about 13,000 instructions in two steps from
// about 4,500 laid out.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/schedule/instruction.h"

namespace shardsim {

struct Segment {
  uint32_t begin = 0, end = 0;            // in Schedule::code
  std::array<uint32_t, kRelocs> shift{};  // by Reloc, added modulo 2^32
  uint32_t event_shift = 0;               // of events recorded in a region's backward
  GroupId group;  // whose compute this is; none for the runtime's own instructions

  BufferId buffer(const Instr& i) const { return {i.a + shift[static_cast<size_t>(i.reloc)]}; }
  EventId event(const Instr& i) const {
    return {i.reloc == Reloc::backward ? i.a + event_shift : i.a};
  }
};

// What a walk over the instructions in order sees become live or go.
class LiveWalk {
 public:
  // 1: the instruction's buffer comes, -1: it goes, 0: neither.
  int change(const Instr& i) {
    if (i.kind == Kind::Alloc) return 1;
    if (i.kind == Kind::Free) return -1;
    if (i.kind != Kind::AllocOnce) return 0;
    for (uint32_t b : kept_)
      if (b == i.a) return 0;
    kept_.push_back(i.a);
    return 1;
  }

 private:
  std::vector<uint32_t> kept_;
};

// A named point between phases. `step` counts from 0 (-1: before the first); a step begins right
// after its `begins_step` mark.
struct MarkInfo {
  std::string name;  // "step0.0.after_forward", as the recordings name them
  int step = -1;
  bool begins_step = false;  // peaks are counted anew from here
};

struct Comm {
  int64_t size = 1;    // ranks
  int64_t stride = 1;  // rank distance between neighbours: 1 for a shard group, W for replicas
  std::string name;
};

struct GroupInfo {
  std::string name;
};

// What a collective reads and writes; one buffer for both: in place, where a gather's input and a
// scatter's output are the rank's own part of it. Where the runtime names only what is written (parts
// of many parameters are gathered, say), that is in place too.
struct CollectiveTensors {
  uint32_t code = 0;  // of the launch, in Schedule::code
  BufferId in, out;
};

struct Schedule {
  std::vector<Instr> code;
  std::vector<Segment> segments;
  std::vector<Work> works;
  std::vector<HostWork> host_works;
  std::vector<Buffer> buffers;
  std::vector<Comm> comms;
  // By rising `code`; none for a collective on memory that no buffer stands for. For replays.
  std::vector<CollectiveTensors> tensors;
  std::vector<MarkInfo> marks;
  std::vector<std::string> streams;  // names by StreamId
  uint64_t high_priority = 0;        // bit: that stream has high priority
  uint32_t events = 0;

  // Empty, with the memory it has: a sweep lays thousands of schedules out in the same one.
  void clear() {
    code.clear();
    segments.clear();
    works.clear();
    host_works.clear();
    buffers.clear();
    comms.clear();
    tensors.clear();
    marks.clear();
    streams.clear();
    high_priority = 0;
    events = 0;
  }

  // The mark ends a step or the preparations, and another step comes behind: not the mark that ends
  // the last one, whether an evaluation follows it or nothing.
  bool step_follows(uint32_t mark) const {
    return marks[mark].begins_step && mark + 1 < marks.size() && marks[mark + 1].step >= 0;
  }

  // Calls f(const Instr&, const Segment&) for every instruction in the order it is played.
  template <class F>
  void for_each(F&& f) const {
    for (const Segment& s : segments)
      for (uint32_t i = s.begin; i < s.end; ++i) f(code[i], s);
  }

  // The same for the last step, the mark that ends it included; not for an evaluation behind it.
  template <class F>
  void for_each_of_last_step(F&& f) const {
    auto before = static_cast<uint32_t>(marks.size());
    while (before > 0 && !step_follows(before - 1)) --before;
    bool inside = false;
    for_each([&](const Instr& in, const Segment& s) {
      if (inside) f(in, s);
      if (in.kind == Kind::Mark && marks[in.a].begins_step) inside = in.a + 1 == before;
    });
  }
};

}  // namespace shardsim
