// Why communication is exposed: for each interval in which a collective runs and no compute does,
// what the compute stream was waiting for. On demand: it needs the schedule graph.
//
// For an interval [a, b) take the first compute launch of the compute stream at or after b and walk
// back from it along what held it last (of its edges in the graph, the one that ends latest) until
// before a. Each stretch of the interval belongs to the work that then held the chain:
//   event          a work that the compute stream waits for, through an event or on its own stream
//   communicator   a collective that held back the next on its communicator
//   host           the launch had not been issued yet: the host was at other calls, or at work itself
//                  (the CPU's optimizer), which is then named; where it waited for the device the walk
//                  goes on from what it waited for
//   end_of_step    no compute follows in the step
// Worked number: gathers A [0, 30) and B [30, 60) on one communicator, compute from 60 on waits for
// B: [0, 30) waits on A, cause communicator; [30, 60) on B, cause event.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/report/timeline.h"
#include "sim/schedule/graph/schedule_graph.h"

namespace shardsim {

enum class Cause : uint8_t { event, communicator, host, end_of_step };
std::string_view name_of(Cause cause);

struct Exposed {
  Time start, duration;  // start counts from the start of the step
  uint32_t vertex = 0;   // the work waited for; 0 where there is none
  Cause cause = Cause::event;
  std::string waiting_on;  // "all_gather layers.3", "CPU optimizer", "host"
};

// In order of start. Group names by GroupId, for waiting_on.
std::vector<Exposed> explain_exposed(const Timeline& timeline, const Schedule& schedule,
                                     const Trace& trace, const ScheduleGraph& graph,
                                     std::span<const std::string> groups);

}  // namespace shardsim
