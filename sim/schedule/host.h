// The pen that writes a schedule: what a runtime calls reads like the calls PyTorch makes.
//   host.wait(kAllGather, e); host.collective(kAllGather, gather); EventId done = host.record(kAllGather);
// Every call appends one or a few instructions; nothing here knows time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>
#include <string>
#include <vector>

#include "sim/model/version.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

// A run of instructions already laid out.
struct Span {
  uint32_t begin = 0, end = 0;
};

class Host {
 public:
  // legacy_nccl: the process groups' backend is "nccl-legacy" (TORCH_DIST_USE_NCCL2=0).
  Host(Schedule& schedule, const Behaviour& behaviour, bool legacy_nccl = false)
      : s_(schedule), behaviour_(behaviour), legacy_nccl_(legacy_nccl) {
    s_.code.reserve(16384);
    s_.segments.reserve(1024);
    s_.buffers.reserve(8192);
    s_.works.reserve(4096);
  }

  // Tables.
  WorkId work(const Work& w) {
    s_.works.push_back(w);
    return {static_cast<uint32_t>(s_.works.size() - 1)};
  }
  uint32_t host_work(const HostWork& w) {
    s_.host_works.push_back(w);
    return static_cast<uint32_t>(s_.host_works.size() - 1);
  }
  BufferId buffer(Bytes bytes, StreamId pool, Category category, GroupId group = {}) {
    s_.buffers.push_back({bytes, pool, category, group});
    return {static_cast<uint32_t>(s_.buffers.size() - 1)};
  }
  // A copy of buffers [begin, end) for another instance of the same region; returns the new begin.
  uint32_t repeat_buffers(uint32_t begin, uint32_t end, GroupId group);
  CommId communicator(int64_t size, int64_t stride, std::string name) {
    s_.comms.push_back({size, stride, std::move(name)});
    return {static_cast<uint32_t>(s_.comms.size() - 1)};
  }
  // As many events for another instance of the same region; returns the first.
  uint32_t repeat_events(uint32_t count) {
    s_.events += count;
    return s_.events - count;
  }
  uint32_t events() const { return s_.events; }
  uint32_t buffers() const { return static_cast<uint32_t>(s_.buffers.size()); }

  // Calls on a stream.
  void launch(StreamId stream, WorkId w) { emit(Kind::Launch, stream, w.v); }
  EventId record(StreamId stream, Reloc reloc = Reloc::none) {
    const EventId e{s_.events++};
    s_.code.push_back({Kind::Record, stream, reloc, 0, e.v});
    return e;
  }
  void wait(StreamId stream, EventId e, Reloc reloc = Reloc::none) {
    s_.code.push_back({Kind::Wait, stream, reloc, 0, e.v});
  }
  // stream waits for what `other` has now: a record there and a wait here.
  void wait_stream(StreamId stream, StreamId other) { wait(stream, record(other)); }
  void work_on_host(uint32_t host_work) { emit(Kind::HostWork, 0, host_work); }
  void host_wait(EventId e) { emit(Kind::HostWait, 0, e.v); }
  void stream_sync(StreamId stream) { emit(Kind::StreamSync, stream, 0); }
  void device_sync() { emit(Kind::DeviceSync, 0, 0); }
  // A deque of events as a program keeps one: its query() looks at host time and is no call.
  void push_event(StreamId queue, EventId e) { emit(Kind::EventPush, queue, e.v); }
  void limit_events(StreamId queue, uint32_t most) { emit(Kind::EventLimit, queue, most); }
  // deepspeed.runtime.utils.empty_cache resets the peaks too.
  void empty_cache(bool resets_peaks) { emit(Kind::EmptyCache, 0, resets_peaks ? 1 : 0); }

