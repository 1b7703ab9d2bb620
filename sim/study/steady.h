// When a run's next step will be as its last one was, so that it need not be played.
//
// Either the last step ended as it began, and was as long as the one before it; or as the one before it
// began, as blocks of memory that take turns do, and the three were as long. Or the device alone
// decides how long a step takes, wherever the host is: it was ahead at every launch of the last step, by
// more than it could lose in another; no launch began before all of the step before was over, and
// what is over last (streams and communicators) is the same at both ends. Then a step that issues the
// same takes as long. This sees a step earlier that a run is steady: at the end of the second.
//
// Worked number: where the host is ahead by 27 us at least, 26 waits of 1 us that were not made this time
// may be made the next; 27 could hold the device up (tests/unit/study_steady_test.cpp).
#pragma once

#include "sim/engine/machine.h"
#include "sim/schedule/step_end.h"

namespace shardsim {

class Steady {
 public:
  explicit Steady(const Schedule& schedule) : schedule_(schedule), end_(end_of(schedule)) {}

  // A step more was played.
  void stepped(const Machine& machine, const CostTable& costs, const Trace& trace);

  bool ended_as_it_began() const { return repeated_; }
  bool device_decides() const { return device_decides_; }
  // Of the last step.
  const StepEnd& begin() const { return begin_; }
  const StepEnd& end() const { return end_; }

 private:
  bool device_alone(const Machine::State& state, Time lead, const CostTable& costs,
                    const Trace& trace) const;

  const Schedule& schedule_;
  // At the last step's ends.
  StepEnd begin_, end_;
  Machine::State state_, before_;  // before_: where the step before the last one began
  Time now_, length_{-1}, length_before_{-1}, lead_;  // the host's, before everything is over
  size_t launches_ = 0;
  bool repeated_ = false, device_decides_ = false;
};

}  // namespace shardsim
