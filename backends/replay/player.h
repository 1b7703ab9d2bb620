// Plays a schedule on a device, call by call, in the host's order: streams and events are the
// device's own, buffers follow the schedule's allocations and frees, placed by the same model of the
// caching allocator that predicts memory, here with real segments and real events.
//
// Kernels have no data: they work on scratch memory, with the bytes and FLOPs of the schedule.
// Collectives have: where the schedule names their tensors they run on these buffers, and in the
// steps that are checked the data is (pattern.h).
//
// Worked example: 1 + 2 + 5 steps of a schedule, checked_steps 3, timed_from 3: the data of the
// preparations and of steps 0 to 2 is checked, all ranks meet, steps 3 to 7 are timed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/replay/device.h"
#include "sim/memory/allocator_settings.h"
#include "sim/memory/caching_allocator.h"
#include "sim/schedule/trace.h"

namespace shardsim {

struct PlayOptions {
  AllocatorSettings allocator;
  DeviceMemory memory;    // as the model of the allocator sees the device
  int checked_steps = 1;  // data is checked before and in that many first steps
  int timed_from = 1;     // step before which all ranks meet
};

struct Failure {
  Stopped::Why why = Stopped::Why::fault;
  std::string what;
};

struct Replay {
  Trace trace;             // by launch; start and end 0 where `done` says that it did not end
  std::vector<bool> done;  // by launch
  uint32_t issued = 0;     // launches that the host came to
  std::optional<Failure> failure;
  int64_t checked = 0;                                    // collectives whose data was compared
  std::vector<std::pair<uint32_t, int64_t>> differences;  // launch, elements
  Environment environment;
};

// Whatever happens on the way is in the result; what was measured until then too.
Replay play(const Schedule& schedule, Device& device, const PlayOptions& options);

// Where a rank stood: a line a stream, the last launch that ended and the first that did not.
std::vector<std::string> progress(const Schedule& schedule, const Replay& replay);

}  // namespace shardsim
