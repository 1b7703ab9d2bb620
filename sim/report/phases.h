// The phases of a step, told by its marks: each forward, each backward, and the optimizer (clipping,
// the update and zero_grad) after them. With gradient accumulation the passes' times add up.
//
//   time of a phase   from the last end of what was issued before it to the last end of what was
//                     issued in it, on the device, or of what the host itself worked in it; so the
//                     phases add up to the step
// Worked number: kernels of 10 us and 20 us in the forward, an all-gather [20, 50) issued in the
// backward and a kernel [50, 60) after it: forward 30 us, backward 30 us.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/report/timeline.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/trace.h"

namespace shardsim {

enum class Phase : uint8_t { forward, backward, optimizer };
inline constexpr int kPhases = 3;
std::string_view name_of(Phase phase);
// Of the stretch that ends with a mark, by its name: "step1.0.after_forward".
Phase phase_before(std::string_view mark);

struct PhaseWindow {
  Phase phase = Phase::forward;
  Time start, end;
  uint32_t end_launch = 0;
};

// Of one step of a trace, in order; they fill it.
std::vector<PhaseWindow> phase_windows(const Schedule& schedule, const Trace& trace,
                                       const StepTimes& step);

}  // namespace shardsim
