// What happened when a backend played a schedule: device times by launch, host times, memory at each
// mark. Launches are numbered in the order they are played (Schedule::for_each). Times are absolute,
// from the start of the run.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/base/units.h"
#include "sim/schedule/instruction.h"

namespace shardsim {

struct MarkRow {
  uint32_t mark = 0;      // index into Schedule::marks
  uint32_t launches = 0;  // launches issued before it
  Time host;
  Bytes allocated = 0;       // live bytes, each buffer rounded up to 512
  Bytes allocated_peak = 0;  // since the step began
};

struct Trace {
  std::vector<Time> start, end;  // by launch, on the device
  std::vector<Time> issued;      // by launch: the host's now at the call
  std::vector<MarkRow> marks;

  Bytes peak = 0;                                   // highest live bytes of the last step played
  std::array<Bytes, kCategories> peak_by_category{};  // who held them then
  uint32_t peak_mark = 0;  // row of `marks` that ends the phase it fell in
};

}  // namespace shardsim
