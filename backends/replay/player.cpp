#include "backends/replay/player.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>

#include "backends/replay/communicators.h"
#include "backends/replay/regions.h"
#include "sim/base/error.h"
#include "sim/memory/mark_row.h"

namespace shardsim {

namespace {

class Player final : DeviceClock, AllocatorLog {
 public:
  Player(const Schedule& schedule, Device& device, const PlayOptions& options, Replay& out)
      : schedule_(schedule),
        device_(device),
        options_(options),
        out_(out),
        allocator_(options.allocator, options.memory, *this),
        tensors_(schedule) {
    allocator_.set_log(this);
  }
  ~Player() override {
    for (void* s : segments_)
      if (s != nullptr) device_.release(s);
    for (void* s : staging_)
      if (s != nullptr) device_.release(s);
  }

  void run() {
    device_.prepare(plan());
    reserve_staging();
    device_.barrier();
    for (const Segment& s : schedule_.segments)
      for (uint32_t i = s.begin; i < s.end; ++i) step(schedule_.code[i], s, i);
    device_.synchronize();
  }

 private:
  DevicePlan plan() const;
  void reserve_staging();
  void step(const Instr& in, const Segment& s, uint32_t code);
  void launch(const Instr& in, const Segment& s, uint32_t code);
  void collective(StreamId stream, const Work& w, const CollectiveTensors* tensors);
  void* address(BufferId b, Bytes bytes) const;
  void allocate(BufferId b);
  void look();
  void mark(uint32_t index);
  bool checks() const { return steps_begun_ <= options_.checked_steps; }

  // The allocator's view of the device.
  uint32_t event() {
    if (spare_.empty()) return device_.make_event();
    const uint32_t e = spare_.back();
    spare_.pop_back();
    return e;
  }
  int64_t record(StreamId stream) override {
    const uint32_t e = event();
    device_.record(e, stream);
    return e;
  }
  // The allocator asks until the event has passed, and then never again.
  bool done(int64_t e) override {
    if (!device_.passed(static_cast<uint32_t>(e))) return false;
    spare_.push_back(static_cast<uint32_t>(e));
    return true;
  }
  void wait(int64_t e) override { device_.host_wait(static_cast<uint32_t>(e)); }
  void wait_stream(StreamId stream) override { device_.synchronize(stream); }
  void segment(const SegmentEvent& e) override;

