// PyTorch's CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp, 2.15), block by block: what is
// handed out, what is kept free, what is asked of the device, and every statistic. The rules are
// those of spec/memory-model.md section A:
//   alloc: look at events of freed blocks; round; small pool up to 1 MiB; the smallest free block of
//     the stream and pool that fits, the lowest of these; else a new segment (or pages of an
//     expandable range); else give cached blocks back and try again; else out of memory. A block that
//     is much larger is split, its low part handed out.
//   free: the block is free at once for its own stream and merges with free neighbours, unless other
//     streams were recorded on it: then when an event on each has passed, seen at a later alloc.
// It knows no clock. The caller is asked through DeviceClock: whether an event has passed at the
// host's now, to wait, and it is told of device calls, which cost the host time. Addresses grow with
// every new segment, as they do in the recordings, so "lowest" is "oldest segment, then offset".
//
// A buffer is a small number of the caller's, its slot: alloc(slot, ...), free(slot). A slot is free
// for another buffer as soon as it has been freed.
//
// Worked example: alloc 8 MiB twice (one segment of 20 MiB), free both (they merge), alloc 16 MiB:
// allocated 16 MiB, reserved 20 MiB, inactive split 4 MiB.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/memory/allocator_settings.h"
#include "sim/memory/allocator_statistics.h"
#include "sim/memory/free_blocks.h"

namespace shardsim {

using StreamId = uint8_t;  // as sim/schedule/instruction.h has it; this library needs no schedule

// PyTorch has the default stream and 32 of each priority; one bit of a word a stream.
inline constexpr int kAllocatorStreams = 63;

enum class DeviceCall : uint8_t {
  malloc,  // cudaMalloc
  free,    // cudaFree
  map,     // one page of an expandable range
  unmap,
  refused,  // cudaMalloc or a page that found no room
};

// The clock of the host and the device, as the allocator sees it. An event is a number of the
// clock's own making: for a machine that knows its streams' ends, the time at which it passes.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;

  // An event on this stream, behind what is queued there now.
  virtual int64_t record(StreamId stream) = 0;
  // Whether it has passed at the host's now.
  virtual bool done(int64_t event) = 0;
  // cudaEventSynchronize, and cudaStreamSynchronize (before pages are unmapped).
  virtual void wait(int64_t event) = 0;
  virtual void wait_stream(StreamId stream) = 0;

  virtual void called(DeviceCall /*call*/, Bytes /*bytes*/) {}
};

// What a segment or range does: the `segment_...` rows of PyTorch's memory history.
enum class SegmentAction : uint8_t { alloc, free, map, unmap };

struct SegmentEvent {
  SegmentAction action = SegmentAction::alloc;
  uint32_t segment = 0;  // segments and ranges count by first use, from 0
  Bytes offset = 0;      // in it
  Bytes bytes = 0;
  StreamId stream = 0;
  Bytes address = 0;  // segments and ranges lie one behind another, in the order they were made
};

// For those who follow placement.
class AllocatorLog {
 public:
  virtual ~AllocatorLog() = default;
  virtual void segment(const SegmentEvent& event) = 0;
  // A block has become free: behind the streams that used it, if others did.
  virtual void freed(int64_t /*address*/, uint32_t /*slot*/) {}
};

// The device as cudaMalloc sees it. Both are multiples of a page in practice.
struct DeviceMemory {
  Bytes total = 80 * kGiB;
  Bytes outside = 500 * kMiB;  // the context, and what else is not the allocator's
};

// The figures of "CUDA out of memory."
struct OutOfMemory {
  Bytes tried = 0;  // the segment's size, not the request's
  Bytes total = 0, free = 0;
  std::optional<Bytes> allowed;  // with a memory fraction below 1
  Bytes allocated = 0, reserved = 0;
  bool expandable = false;
  std::string text() const;  // PyTorch 2.15's sentence
};

enum class BlockState : uint8_t { free, allocated, pending, unmapped };

class CachingAllocator {
 public:
  // `clock` must outlive it.
  CachingAllocator(const AllocatorSettings& settings, const DeviceMemory& device,
                   DeviceClock& clock);