  // A synchronous collective as PyTorch's NCCL backend issues it. `tensors` are what it works on, input
  // first, one where it works in place; an all-reduce or broadcast may record them on the internal
  // stream.
  void collective(StreamId stream, WorkId w, std::initializer_list<BufferId> tensors = {});
  // The first use of a stream that is not the default one, where that makes the device's pools of
  // streams: 32 of each of four priorities.
  void make_streams();
  // The stream of a process group, which is made with its first collective there.
  StreamId internal_stream(CommId comm);
  void make_group(CommId comm);
  // An asynchronous one: on its process group's stream, behind what `stream` has now. Returns the event
  // of its end.
  EventId async_collective(StreamId stream, WorkId w,
                           std::initializer_list<BufferId> tensors = {}) {
    return issue(stream, w, tensors).end;
  }
  // The same as a Work, whose wait() is wait_for_work(end).
  struct AsyncWork {
    EventId end;
    EventId future;  // legacy and before 2.8: recorded for getFuture()
  };
  AsyncWork issue(StreamId stream, WorkId w, std::initializer_list<BufferId> tensors = {});
  // Work.getFuture(): what the future's wait() waits for. 2.15's "nccl" makes the current stream wait
  // for the collective at once.
  EventId future_of(StreamId stream, const AsyncWork& work);
  // The next of the device's pool of streams of normal priority, as a future's callback takes one.
  StreamId pool_stream();
  // A wait for an asynchronous collective. In 2.15 none if it is known to have ended, which is looked
  // at whenever a collective is issued (seen with a host of 8 us a call).
  void wait_for_work(StreamId stream, EventId end) {
    if (behaviour_.internal_streams || legacy_nccl_) return wait(stream, end);
    s_.code.push_back({Kind::WaitUnlessDone, stream, Reloc::none, 1, end.v});
  }
  // A copy of a small table from pinned memory, whose block is free again when the stream gets there.
  void pinned_copy(StreamId stream, WorkId h2d) {
    const Bytes bytes = s_.works[h2d.v].bytes;
    take_pinned(stream, bytes);
    launch(stream, h2d);
    release_pinned(stream, bytes);
  }
  void take_pinned(StreamId stream, Bytes bytes) {
    emit(Kind::PinnedTake, stream, pinned_size(bytes));
  }
  void release_pinned(StreamId stream, Bytes bytes) {
    emit(Kind::PinnedRelease, stream, pinned_size(bytes));
  }

  // A block of pinned memory that is kept.
  void pinned_alloc(Bytes bytes) { take_pinned(0, bytes); }

  // The allocator.
  void alloc(BufferId b, Reloc reloc = Reloc::none) { memory(Kind::Alloc, b, reloc); }
  void free(BufferId b, Reloc reloc = Reloc::none) { memory(Kind::Free, b, reloc); }
  // Tensor.record_stream.
  void use_on(BufferId b, StreamId stream) {
    s_.code.push_back({Kind::UseOn, stream, Reloc::none, 0, b.v});
  }
  // The workspace that a thread's cuBLAS handle keeps on the compute stream, at one of its products.
  enum class Thread : uint8_t { forward, backward };
  void keep_workspace(Thread thread);

  void mark(std::string name, int step, bool begins_step) {
    s_.marks.push_back({std::move(name), step, begins_step});
    emit(Kind::Mark, 0, static_cast<uint32_t>(s_.marks.size() - 1));
  }

  // Lays instructions out to be played later: between the two calls nothing is played.
  uint32_t begin_span();
  Span end_span(uint32_t begin);
  // Plays a laid-out span.
  void play(Span span, const std::array<uint32_t, kRelocs>& shift, GroupId group,
            uint32_t event_shift = 0) {
    flush();
    Segment& s = s_.segments.emplace_back();
    s.begin = span.begin;
    s.end = span.end;
    s.shift = shift;
    s.event_shift = event_shift;
    s.group = group;
  }
  // Ends what was emitted directly so far; call once at the end.
  void flush() {
    const auto now = static_cast<uint32_t>(s_.code.size());
    if (now > open_) {
      Segment& s = s_.segments.emplace_back();
      s.begin = open_;
      s.end = now;
    }
    open_ = now;
  }

  Schedule& schedule() { return s_; }
  const Behaviour& behaviour() const { return behaviour_; }

 private:
  void emit(Kind kind, StreamId stream, uint32_t a) {
    s_.code.push_back({kind, stream, Reloc::none, 0, a});
  }
  void launch(StreamId stream, WorkId w, std::initializer_list<BufferId> tensors);
  // The host allocator rounds up to powers of two: it is their exponent that an instruction names.
  static uint32_t pinned_size(Bytes bytes) {
    return static_cast<uint32_t>(
        std::bit_width(static_cast<uint64_t>(std::max<Bytes>(bytes, 1) - 1)));
  }
  void memory(Kind kind, BufferId b, Reloc reloc) {
    s_.code.push_back({kind, s_.buffers[b.v].pool, reloc, 0, b.v});
  }

  Schedule& s_;
  const Behaviour& behaviour_;
  const bool legacy_nccl_;
  std::vector<bool> made_;          // by communicator, legacy_nccl
  uint32_t open_ = 0;               // first instruction that no segment covers yet
  std::vector<StreamId> internal_;  // by communicator; 0: none yet
  size_t pool_streams_ = 0;
  bool streams_made_ = false;
  std::array<BufferId, 2> workspaces_{};  // by thread
};

}  // namespace shardsim
