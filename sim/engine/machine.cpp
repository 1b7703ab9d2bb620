#include "sim/engine/machine.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/memory/mark_row.h"

namespace shardsim {

// The device as the allocator sees it: an event is what its policy says one is.
class Machine::Clock final : public DeviceClock {
 public:
  explicit Clock(Machine& machine) : m_(machine) {}
  int64_t record(StreamId stream) override {
    const int64_t e =
        m_.shared_ ? m_.shared_->record(stream, m_.host_) : m_.in_order_.record(stream, m_.host_);
    m_.host_ += cost[HostCall::record];
    return e;
  }
  bool done(int64_t event) override {
    return m_.shared_ ? m_.shared_->passed(event, m_.host_) : Time{event} <= m_.host_;
  }
  void wait(int64_t event) override {
    synchronize(m_.shared_ ? m_.shared_->when(event) : Time{event});
  }
  void wait_stream(StreamId stream) override {
    synchronize(m_.shared_ ? m_.shared_->idle(stream) : m_.in_order_.idle(stream));
  }
  void called(DeviceCall what, Bytes) override {
    if (what != DeviceCall::refused) m_.host_ += cost[HostCall::malloc];
  }
  HostCosts cost;

 private:
  void synchronize(Time until) { m_.host_ = std::max(m_.host_ + cost[HostCall::sync], until); }
  Machine& m_;
};

Machine::Machine() : pinned_(64) {}

Machine::Machine(const AllocatorSettings& settings, const DeviceMemory& device) : Machine() {
  clock_ = std::make_unique<Clock>(*this);
  allocator_ = std::make_unique<CachingAllocator>(settings, device, *clock_);
}

Machine::~Machine() = default;

Time Machine::now() const {
  Time latest = host_;
  for (Time t : streams()) latest = std::max(latest, t);
  return latest;
}

Machine::State Machine::state() const {
  State s;
  s.live = live_;
  s.layout = allocator_ ? allocator_->layout_digest() : 0;
  const std::vector<Time>& comms = shared_ ? shared_->comms() : in_order_.comms();
  s.lag.reserve(streams().size() + comms.size() + 1);
  const Time latest = now();
  const auto lag = [&](Time t) { return t > Time{} ? latest - t : Time{-1}; };  // -1: never used
  for (Time t : streams()) s.lag.push_back(lag(t));
  for (Time t : comms) s.lag.push_back(lag(t));
  // A host that is ahead of the device does not decide anything, however far ahead.
  Time first = latest;
  for (Time t : streams())
    if (t > Time{}) first = std::min(first, t);
  s.lag.push_back(host_ < first ? Time{-1} : latest - host_);
  return s;
}

// False where the run ends: memory has run out, or the wanted reserved bytes are reached.
bool Machine::allocate(BufferId id, const Buffer& buffer, Time& host, Trace& trace) {
  host_ = host;
  const bool ok = allocator_->alloc(id.v, buffer.bytes, buffer.pool);
  host = host_;
  if (ok) {
    if (observer_ != nullptr && buffer.bytes > 0) observer_->allocated(*allocator_, id.v);
    stopped_ = allocator_->reserved() >= stop_at_;
    return !stopped_;
  }
  const OutOfMemory& oom = allocator_->out_of_memory();
  MemoryFailure f;
  f.buffer = id.v;
  f.marks = static_cast<uint32_t>(trace.marks.size());
  f.requested = buffer.bytes;
  const Bytes room = oom.allowed ? std::min(oom.free, *oom.allowed - oom.reserved) : oom.free;
  f.missing = oom.tried - room;
  f.active_peak = allocator_->statistics().peak(AllocatorStatistics::active_bytes);
  f.reserved = oom.reserved;
  f.message = oom.text();
  trace.out_of_memory = std::move(f);
  return false;
}

// Frees what the exception's way up lets go: see Unwinds.
void Machine::unwind(const Schedule& schedule, size_t segment, uint32_t instr, Trace& trace) {
  std::vector<BufferId> alive;
  for (size_t k = phase_segment_; k <= segment; ++k) {
    const Segment& s = schedule.segments[k];
    for (uint32_t i = s.begin; i < (k == segment ? instr : s.end); ++i) {
      const Instr& in = schedule.code[i];
      if (in.kind == Kind::Mark) alive.clear();
      if (in.kind != Kind::Alloc && in.kind != Kind::Free) continue;
      const BufferId id = s.buffer(in);
      const Buffer& b = schedule.buffers[id.v];
      const bool goes =
          b.unwinds == Unwinds::always || (b.unwinds == Unwinds::in_its_region && k == segment);
      if (!goes || b.bytes == 0) continue;
      if (in.kind == Kind::Alloc)
        alive.push_back(id);
      else
        std::erase(alive, id);
    }
  }
  for (BufferId id : alive) allocator_->free(id.v);
  fill(trace.out_of_memory->unwound, *allocator_);
}

void Machine::play(const Schedule& schedule, const CostTable& costs, Trace& trace) {
  event_.resize(schedule.events);
  size_t total = 0;
  for (size_t i = next_segment_; i < schedule.segments.size(); ++i)
    total += schedule.segments[i].end - schedule.segments[i].begin;
  trace.start.reserve(trace.start.size() + total);
  trace.end.reserve(trace.end.size() + total);
  trace.issued.reserve(trace.issued.size() + total);
  if (!costs.demand.empty()) trace.slowed.reserve(trace.slowed.size() + total);

  if (trace.out_of_memory || stopped_) return;
  if (clock_) clock_->cost = costs.host;
  const size_t works = schedule.works.size();
  SHARDSIM_ASSERT(costs.host_work.empty() || costs.host_work.size() >= schedule.host_works.size(),
                  "all that the host does has a price, or nothing");
  SHARDSIM_ASSERT(costs.work.size() >= works && costs.launch.size() >= works,
                  "every work has a price");
  if (costs.demand.empty()) {
    SHARDSIM_ASSERT(!shared_, "a machine keeps its policy");
    run(in_order_, schedule, costs, trace);
    return;
  }
  SHARDSIM_ASSERT(costs.demand.size() >= works, "every work has a demand");
  if (!shared_) shared_ = std::make_unique<Shared>();
  run(*shared_, schedule, costs, trace);
  shared_->end();
}

template <class Device>
void Machine::run(Device& device, const Schedule& schedule, const CostTable& costs, Trace& trace) {
  device.begin(schedule, costs, trace);
  const Instr* const code = schedule.code.data();
  const Work* const works = schedule.works.data();
  const Time* const launch = costs.launch.data();
  const Time record = costs.host[HostCall::record], wait = costs.host[HostCall::wait];
  const Time sync = costs.host[HostCall::sync], call = costs.host[HostCall::other];
  Time host = host_;
  Bytes live = live_, peak = peak_;

  for (; next_segment_ < schedule.segments.size(); ++next_segment_) {
    const Segment& segment = schedule.segments[next_segment_];
    for (uint32_t i = segment.begin; i < segment.end; ++i) {
      const Instr in = code[i];
      switch (in.kind) {
        case Kind::Launch:
          device.launch(in.stream, in.a, host);
          trace.issued.push_back(host);
          ++launches_;
          host += launch[in.a];
          if (is_collective(works[in.a].kind)) looked_ = host + record;  // of its end
          break;
        case Kind::Record:
          event_[segment.event(in).v] = device.record(in.stream, host);
          host += record;
          break;
        case Kind::Wait:
          device.wait(in.stream, event_[segment.event(in).v]);
          host += wait;
          break;
        case Kind::WaitUnlessDone: {
          const bool done = device.passed(event_[in.a], in.looked != 0 ? looked_ : host);
          if (in.looked != 0) trace.left_out.push_back(done);
          if (done) break;
          device.wait(in.stream, event_[in.a]);
          host += wait;
          break;
        }
        // A synchronizing call's own cost runs while it waits.
        case Kind::HostCalls:
          for (uint32_t k = 0; k < in.a; ++k) host += call;
          break;
        case Kind::HostWork: {
          const Time start = host;
          if (!costs.host_work.empty()) host += costs.host_work[in.a];
          trace.worked.push_back({start, host});
          break;
        }
        case Kind::HostWait:
          trace.reached.push_back(host + sync);
          host = std::max(host + sync, device.when(event_[in.a]));
          break;
        case Kind::StreamSync:
          trace.reached.push_back(host + sync);
          host = std::max(host + sync, device.idle(in.stream));
          break;
        case Kind::EventPush: queues_[in.stream].push_back(in.a); break;
        case Kind::EventLimit: {
          std::deque<uint32_t>& queue = queues_[in.stream];
          while (!queue.empty() && device.passed(event_[queue.front()], host)) queue.pop_front();
          trace.limited.push_back(queue.size() > in.a ? queue.front() : Trace::kNoEvent);
          if (queue.size() <= in.a) break;
          host = std::max(host + sync, device.when(event_[queue.front()]));
          queue.pop_front();
          break;
        }
        case Kind::DeviceSync:
          trace.reached.push_back(host + sync);
          host = std::max(host + sync, device.all_idle());
          break;
        case Kind::AllocOnce:
          if (std::find(kept_.begin(), kept_.end(), in.a) != kept_.end()) break;
          kept_.push_back(in.a);
          [[fallthrough]];
        case Kind::Alloc: {
          const BufferId id = segment.buffer(in);
          const Buffer& b = schedule.buffers[id.v];
          if (allocator_ && !allocate(id, b, host, trace)) {
            const auto failed_at = static_cast<uint32_t>(next_segment_);
            next_segment_ = schedule.segments.size();
            host_ = host;
            live_ = live;
            peak_ = peak;
            trace.peak_by_category = by_category_;
            trace.peak_segment = failed_at;
            trace.peak_instr = i;
            if (trace.out_of_memory) unwind(schedule, failed_at, i, trace);
            return;
          }
          const Bytes bytes = round_block(b.bytes);
          live += bytes;
          by_category_[static_cast<size_t>(b.category)] += bytes;
          peak = std::max(peak, live);
          if (live > trace.peak) {
            trace.peak = live;
            trace.peak_by_category = by_category_;
            trace.peak_mark = static_cast<uint32_t>(trace.marks.size());
            trace.peak_segment = static_cast<uint32_t>(next_segment_);
            trace.peak_instr = i;
          }
          break;
        }
        case Kind::Free: {
          const BufferId id = segment.buffer(in);
          const Buffer& b = schedule.buffers[id.v];
          if (allocator_) {
            if (observer_ != nullptr && b.bytes > 0) observer_->freeing(*allocator_, id.v);
            host_ = host;
            allocator_->free(id.v);
            host = host_;
          }
          const Bytes bytes = round_block(b.bytes);
          live -= bytes;
          by_category_[static_cast<size_t>(b.category)] -= bytes;
          break;
        }
        case Kind::UseOn:
          if (allocator_ && schedule.buffers[segment.buffer(in).v].bytes > 0)
            allocator_->record_stream(segment.buffer(in).v, in.stream);
          break;
        case Kind::EmptyCache:
          if (in.a == 1) peak = live;
          if (!allocator_) break;
          host_ = host;
          allocator_->empty_cache();
          host = host_;
          if (in.a == 1) allocator_->reset_peaks();
          break;
        case Kind::PinnedTake: {
          PinnedPool& pool = pinned_[in.a];
          if (pool.head < pool.free_at.size() && device.passed(pool.free_at[pool.head], host))
            ++pool.head;
          else
            host += call;
          break;
        }
        case Kind::PinnedRelease:
          pinned_[in.a].free_at.push_back(device.record(in.stream, host));
          host += record;
          break;
        case Kind::Mark: {
          MarkRow& row = trace.marks.emplace_back();
          row.mark = in.a;
          row.launches = launches_;
          row.worked = static_cast<uint32_t>(trace.worked.size());
          row.host = host;
          row.allocated = live;
          row.allocated_peak = peak;
          if (allocator_) fill(row, *allocator_);
          phase_segment_ = next_segment_;
          if (schedule.marks[in.a].begins_step) {
            peak = live;
            if (allocator_) allocator_->reset_peaks();
          }
          host += call;
          break;
        }
      }
    }
  }
  host_ = host;
  live_ = live;
  peak_ = peak;
}

}  // namespace shardsim