  // False: out of memory, figures in out_of_memory(); the slot stays empty. Zero bytes take nothing.
  bool alloc(uint32_t slot, Bytes bytes, StreamId stream);
  // A slot that holds nothing is left alone.
  void free(uint32_t slot);
  // The buffer is used on this stream too; on its own stream it changes nothing.
  void record_stream(uint32_t slot, StreamId stream);
  // The same, without a stream: once freed the block waits for exactly this event.
  void record_use(uint32_t slot, int64_t event);

  void empty_cache() { release_cached(); }
  void set_log(AllocatorLog* log) { log_ = log; }
  // _set_allocator_settings; the memory fraction stays as it is.
  void configure(const AllocatorSettings& settings);
  void set_memory_fraction(double fraction);
  void reset_peaks() { statistics_.reset_peaks(); }
  void reset_accumulated() { statistics_.reset_accumulated(); }

  const AllocatorStatistics& statistics() const { return statistics_; }
  Bytes allocated() const { return statistics_.current(AllocatorStatistics::allocated_bytes); }
  Bytes active() const { return statistics_.current(AllocatorStatistics::active_bytes); }
  Bytes reserved() const { return reserved_; }
  Bytes device_free() const { return device_.total - device_.outside - device_used_; }
  const AllocatorSettings& settings() const { return settings_; }
  const OutOfMemory& out_of_memory() const { return oom_; }

  struct Place {
    uint32_t segment = UINT32_MAX;
    Bytes offset = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  bool holds(uint32_t slot) const { return slot < slots_.size() && slots_[slot] != kNone; }
  Place place(uint32_t slot) const;  // of a slot that holds something
  Bytes address(uint32_t slot) const { return blocks_[slots_[slot]].address; }
  Bytes size(uint32_t slot) const { return blocks_[slots_[slot]].size; }

  // Everything there is, for snapshots and checks: ranges in the order of their numbers, blocks in
  // the order of their addresses, unmapped ones too.
  struct SegmentView {
    uint32_t number = 0;
    StreamId stream = 0;
    bool small = false, expandable = false;
    Bytes bytes = 0;  // mapped
    Bytes address = 0;
  };
  struct BlockView {
    Bytes offset = 0, size = 0, requested = 0;
    BlockState state = BlockState::free;
    uint32_t slot = UINT32_MAX;  // who has it or, in a free block, had a part of it last
  };
  std::vector<SegmentView> segments() const;
  std::vector<BlockView> blocks(uint32_t segment) const;

  // Freed blocks that wait, oldest first by stream: f(event).
  template <class F>
  void for_each_event(F&& f) const {
    for (const Queue& q : queues_)
      for (size_t i = q.head; i < q.waiting.size(); ++i) f(q.waiting[i].event);
  }
  // Equal in two allocators, or at two times, if every later request is answered alike: the tiling
  // of all segments in order, with streams, states and (with garbage collection) ages. Event times
  // and slots are not in it. Costs a walk over all blocks.
  uint64_t layout_digest() const;

  // Throws by SHARDSIM_ASSERT where blocks do not tile their segments, a list misses a free block,
  // neighbours that should have merged did not, or a statistic is not the sum of its blocks.
  void check_invariants() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr int kOwnEvents = kAllocatorStreams;  // bit and queue of record_use

  struct alignas(64) Block {
    Bytes address = 0, requested = 0, size = 0;
    uint64_t uses = 0;  // bit s: recorded on stream s
    uint32_t prev = kNone, next = kNone;
    uint32_t segment = kNone;
    uint32_t slot = kNone;
    uint32_t age_base = 0;  // the pool's look-ups when it was put on its list
    uint16_t events = 0;
    uint8_t shelf = 0;  // 2 stream + large
    BlockState state = BlockState::free;
    bool expandable = false;
    bool split() const { return prev != kNone || next != kNone; }
  };
  struct Segment {
    Bytes base = 0;
    Bytes bytes = 0;  // mapped
    Bytes page = 0;   // 0: not expandable
    Bytes range = 0;  // of an expandable range
    uint32_t first = kNone;
    uint32_t number = kNone;
    uint8_t shelf = 0;
    bool alive = false;
  };
  struct Waiting {
    int64_t event = 0;
    uint32_t block = 0;
  };
  struct Queue {
    std::vector<Waiting> waiting;
    size_t head = 0;
    void clear() {
      waiting.clear();
      head = 0;
    }
  };
  struct Use {  // record_use on a block that is not freed yet
    uint32_t block = 0;
    int64_t event = 0;
  };
  struct Shelf {
    FreeBlocks free;
    std::vector<uint32_t> unmapped;  // by address
  };

