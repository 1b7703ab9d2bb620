#include "sim/engine/shared_device.h"

#include <algorithm>
#include <bit>

#include "sim/base/error.h"

namespace shardsim {
namespace {

constexpr int kSpeedBits = 20;
constexpr uint32_t kFullSpeed = 1U << kSpeedBits;

// t x speed, rounded down; any t.
int64_t progress(int64_t t, uint32_t speed) {
  return (t >> kSpeedBits) * speed + ((t & (kFullSpeed - 1)) * speed >> kSpeedBits);
}

// How long `work` takes, rounded up.
int64_t duration(int64_t work, uint32_t speed) {
  const int64_t whole = work / speed, rest = work % speed;
  return (whole << kSpeedBits) + ((rest << kSpeedBits) + speed - 1) / speed;
}

constexpr Time kUnknown = Time::max();

template <class F>
void each_bit(uint64_t bits, F&& f) {
  for (; bits != 0; bits &= bits - 1) f(static_cast<size_t>(std::countr_zero(bits)));
}

constexpr uint64_t bit(size_t s) { return uint64_t{1} << s; }

}  // namespace

void SharedDevice::begin(const Schedule& schedule, const CostTable& costs, Trace& trace) {
  works_ = schedule.works.data();
  costs_ = &costs;
  trace_ = &trace;
  stream_.resize(std::max(stream_.size(), schedule.streams.size()));
  SHARDSIM_ASSERT(stream_.size() <= kMostInFlight, "a rank has few streams");
  comm_.resize(schedule.comms.size());
}

bool SharedDevice::add(StreamId stream, What what, uint32_t id, uint32_t work, Time issued) {
  uint32_t turn = 0;
  if (what == What::launch && collective(work)) turn = comm_[works_[work].comm.v].issued++;
  if (what == What::record) event_.push_back(kUnknown);
  stream_[stream].queue.push_back({issued, id, work, turn, what});
  look(stream);
  return (startable_ & bit(stream)) == 0 || stream_[stream].at >= clock_;
}

bool SharedDevice::passed(uint32_t event, Time at) {
  if (event_[event] == kUnknown) advance(at);
  return event_[event] <= at;
}

Time SharedDevice::when(uint32_t event) {
  while (event_[event] == kUnknown && step(kUnknown)) {
  }
  SHARDSIM_ASSERT(event_[event] != kUnknown, "what the host waits for comes");
  return event_[event];
}

Time SharedDevice::idle(StreamId stream) {
  Stream& s = stream_[stream];
  while ((s.head < s.queue.size() || (running_ & bit(stream)) != 0) && step(kUnknown)) {
  }
  return s.ready;
}

Time SharedDevice::all_idle() {
  advance(kUnknown);
  Time latest{};
  for (const Stream& s : stream_) latest = std::max(latest, s.ready);
  return latest;
}

void SharedDevice::ready(std::vector<Time>& streams, std::vector<Time>& comms) const {
  streams.clear();
  for (const Stream& s : stream_) streams.push_back(s.ready);
  comms.clear();
  for (const Comm& c : comm_) comms.push_back(c.ready);
}

bool SharedDevice::step(Time limit) {
  Time now = kUnknown;
  each_bit(running_ | startable_, [&](size_t s) { now = std::min(now, stream_[s].at); });
  if (now > limit || now == kUnknown) return false;
  clock_ = now;
  each_bit(running_, [&](size_t s) {
    if (stream_[s].at == now) finish(s);
  });
  each_bit(startable_, [&](size_t s) {
    if (stream_[s].at == now) start(s);
  });
  set_speeds(now);
  return true;
}

void SharedDevice::finish(size_t index) {
  Stream& s = stream_[index];
  running_ &= ~bit(index);
  s.ready = s.at;
  trace_->end[s.launch] = s.at;
  trace_->slowed[s.launch] = s.at - trace_->start[s.launch] - costs_->work[s.work];
  if (collective(s.work)) {
    Comm& c = comm_[works_[s.work].comm.v];
    c.ready = s.at;
    ++c.over;
    wake(works_[s.work].comm.v, true);
  }
  look(index);
}

void SharedDevice::start(size_t index) {
  Stream& s = stream_[index];
  const Item item = s.queue[s.head++];
  startable_ &= ~bit(index);
  running_ |= bit(index);
  s.launch = item.id;
  s.work = item.work;
  s.since = s.at;
  s.left = costs_->work[item.work];
  s.speed = kFullSpeed;
  trace_->start[item.id] = s.at;
  s.at += s.left;
}

void SharedDevice::look(size_t index) {
  if (((running_ | startable_ | blocked_) & bit(index)) != 0) return;
  Stream& s = stream_[index];
  while (s.head < s.queue.size()) {
    const Item& item = s.queue[s.head];
    if (item.what == What::wait) {
      const Time at = event_[item.id];
      if (at == kUnknown) {
        s.waits_for = item.id;
        s.for_turn = false;
        blocked_ |= bit(index);
        return;
      }
      s.ready = std::max(s.ready, at);
    } else if (item.what == What::record) {
      const uint32_t e = item.id;
      event_[e] = std::max(s.ready, item.issued);
      ++s.head;
      wake(e, false);
      continue;
    } else {
      s.at = std::max(s.ready, item.issued);
      if (collective(item.work)) {
        const uint32_t comm = works_[item.work].comm.v;
        if (comm_[comm].over != item.turn) {
          s.waits_for = comm;
          s.for_turn = true;
          blocked_ |= bit(index);
          return;
        }
        s.at = std::max(s.at, comm_[comm].ready);
      }
      startable_ |= bit(index);
      return;
    }
    ++s.head;
  }
  s.queue.clear();
  s.head = 0;
}

void SharedDevice::wake(uint32_t what, bool turn) {
  each_bit(blocked_, [&](size_t s) {
    if (stream_[s].waits_for != what || stream_[s].for_turn != turn) return;
    blocked_ &= ~bit(s);
    look(s);
  });
}

void SharedDevice::set_speeds(Time now) {
  if (running_ == 0) return;
  if ((running_ & (running_ - 1)) == 0) {
    set_speed(stream_[static_cast<size_t>(std::countr_zero(running_))], kFullSpeed, now);
    return;
  }
  std::array<const Demand*, kMostInFlight> demand;
  std::array<double, kMostInFlight> speed;
  size_t n = 0;
  each_bit(running_, [&](size_t s) { demand[n++] = &costs_->demand[stream_[s].work]; });
  share(costs_->sharing, {demand.data(), n}, {speed.data(), n});
  n = 0;
  each_bit(running_, [&](size_t s) {
    const auto q = static_cast<uint32_t>(speed[n++] * kFullSpeed + .5);
    set_speed(stream_[s], std::max(1U, q), now);
  });
}

void SharedDevice::set_speed(Stream& s, uint32_t speed, Time now) {
  if (speed == s.speed) return;
  s.left = s.left - Time{progress((now - s.since).ps, s.speed)};
  s.since = now;
  s.speed = speed;
  s.at = now + Time{duration(s.left.ps, speed)};
}

}  // namespace shardsim
