#include "sim/memory/caching_allocator.h"

#include <fmt/format.h>

#include <bit>

#include "sim/base/error.h"

namespace shardsim {

namespace {

using Number = AllocatorStatistics::Number;

// c10's format_size.
std::string size_text(Bytes n) {
  const auto x = static_cast<double>(n);
  if (n <= kKiB) return fmt::format("{} bytes", n);
  if (n <= kMiB) return fmt::format("{:.2f} KiB", x / static_cast<double>(kKiB));
  if (n <= kGiB) return fmt::format("{:.2f} MiB", x / static_cast<double>(kMiB));
  return fmt::format("{:.2f} GiB", x / static_cast<double>(kGiB));
}

}  // namespace

std::string OutOfMemory::text() const {
  std::string out = fmt::format(
      "CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of {} of which {} is "
      "free. ",
      size_text(tried), size_text(total), size_text(free));
  if (allowed) out += fmt::format("{} allowed; ", size_text(*allowed));
  out += fmt::format(
      "Of the allocated memory {} is allocated by PyTorch, and {} is reserved by PyTorch but "
      "unallocated.",
      size_text(allocated), size_text(reserved - allocated));
  out += expandable
             ? " expandable_segments is enabled. If instead the process is running out of virtual "
               "address space (VSZ), expandable segments may be over-reserving VA (each segment "
               "reserves ~9/8 of device memory, times the number of streams); reduce it via "
               "PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / "
               "expandable_segments_reserve_by_class."
             : " If reserved but unallocated memory is large try setting "
               "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
               "documentation for Memory Management  "
               "(https://docs.pytorch.org/docs/stable/notes/"
               "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";
  return out;
}

CachingAllocator::CachingAllocator(const AllocatorSettings& settings, const DeviceMemory& device,
                                   DeviceClock& clock)
    : device_(device), clock_(&clock) {
  blocks_.reserve(1024);
  segments_.reserve(256);
  settings_ = settings;
  set_memory_fraction(settings.memory_fraction);
}

void CachingAllocator::configure(const AllocatorSettings& settings) {
  settings_ = settings;
  collects_ = allowed_ && settings_.gc_threshold > 0;
}

void CachingAllocator::set_memory_fraction(double fraction) {
  SHARDSIM_ASSERT(fraction >= 0 && fraction <= 1, "a memory fraction is from 0 to 1");
  allowed_.reset();
  if (fraction < 1) allowed_ = static_cast<Bytes>(fraction * static_cast<double>(device_.total));
  collects_ = allowed_ && settings_.gc_threshold > 0;
}

void CachingAllocator::new_shelf(uint8_t index) {
  shelves_[index] = std::make_unique<Shelf>();
  used_[pool_of(index)] |= uint64_t{1} << stream_of(index);
}

uint32_t CachingAllocator::new_block() {
  if (spare_ == kNone) {
    blocks_.emplace_back();
    return static_cast<uint32_t>(blocks_.size() - 1);
  }
  const uint32_t b = spare_;
  spare_ = blocks_[b].next;
  blocks_[b] = Block{};
  return b;
}

void CachingAllocator::put(uint32_t b) {
  Block& block = blocks_[b];
  block.age_base = lookups_[pool_of(block.shelf)];
  shelves_[block.shelf]->free.insert(block.size, block.address, b);
}

void CachingAllocator::take(uint32_t b) {
  const Block& block = blocks_[b];
  shelves_[block.shelf]->free.erase(block.size, block.address);
}

bool CachingAllocator::alloc(uint32_t slot, Bytes bytes, StreamId stream) {
  SHARDSIM_ASSERT(bytes >= 0 && bytes <= INT64_MAX / 4, "bytes of a buffer");
  SHARDSIM_ASSERT(stream < kAllocatorStreams, "the allocator knows 63 streams");
  if (slot >= slots_.size()) slots_.resize(std::max<size_t>(slot + 1, 2 * slots_.size()), kNone);
  SHARDSIM_ASSERT(slots_[slot] == kNone, "a slot holds one buffer at a time");
  if (bytes == 0) return true;
  if (queued_ != 0) process_events();

  const Bytes size = settings_.round(bytes);
  const auto shelf_index = static_cast<uint8_t>(2 * stream + (size > kSmallAllocation ? 1 : 0));
  uint32_t b = find(shelf_index, size);
  if (b == kNone) {
    b = make_room(shelf_index, size);
    if (b == kNone) {
      set_out_of_memory(settings_.segment(size));
      return false;
    }
  }
  hand_out(b, slot, bytes, size);
  return true;
}

uint32_t CachingAllocator::find(uint8_t shelf_index, Bytes size) {
  if (collects_) ++lookups_[pool_of(shelf_index)];
  FreeBlocks& free = shelf(shelf_index).free;
  FreeBlocks::Cursor c = free.lower_bound(size);
  if (!c.valid()) return kNone;
  if (ranges_) {
    c = prefer_expandable(*shelves_[shelf_index], c);
    if (!c.valid()) return kNone;
  }
  const FreeBlocks::Entry& found = free.at(c);
  const Bytes max_split = settings_.max_split;
  if (size < max_split && found.size >= max_split) return kNone;
  if (size >= max_split && found.size - size >= settings_.max_non_split_rounding) return kNone;
  const uint32_t b = found.block;
  free.erase(c);
  return b;
}

// A block of an expandable range counts for what it can grow to, so the search goes on while the
// next larger block could grow to less. With the mode off again such blocks are passed over.
FreeBlocks::Cursor CachingAllocator::prefer_expandable(const Shelf& s, FreeBlocks::Cursor c) const {
  const auto block = [&](FreeBlocks::Cursor at) -> const Block& {
    return blocks_[s.free.at(at).block];
  };
  if (!block(c).expandable) return c;
  if (!settings_.expandable) {
    do {
      c = s.free.next(c);
    } while (c.valid() && block(c).expandable);
    return c;
  }
  const auto reach = [&](const Block& b) {
    const bool grows = b.next != kNone && blocks_[b.next].state == BlockState::unmapped;
    return b.size + (grows ? blocks_[b.next].size : 0);
  };
  for (FreeBlocks::Cursor next = s.free.next(c);
       block(c).expandable && next.valid() && reach(block(next)) < reach(block(c));
       next = s.free.next(c))
    c = next;
  return c;
}

bool CachingAllocator::should_split(const Block& b, Bytes size) const {
  const Bytes rest = b.size - size;
  if (pool_of(b.shelf) == 0 || settings_.expandable) return rest >= kBlock;
  return size < settings_.max_split && rest > kSmallAllocation;
}

void CachingAllocator::hand_out(uint32_t b, uint32_t slot, Bytes bytes, Bytes size) {
  const int pool = pool_of(blocks_[b].shelf);
  const bool was_split = blocks_[b].split();
  const bool counted = !blocks_[b].expandable;  // ranges have no inactive splits
  AllocatorStatistics& st = statistics_;
  if (should_split(blocks_[b], size)) {
    const uint32_t rest = new_block();
    Block& low = blocks_[b];
    Block& high = blocks_[rest];
    high.address = low.address + size;
    high.size = low.size - size;
    high.requested = low.requested;
    high.segment = low.segment;
    high.slot = low.slot;
    high.shelf = low.shelf;
    high.expandable = low.expandable;
    high.prev = b;
    high.next = low.next;
    if (high.next != kNone) blocks_[high.next].prev = rest;
    low.next = rest;
    low.size = size;
    put(rest);
    if (counted && was_split) {
      st.decrease(Number::inactive_split_bytes, pool, size);
    } else if (counted) {
      st.increase(Number::inactive_split_bytes, pool, high.size);
      st.increase(Number::inactive_split, pool, 1);
    }
  } else if (counted && was_split) {
    st.decrease(Number::inactive_split_bytes, pool, blocks_[b].size);
    st.decrease(Number::inactive_split, pool, 1);
  }
  Block& block = blocks_[b];
  block.state = BlockState::allocated;
  block.requested = bytes;
  block.slot = slot;
  slots_[slot] = b;
  st.increase(Number::allocation, pool, 1);
  st.increase(Number::allocated_bytes, pool, block.size);
  st.increase(Number::active, pool, 1);
  st.increase(Number::active_bytes, pool, block.size);
  st.increase(Number::requested_bytes, pool, bytes);
  if (block.size >= settings_.max_split) AllocatorStatistics::increase(st.oversize_allocations, 1);
}

void CachingAllocator::free(uint32_t slot) {
  if (!holds(slot)) return;
  const uint32_t b = slots_[slot];
  slots_[slot] = kNone;
  const Block& block = blocks_[b];
  const int pool = pool_of(block.shelf);
  statistics_.decrease(Number::allocation, pool, 1);
  statistics_.decrease(Number::allocated_bytes, pool, block.size);
  if (block.size >= settings_.max_split)
    AllocatorStatistics::decrease(statistics_.oversize_allocations, 1);
  if (block.uses != 0)
    wait_for_uses(b);
  else
    free_block(b);
}

void CachingAllocator::record_stream(uint32_t slot, StreamId stream) {
  SHARDSIM_ASSERT(stream < kAllocatorStreams, "the allocator knows 63 streams");
  if (!holds(slot)) return;
  Block& block = blocks_[slots_[slot]];
  if (stream != stream_of(block.shelf)) block.uses |= uint64_t{1} << stream;
}

void CachingAllocator::record_use(uint32_t slot, int64_t event) {
  if (!holds(slot)) return;
  blocks_[slots_[slot]].uses |= uint64_t{1} << kOwnEvents;
  uses_.push_back({slots_[slot], event});
}

void CachingAllocator::enqueue(int queue, int64_t event, uint32_t b) {
  queues_[static_cast<size_t>(queue)].waiting.push_back({event, b});
  queued_ |= uint64_t{1} << queue;
  ++blocks_[b].events;
}

void CachingAllocator::wait_for_uses(uint32_t b) {
  uint64_t uses = blocks_[b].uses;
  blocks_[b].uses = 0;
  blocks_[b].state = BlockState::pending;
  for (; uses != 0; uses &= uses - 1) {
    const int queue = std::countr_zero(uses);
    if (queue != kOwnEvents) {
      enqueue(queue, clock_->record(static_cast<StreamId>(queue)), b);
      continue;
    }
    for (size_t i = 0; i < uses_.size();) {
      if (uses_[i].block != b) {
        ++i;
        continue;
      }
      enqueue(queue, uses_[i].event, b);
      uses_[i] = uses_.back();
      uses_.pop_back();
    }
  }
}

void CachingAllocator::event_seen(uint32_t b) {
  if (--blocks_[b].events == 0) free_block(b);
}

void CachingAllocator::process_events() {
  for (uint64_t left = queued_; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    Queue& q = queues_[static_cast<size_t>(i)];
    if (i == kOwnEvents) {
      size_t kept = 0;
      for (const Waiting w : q.waiting) {
        if (clock_->done(w.event))
          event_seen(w.block);
        else
          q.waiting[kept++] = w;
      }
      q.waiting.resize(kept);
    } else {
      while (q.head < q.waiting.size() && clock_->done(q.waiting[q.head].event))
        event_seen(q.waiting[q.head++].block);
      // What has been seen is dropped now and then, so that a queue that never runs dry stays short.
      if (q.head > 64 && 2 * q.head > q.waiting.size()) {
        q.waiting.erase(q.waiting.begin(), q.waiting.begin() + static_cast<std::ptrdiff_t>(q.head));
        q.head = 0;
      }
    }
    if (q.head == q.waiting.size()) {
      q.clear();
      queued_ &= ~(uint64_t{1} << i);
    }
  }
}

void CachingAllocator::drain_events() {
  for (; queued_ != 0; queued_ &= queued_ - 1) {
    Queue& q = queues_[static_cast<size_t>(std::countr_zero(queued_))];
    for (; q.head < q.waiting.size(); ++q.head) {
      clock_->wait(q.waiting[q.head].event);
      event_seen(q.waiting[q.head].block);
    }
    q.clear();
  }
}

// Joins two neighbours into the lower one.
uint32_t CachingAllocator::merge(uint32_t low, uint32_t high) {
  Block& l = blocks_[low];
  const Block& h = blocks_[high];
  l.size += h.size;
  l.next = h.next;
  if (l.next != kNone) blocks_[l.next].prev = low;
  drop_block(high);
  return low;
}

void CachingAllocator::free_block(uint32_t b) {
  const int pool = pool_of(blocks_[b].shelf);
  const Bytes size = blocks_[b].size, requested = blocks_[b].requested;
  const uint32_t slot = blocks_[b].slot;
  if (log_ != nullptr) log_->freed(blocks_[b].address, slot);
  blocks_[b].state = BlockState::free;
  int64_t blocks = 0;
  Bytes bytes = 0;
  const uint32_t prev = blocks_[b].prev;
  if (prev != kNone && blocks_[prev].state == BlockState::free) {
    take(prev);
    --blocks;
    bytes -= blocks_[prev].size;
    b = merge(prev, b);
  }
  const uint32_t next = blocks_[b].next;
  if (next != kNone && blocks_[next].state == BlockState::free) {
    take(next);
    --blocks;
    bytes -= blocks_[next].size;
    b = merge(b, next);
  }
  blocks_[b].slot = slot;
  put(b);
  AllocatorStatistics& st = statistics_;
  if (!blocks_[b].expandable) {
    if (blocks_[b].split()) {
      ++blocks;
      bytes += blocks_[b].size;
    }
    const auto change = [&](Number n, int64_t by) {
      if (by > 0) st.increase(n, pool, by);
      if (by < 0) st.decrease(n, pool, -by);
    };
    change(Number::inactive_split, blocks);
    change(Number::inactive_split_bytes, bytes);
  }
  st.decrease(Number::active, pool, 1);
  st.decrease(Number::active_bytes, pool, size);
  st.decrease(Number::requested_bytes, pool, requested);
}

void CachingAllocator::set_out_of_memory(Bytes tried) {
  ++statistics_.ooms;
  oom_.tried = tried;
  oom_.total = device_.total;
  oom_.free = device_free();
  oom_.allowed = allowed_;
  oom_.allocated = allocated();
  oom_.reserved = reserved_;
  oom_.expandable = settings_.expandable;
}

}  // namespace shardsim
