// What one step of a schedule does, as one number: two schedules whose steps have the same fingerprint
// launch the same works on the same streams in the same order, with the same waits and allocations, so
// that launch n of one is launch n of the other. It says nothing of time.
//
// FNV-1a over 64-bit words: of each instruction between the step's mark and the next one its kind, stream
// and operand; of a launch the work itself (types, sizes, group, communicator, name). Events and
// buffers count by their first use in the step, so any two steady steps agree, whatever step it is and
// however many are laid out.
#pragma once

#include <cstdint>
#include <string>

#include "sim/schedule/schedule.h"

namespace shardsim {

// step counts from 0, in the order laid out; -1: the last one.
uint64_t step_fingerprint(const Schedule& schedule, int step = -1);

// As files say it: 16 hexadecimal digits.
std::string fingerprint_text(uint64_t fingerprint);

}  // namespace shardsim