  static int pool_of(uint8_t shelf) { return shelf & 1; }  // 0 small, 1 large
  static StreamId stream_of(uint8_t shelf) { return static_cast<StreamId>(shelf >> 1); }

  Shelf& shelf(uint8_t index) {
    if (!shelves_[index]) new_shelf(index);
    return *shelves_[index];
  }
  void new_shelf(uint8_t index);
  uint32_t new_block();
  void drop_block(uint32_t b) {
    blocks_[b].next = spare_;
    spare_ = b;
  }
  void put(uint32_t b);  // on its shelf's list of free blocks
  void take(uint32_t b);

  // Requests.
  uint32_t find(uint8_t shelf_index, Bytes size);
  FreeBlocks::Cursor prefer_expandable(const Shelf& s, FreeBlocks::Cursor c) const;
  bool should_split(const Block& b, Bytes size) const;
  void hand_out(uint32_t b, uint32_t slot, Bytes bytes, Bytes size);
  uint32_t make_room(uint8_t shelf_index, Bytes size);
  uint32_t new_memory(uint8_t shelf_index, Bytes size, bool retry);
  void set_out_of_memory(Bytes tried);

  // Frees.
  void free_block(uint32_t b);
  uint32_t merge(uint32_t low, uint32_t high);
  void wait_for_uses(uint32_t b);
  void enqueue(int queue, int64_t event, uint32_t b);
  void process_events();
  void event_seen(uint32_t b);
  void drain_events();

  // The device.
  bool device_take(Bytes bytes, DeviceCall call);
  void device_give(Bytes bytes, DeviceCall call);
  bool release_available(uint8_t shelf_index, Bytes size);
  void release_cached();
  void release_pool(int pool);
  void release_block(uint32_t b);
  void collect_garbage();
  uint32_t age(const Block& b) const { return lookups_[pool_of(b.shelf)] - b.age_base; }

  // Expandable ranges.
  uint32_t new_pages(uint8_t shelf_index, Bytes size);
  uint32_t find_range(uint8_t shelf_index, Bytes size);
  uint32_t map(uint32_t b, Bytes size);
  void unmap(uint32_t b);
  void put_unmapped(uint32_t b);
  void take_unmapped(uint32_t b);
  uint32_t new_segment(uint8_t shelf_index, Bytes bytes, Bytes page);
  void drop_segment(uint32_t s);
  void log_segment(SegmentAction action, const Block& b, Bytes address, Bytes bytes);

  AllocatorSettings settings_;
  DeviceMemory device_;
  DeviceClock* clock_;
  AllocatorLog* log_ = nullptr;
  std::optional<Bytes> allowed_;  // by the memory fraction
  bool collects_ = false;         // a threshold and a fraction are set: look-ups are counted
  bool ranges_ = false;           // there has been an expandable range

  std::vector<uint32_t> slots_;  // slot to block
  std::vector<Block> blocks_;
  uint32_t spare_ = kNone;  // blocks to use again, by `next`
  std::array<std::unique_ptr<Shelf>, 2 * kAllocatorStreams> shelves_;
  uint64_t used_[2] = {0, 0};  // by pool, bit: the stream has a shelf

  std::vector<Segment> segments_;
  std::vector<uint32_t> spare_segments_;
  uint32_t next_number_ = 0;
  Bytes next_address_ = 0;
  Bytes reserved_ = 0, device_used_ = 0;

  std::array<Queue, kAllocatorStreams + 1> queues_;  // by stream; the last one is in no order
  uint64_t queued_ = 0;                              // bit: that queue holds something
  std::vector<Use> uses_;
  uint32_t lookups_[2] = {0, 0};  // by pool, counted while garbage is collected
  std::vector<uint32_t> scratch_;

  AllocatorStatistics statistics_;
  OutOfMemory oom_;
};

}  // namespace shardsim
