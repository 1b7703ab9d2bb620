#include "sim/study/steady.h"

#include <algorithm>
#include <utility>

namespace shardsim {
namespace {

// What the host's calls that are only sometimes made take, all together.
Time sometimes(const Schedule& schedule, size_t begin, size_t end, const HostCosts& host) {
  Time sum;
  for (size_t k = begin; k < end; ++k) {
    const Segment& s = schedule.segments[k];
    for (uint32_t i = s.begin; i < s.end; ++i) {
      const Kind kind = schedule.code[i].kind;
      if (kind == Kind::WaitUnlessDone) sum += host[HostCall::wait];
      if (kind == Kind::PinnedTake) sum += host[HostCall::other];
    }
  }
  return sum;
}

// The clocks that are the latest.
bool same_latest(const Machine::State& a, const Machine::State& b) {
  return std::equal(a.lag.begin(), a.lag.end(), b.lag.begin(), b.lag.end(),
                    [](Time x, Time y) { return (x == Time{}) == (y == Time{}); });
}

}  // namespace

void Steady::stepped(const Machine& machine, const CostTable& costs, const Trace& trace) {
  const Machine::State state = machine.state();
  const Time now = machine.now(), length = now - now_, lead = now - machine.host();
  begin_ = end_;
  end_ = end_of(schedule_);
  const bool first = length_ < Time{};
  repeated_ = !first && length == length_ &&
              (state == state_ || (state == before_ && length == length_before_));
  device_decides_ =
      !first && machine.allocator() == nullptr && device_alone(state, lead, costs, trace);
  before_ = std::exchange(state_, state);
  now_ = now;
  length_before_ = std::exchange(length_, length);
  lead_ = lead;
  launches_ = trace.start.size();
}

// With the ends before the last step still in the members.
bool Steady::device_alone(const Machine::State& state, Time lead, const CostTable& costs,
                          const Trace& trace) const {
  if (state.live != state_.live || !same_latest(state, state_)) return false;
  Time ahead = Time::max();  // the host, at the launch where it was so least
  for (size_t l = launches_; l < trace.start.size(); ++l) {
    if (trace.start[l] < now_) return false;
    ahead = std::min(ahead, trace.start[l] - trace.issued[l]);
  }
  const Time lost = std::max(Time{}, lead_ - lead);
  return ahead > lost + sometimes(schedule_, begin_.segments, end_.segments, costs.host);
}

}  // namespace shardsim