  const Schedule& schedule_;
  Device& device_;
  const PlayOptions& options_;
  Replay& out_;
  CachingAllocator allocator_;
  TensorLookup tensors_;
  std::vector<void*> segments_;  // by number
  std::vector<void*> staging_;   // by communicator, for collectives without buffers
  std::vector<Bytes> staged_;    // bytes of half of it
  std::vector<uint32_t> spare_;
  std::vector<uint32_t> kept_;
  std::array<std::deque<uint32_t>, 2> queues_;
  std::vector<std::deque<uint32_t>> pinned_ = std::vector<std::deque<uint32_t>>(64);  // events
  std::vector<uint32_t> looking_;  // events of asynchronous collectives, not known to have passed
  std::vector<bool> over_;         // by event: known to have passed
  std::vector<bool> looked_;       // by event: a WaitUnlessDone looks at it
  int steps_begun_ = 0;
  Bytes live_ = 0;
};

DevicePlan Player::plan() const {
  DevicePlan p;
  for (size_t s = 0; s < schedule_.streams.size(); ++s)
    p.streams.push_back({schedule_.streams[s], (schedule_.high_priority >> s & 1) != 0});
  p.events = schedule_.events;
  p.comms = schedule_.comms;
  schedule_.for_each([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    ++p.slots;
    const Work& w = schedule_.works[in.a];
    if (!is_collective(w.kind)) p.largest_kernel = std::max(p.largest_kernel, w.bytes);
  });
  return p;
}

void Player::reserve_staging() {
  over_.assign(schedule_.events, false);
  looked_.assign(schedule_.events, false);
  staging_.assign(schedule_.comms.size(), nullptr);
  staged_.assign(schedule_.comms.size(), 0);
  schedule_.for_each([&](const Instr& in, const Segment&) {
    if (in.kind == Kind::WaitUnlessDone && in.looked != 0) looked_[in.a] = true;
    if (in.kind != Kind::Launch || !is_collective(schedule_.works[in.a].kind)) return;
    const Work& w = schedule_.works[in.a];
    staged_[w.comm.v] = std::max(staged_[w.comm.v], round_block(w.bytes));
  });
  for (size_t c = 0; c < staged_.size(); ++c) {
    if (staged_[c] == 0) continue;
    staging_[c] = device_.reserve(2 * staged_[c]);
    if (staging_[c] == nullptr)
      throw Stopped(Stopped::Why::out_of_memory,
                    fmt::format("the device has no {} bytes for collectives of {} that no buffer "
                                "of the schedule stands for",
                                2 * staged_[c], schedule_.comms[c].name));
  }
}

void Player::segment(const SegmentEvent& e) {
  if (segments_.size() <= e.segment) segments_.resize(e.segment + 1, nullptr);
  if (e.action == SegmentAction::free) {
    device_.release(segments_[e.segment]);
    segments_[e.segment] = nullptr;
    return;
  }
  SHARDSIM_ASSERT(e.action == SegmentAction::alloc, "expandable segments are refused before a run");
  segments_[e.segment] = device_.reserve(e.bytes);
  if (segments_[e.segment] == nullptr)
    throw Stopped(Stopped::Why::out_of_memory,
                  fmt::format("the device has no room for a segment of {} bytes where the model of "
                              "the allocator still sees {} free; {} are reserved",
                              e.bytes, allocator_.device_free() + e.bytes, allocator_.reserved()));
}

void Player::allocate(BufferId b) {
  const Buffer& buffer = schedule_.buffers[b.v];
  if (!allocator_.alloc(b.v, buffer.bytes, buffer.pool))
    throw Stopped(Stopped::Why::out_of_memory, allocator_.out_of_memory().text());
  live_ += round_block(buffer.bytes);
  out_.trace.peak = std::max(out_.trace.peak, live_);
}

// Where a buffer of at least that many bytes is now.
void* Player::address(BufferId b, Bytes bytes) const {
  if (!b.valid() || schedule_.buffers[b.v].bytes < bytes || !allocator_.holds(b.v)) return nullptr;
  const CachingAllocator::Place at = allocator_.place(b.v);
  return static_cast<char*>(segments_[at.segment]) + at.offset;
}

// In 2.15 issuing a collective looks whether those before it have ended.
void Player::look() {
  std::erase_if(looking_, [&](uint32_t e) {
    if (device_.passed(e)) over_[e] = true;
    return over_[e];
  });
}

void Player::collective(StreamId stream, const Work& w, const CollectiveTensors* tensors) {
  const uint32_t slot = out_.issued;
  const Membership m = membership(schedule_.comms[w.comm.v], device_.rank());
  const Bytes part = w.bytes / parts_of(w, schedule_.comms[w.comm.v]);
  const bool gathers = w.kind == WorkKind::AllGather, scatters = w.kind == WorkKind::ReduceScatter;
  Regions r;
  if (tensors != nullptr && tensors->in == tensors->out) {
    if (void* const at = address(tensors->in, w.bytes)) {
      void* const own = static_cast<char*>(at) + m.number * part;
      r = {gathers ? own : at, scatters ? own : at};
    }
  } else if (tensors != nullptr) {
    r = {address(tensors->in, gathers ? part : w.bytes),
         address(tensors->out, scatters ? part : w.bytes)};
  }
  if (r.in == nullptr || r.out == nullptr) {
    r.in = staging_[w.comm.v];
    r.out = static_cast<char*>(staging_[w.comm.v]) + staged_[w.comm.v];
  }
  const bool checked = checks() && w.bytes > 0;
  if (checked) device_.fill(stream, const_cast<void*>(r.in), data_sent(w, m, slot));
  device_.collective(stream, w, r, slot);
  if (checked && (w.kind != WorkKind::Reduce || m.number == w.root)) {
    device_.check(stream, r.out, data_received(w, m, slot), slot);
    ++out_.checked;
  }
  look();
}

void Player::launch(const Instr& in, const Segment& s, uint32_t code) {
  const Work& w = schedule_.works[in.a];
  out_.trace.issued.push_back(device_.now());
  if (is_collective(w.kind)) {
    const CollectiveTensors* const t = tensors_.at(code);
    SHARDSIM_ASSERT(t == nullptr || s.event_shift == 0, "collectives are laid out in place");
    collective(in.stream, w, t);
  } else {
    device_.launch(in.stream, w, out_.issued);
  }
  ++out_.issued;
}

void Player::mark(uint32_t index) {
  MarkRow& row = out_.trace.marks.emplace_back();
  row.mark = index;
  row.launches = out_.issued;
  row.host = device_.now();
  fill(row, allocator_);
  if (!schedule_.marks[index].begins_step) return;
  allocator_.reset_peaks();
  if (steps_begun_++ == options_.timed_from) device_.barrier();
}

void Player::step(const Instr& in, const Segment& s, uint32_t code) {
  const uint32_t e = s.event(in).v;
  switch (in.kind) {
    case Kind::Launch: return launch(in, s, code);
    case Kind::Record:
      if (looked_[e]) {
        over_[e] = false;
        looking_.push_back(e);
      }
      return device_.record(e, in.stream);
    case Kind::Wait: return device_.wait(in.stream, e);
    case Kind::WaitUnlessDone: {
      const bool done = in.looked != 0 ? over_[in.a] : device_.passed(in.a);
      if (in.looked != 0) out_.trace.left_out.push_back(done);
      if (!done) device_.wait(in.stream, in.a);
      return;
    }
    case Kind::HostCalls:
    case Kind::HostWork: return;
    case Kind::HostWait: return device_.host_wait(in.a);
    case Kind::StreamSync: return device_.synchronize(in.stream);
    case Kind::DeviceSync: return device_.synchronize();
    case Kind::EventPush: queues_[in.stream].push_back(in.a); return;
    case Kind::EventLimit: {
      std::deque<uint32_t>& queue = queues_[in.stream];
      while (!queue.empty() && device_.passed(queue.front())) queue.pop_front();
      out_.trace.limited.push_back(queue.size() > in.a ? queue.front() : Trace::kNoEvent);
      if (queue.size() <= in.a) return;
      device_.host_wait(queue.front());
      queue.pop_front();
      return;
    }
    case Kind::AllocOnce:
      if (std::find(kept_.begin(), kept_.end(), in.a) != kept_.end()) return;
      kept_.push_back(in.a);
      return allocate(s.buffer(in));
    case Kind::Alloc: return allocate(s.buffer(in));
    case Kind::Free:
      allocator_.free(s.buffer(in).v);
      live_ -= round_block(schedule_.buffers[s.buffer(in).v].bytes);
      return;
    case Kind::UseOn:
      if (schedule_.buffers[s.buffer(in).v].bytes > 0)
        allocator_.record_stream(s.buffer(in).v, in.stream);
      return;
    case Kind::EmptyCache:
      allocator_.empty_cache();
      if (in.a == 1) allocator_.reset_peaks();
      return;
    case Kind::PinnedTake: {
      std::deque<uint32_t>& pool = pinned_[in.a];
      if (!pool.empty() && device_.passed(pool.front())) {
        spare_.push_back(pool.front());
        pool.pop_front();
      } else {
        device_.pin(Bytes{1} << in.a);
      }
      return;
    }
    case Kind::PinnedRelease:
      pinned_[in.a].push_back(static_cast<uint32_t>(record(in.stream)));
      return;
    case Kind::Mark: return mark(in.a);
  }
}

}  // namespace

Replay play(const Schedule& schedule, Device& device, const PlayOptions& options) {
  Replay out;
  out.environment = device.environment();
  // The player's memory outlives the abort: what is under way may still write to it.
  Player player(schedule, device, options, out);
  try {
    player.run();
  } catch (const Stopped& e) {
    out.failure = Failure{e.why(), e.what()};
    device.abort(e.what());
  }
  const std::vector<LaunchTimes> times = device.times();
  for (const LaunchTimes& t : times) {
    out.trace.start.push_back(t.done ? t.start : Time{});
    out.trace.end.push_back(t.done ? t.end : Time{});
    out.done.push_back(t.done);
  }
  out.differences = device.differences();
  return out;
}

std::vector<std::string> progress(const Schedule& schedule, const Replay& replay) {
  struct Line {
    std::string last = "nothing", next;
  };
  std::vector<Line> lines(schedule.streams.size());
  uint32_t launch = 0;
  schedule.for_each([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    const uint32_t n = launch++;
    if (n >= replay.issued || n >= replay.done.size()) return;
    Line& line = lines[in.stream];
    const std::string what = fmt::format("{} {}", n, describe(schedule, schedule.works[in.a]));
    if (replay.done[n])
      line.last = what;
    else if (line.next.empty())
      line.next = what;
  });
  std::vector<std::string> out;
  for (size_t s = 0; s < lines.size(); ++s) {
    if (lines[s].last == "nothing" && lines[s].next.empty()) continue;
    out.push_back(fmt::format("{}: ended {}{}", schedule.streams[s], lines[s].last,
                              lines[s].next.empty() ? "" : "; under way " + lines[s].next));
  }
  return out;
}

}  // namespace shardsim
