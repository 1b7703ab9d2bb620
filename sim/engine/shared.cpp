#include "sim/engine/shared.h"

#include <utility>

#include "sim/base/error.h"

namespace shardsim {

void Shared::begin(const Schedule& schedule, const CostTable& costs, Trace& trace) {
  trace_ = &trace;
  device_.begin(schedule, costs, trace);
  if (ahead_) certain_.begin(schedule, costs, trace);
}

void Shared::end() {
  if (!ahead_) {
    ahead_ = true;
    certain_ = device_;
    since_.clear();
  }
  device_.advance(Time::max());
  device_.ready(stream_end_, comm_end_);
}

void Shared::add(StreamId stream, What what, uint32_t id, uint32_t work, Time host) {
  if (ahead_) since_.push_back({host, id, work, stream, what});
  if (device_.add(stream, what, id, work, host)) return;
  SHARDSIM_ASSERT(ahead_, "the device is not ahead of the host");
  go_back();
}

// To a device that is not ahead, and does not get ahead of the host's looks on the way.
void Shared::go_back() {
  ahead_ = false;
  std::swap(device_, certain_);
  for (const Issued& i : since_) device_.add(i.stream, i.what, i.id, i.work, i.issued);
}

void Shared::launch(StreamId stream, uint32_t work, Time host) {
  const auto launch = static_cast<uint32_t>(trace_->start.size());
  trace_->start.push_back(Time::max());
  trace_->end.push_back(Time::max());
  trace_->slowed.push_back({});
  add(stream, What::launch, launch, work, host);
}

Shared::Event Shared::record(StreamId stream, Time host) {
  const uint32_t e = device_.events();
  add(stream, What::record, e, 0, host);
  return e;
}

void Shared::wait(StreamId stream, Event e) {
  add(stream, What::wait, static_cast<uint32_t>(e), 0, {});
}

}  // namespace shardsim
