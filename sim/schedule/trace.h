// What happened when a backend played a schedule: device times by launch, host times, memory at each
// mark. Launches are numbered in the order they are played (Schedule::for_each). Times are absolute,
// from the start of the run.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/schedule/instruction.h"

namespace shardsim {

struct MarkRow {
  uint32_t mark = 0;      // index into Schedule::marks
  uint32_t launches = 0;  // launches issued before it
  Time host;
  Bytes allocated = 0;       // live: each buffer rounded up to 512; blocks: the blocks' sizes
  Bytes allocated_peak = 0;  // since the step began, as the other peaks
  // Level blocks.
  Bytes active = 0, active_peak = 0;
  Bytes reserved = 0, reserved_peak = 0;
  uint32_t worked = 0;  // works of the host itself that were done before it
};

// Where a run ended for want of memory (level blocks).
struct MemoryFailure {
  uint32_t buffer = 0;  // that found no room
  uint32_t marks = 0;   // rows of marks passed before
  Bytes requested = 0;
  Bytes active_peak = 0;  // since the step began
  Bytes reserved = 0;
  Bytes missing = 0;  // the segment's size less what was free of the device, or of what is allowed
  std::string message;  // PyTorch's
  MarkRow unwound;      // what is there when the exception has unwound the stack
};

struct Trace {
  std::vector<Time> start, end;  // by launch, on the device
  std::vector<Time> issued;      // by launch: the host's now at the call
  std::vector<Time> slowed;      // by launch: how much longer than alone; empty: nothing is shared
  // By wait of the host (HostWait, StreamSync, DeviceSync): its now after the call if all was over.
  std::vector<Time> reached;
  struct Worked {
    Time start, end;
  };
  std::vector<Worked> worked;  // by work of the host itself, in the order played
  std::vector<MarkRow> marks;
  std::vector<bool>
      left_out;  // by wait for an asynchronous collective: it had ended, and is no call

  // By limit of a queue of events: the event that the host waited for; kNoEvent: none.
  static constexpr uint32_t kNoEvent = UINT32_MAX;
  std::vector<uint32_t> limited;

  // Empty, with the memory it has.
  void clear() {
    start.clear();
    end.clear();
    issued.clear();
    slowed.clear();
    reached.clear();
    worked.clear();
    marks.clear();
    left_out.clear();
    limited.clear();
    peak = 0;
    peak_by_category = {};
    out_of_memory.reset();
    peak_mark = peak_segment = peak_instr = 0;
  }

  Bytes peak = 0;  // highest live bytes of the run; out of memory: at that moment
  std::array<Bytes, kCategories> peak_by_category{};  // who held them then
  std::optional<MemoryFailure> out_of_memory;
  uint32_t peak_mark = 0;  // row of `marks` that ends the phase it fell in
  // Played up to here, this instruction included, the peak is there.
  uint32_t peak_segment = 0, peak_instr = 0;
};

}  // namespace shardsim
