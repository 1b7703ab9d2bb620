// What one step's trace amounts to: busy time by kind, exposed communication, host-bound time.
// It is on a sweep's path: one pass over the launches, dense arrays, nothing allocated per launch,
// and nothing at all when a Timeline is built again for a schedule of the same size.
//
// Definitions, over the window [start, end) of a step:
//   end           the last end of the launches issued before the next step's mark, and of what the
//                 host itself worked before it (the CPU's optimizer)
//   start         the end of the step before it; for the first step the later of the host's time at
//                 its mark and the last end of what ran earlier. So steps add up to the run, and
//                 the steady step is the period.
//   compute       kernels and products, on any stream; comm: collectives; copy: copies and memsets
//   exposed_comm  a collective runs and no compute does, on any stream; copies do not count as
//                 compute
//   overlap       1 - exposed_comm / comm_busy; 1 where nothing communicates
//   slowed        how much longer the works of the compute stream took than each alone
//   host_bound    the compute stream is idle and its next launch has not been issued yet
//   host_worked   the host worked itself: part of host_bound where nothing ran meanwhile
// Busy times are of the union of intervals: two collectives at once count once. The time and the
// exposed part of each collective are its own, so those may add up to more.
// Worked number: compute [0, 10) and [25, 35), a collective [10, 30) on another stream:
// compute_busy 20, comm_busy 20, exposed 15 ([10, 25)), overlap 0.25.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/units.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/streams.h"
#include "sim/schedule/trace.h"

namespace shardsim {

enum class Busy : uint8_t { compute, comm, copy };
inline constexpr int kBusyKinds = 3;

constexpr Busy busy_of(WorkKind k) {
  return is_compute(k) ? Busy::compute : is_collective(k) ? Busy::comm : Busy::copy;
}

struct Interval {
  Time start, end;
  friend bool operator==(const Interval&, const Interval&) = default;
};

struct StepTimes {
  int step = 0;
  uint32_t first_launch = 0, end_launch = 0;
  uint32_t first_worked = 0, end_worked = 0;  // in Trace::worked
  Time start, end;
  Time compute_busy, comm_busy, copy_busy;
  Time exposed_comm;
  Time host_bound;
  Time host_worked;
  Time slowed;  // what sharing added to the works of the compute stream

  Time length() const { return end - start; }
  double overlap_fraction() const {
    return comm_busy.ps == 0
               ? 1.0
               : 1.0 - static_cast<double>(exposed_comm.ps) / static_cast<double>(comm_busy.ps);
  }
  double host_bound_fraction() const {
    return length().ps == 0 ? 0.0
                            : static_cast<double>(host_bound.ps) / static_cast<double>(length().ps);
  }
};

struct CollectiveTime {
  uint32_t launch = 0;
  WorkId work;
  Time time, exposed;
};

// Steps that the trace played: one after each row that Schedule::step_follows.
int steps_played(const Schedule& schedule, const Trace& trace);

class Timeline {
 public:
  // step counts from 0, in the order played; it must have been played.
  void build(const Schedule& schedule, const Trace& trace, int step);

  const StepTimes& times() const { return times_; }
  // Coalesced, in order, clipped to the step. Over all streams:
  std::span<const Interval> compute() const { return union_[0]; }
  std::span<const Interval> comm() const { return union_[1]; }
  std::span<const Interval> exposed() const { return exposed_; }
  // Of one stream, by kind.
  std::span<const Interval> busy(StreamId stream, Busy kind) const;
  std::span<const CollectiveTime> collectives() const { return collectives_; }

 private:
  struct Lane {
    Time start, end{INT64_MIN};
    std::vector<Interval> done;
  };
  struct Cursor {
    size_t lane, next;
  };

  Lane& lane(size_t stream, size_t kind);
  void pick(const Schedule& schedule);
  void scan(const Trace& trace);
  void unite(Busy kind, std::vector<Interval>& out);
  void expose();
  void expose_each(const Trace& trace);

  StepTimes times_;
  std::vector<Instr> picked_;  // the step's launches, from first_picked_ on
  size_t first_picked_ = 0;
  std::vector<Lane> lanes_;  // stream x kind
  std::vector<Interval> union_[kBusyKinds];
  std::vector<Interval> exposed_;
  std::vector<CollectiveTime> collectives_;
  std::vector<StreamId> collective_stream_;
  std::vector<Busy> kind_of_work_;
  std::vector<Cursor> cursors_;
  std::vector<size_t> reached_;
};

}  // namespace shardsim
