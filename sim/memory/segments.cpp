// The part of the caching allocator that talks to the device: new segments, pages of expandable
// ranges, and everything that gives memory back.
#include <algorithm>
#include <bit>

#include "sim/base/error.h"
#include "sim/memory/caching_allocator.h"

namespace shardsim {

namespace {

using Number = AllocatorStatistics::Number;

// cudaMalloc hands out whole pages of 2 MiB.
Bytes whole_pages(Bytes n) { return ceil_div(n, kSegmentRounding) * kSegmentRounding; }

}  // namespace

// --- Segments -----------------------------------------------------------------------------------

uint32_t CachingAllocator::new_segment(uint8_t shelf_index, Bytes bytes, Bytes page) {
  uint32_t s;
  if (spare_segments_.empty()) {
    segments_.emplace_back();
    s = static_cast<uint32_t>(segments_.size() - 1);
  } else {
    s = spare_segments_.back();
    spare_segments_.pop_back();
  }
  const uint32_t b = new_block();
  Segment& segment = segments_[s];
  segment = {};
  segment.base = next_address_;
  segment.page = page;
  segment.range = bytes;
  segment.first = b;
  segment.shelf = shelf_index;
  segment.alive = true;
  next_address_ += bytes;
  Block& block = blocks_[b];
  block.address = segment.base;
  block.size = bytes;
  block.segment = s;
  block.shelf = shelf_index;
  block.expandable = page != 0;
  return b;
}

void CachingAllocator::drop_segment(uint32_t s) {
  drop_block(segments_[s].first);
  segments_[s].alive = false;
  spare_segments_.push_back(s);
}

void CachingAllocator::log_segment(SegmentAction action, const Block& b, Bytes address,
                                   Bytes bytes) {
  if (log_ == nullptr) return;
  const Segment& s = segments_[b.segment];
  log_->segment({action, s.number, address - s.base, bytes, stream_of(s.shelf), address});
}

bool CachingAllocator::device_take(Bytes bytes, DeviceCall call) {
  const Bytes used = call == DeviceCall::malloc ? whole_pages(bytes) : bytes;
  if (used > device_free()) {
    clock_->called(DeviceCall::refused, bytes);
    return false;
  }
  device_used_ += used;
  clock_->called(call, bytes);
  return true;
}

void CachingAllocator::device_give(Bytes bytes, DeviceCall call) {
  device_used_ -= call == DeviceCall::free ? whole_pages(bytes) : bytes;
  clock_->called(call, bytes);
}

uint32_t CachingAllocator::make_room(uint8_t shelf_index, Bytes size) {
  if (collects_) collect_garbage();
  uint32_t b = new_memory(shelf_index, size, false);
  if (b == kNone && release_available(shelf_index, size)) b = new_memory(shelf_index, size, false);
  if (b == kNone) {
    release_cached();
    b = new_memory(shelf_index, size, true);
  }
  return b;
}

uint32_t CachingAllocator::new_memory(uint8_t shelf_index, Bytes size, bool retry) {
  const Bytes bytes = settings_.segment(size);
  if (retry) ++statistics_.alloc_retries;
  if (allowed_ && reserved_ + bytes > *allowed_) return kNone;
  if (settings_.expandable) return new_pages(shelf_index, size);
  if (!device_take(bytes, DeviceCall::malloc)) return kNone;

  const uint32_t b = new_segment(shelf_index, bytes, 0);
  Segment& segment = segments_[blocks_[b].segment];
  segment.number = next_number_++;
  segment.bytes = bytes;
  reserved_ += bytes;
  const int pool = pool_of(shelf_index);
  statistics_.increase(Number::segment, pool, 1);
  statistics_.increase(Number::reserved_bytes, pool, bytes);
  if (bytes >= settings_.max_split) AllocatorStatistics::increase(statistics_.oversize_segments, 1);
  ++statistics_.device_alloc;
  log_segment(SegmentAction::alloc, blocks_[b], segment.base, bytes);
  return b;
}

// --- Giving back --------------------------------------------------------------------------------

void CachingAllocator::release_block(uint32_t b) {
  const Block& block = blocks_[b];
  SHARDSIM_ASSERT(!block.expandable && !block.split(), "only whole segments go back");
  const int pool = pool_of(block.shelf);
  const Bytes bytes = block.size;
  take(b);
  ++statistics_.device_free;
  log_segment(SegmentAction::free, block, block.address, bytes);
  device_give(bytes, DeviceCall::free);
  reserved_ -= bytes;
  statistics_.decrease(Number::segment, pool, 1);
  statistics_.decrease(Number::reserved_bytes, pool, bytes);
  if (bytes >= settings_.max_split) AllocatorStatistics::decrease(statistics_.oversize_segments, 1);
  drop_segment(block.segment);
}

// With max_split set: the smallest own block that is large enough alone, else own unsplittable
// blocks from the largest down. A block of that size is whole, unless max_split was lowered after it
// was split: such a block is passed over.
bool CachingAllocator::release_available(uint8_t shelf_index, Bytes size) {
  if (settings_.max_split == INT64_MAX) return false;
  const FreeBlocks& free = shelf(shelf_index).free;
  const Bytes wanted = std::max(size, settings_.max_split);
  FreeBlocks::Cursor c = free.lower_bound(wanted);
  if (c.valid() && !blocks_[free.at(c).block].expandable) {
    if (blocks_[free.at(c).block].split()) return false;
    release_block(free.at(c).block);
    return true;
  }
  scratch_.clear();
  Bytes released = 0;
  for (c = free.previous(c); c.valid() && released < wanted; c = free.previous(c)) {
    const FreeBlocks::Entry& e = free.at(c);
    if (e.size < settings_.max_split) break;
    if (blocks_[e.block].expandable || blocks_[e.block].split()) continue;
    released += e.size;
    scratch_.push_back(e.block);
  }
  for (const uint32_t b : scratch_) release_block(b);
  return released >= wanted;
}

void CachingAllocator::release_cached() {
  ++statistics_.sync_all_streams;
  drain_events();
  release_pool(1);
  release_pool(0);
}

void CachingAllocator::release_pool(int pool) {
  std::vector<uint32_t> whole, in_ranges;
  for (uint64_t streams = used_[pool]; streams != 0; streams &= streams - 1) {
    const FreeBlocks& free =
        shelves_[static_cast<size_t>(2 * std::countr_zero(streams) + pool)]->free;
    for (FreeBlocks::Cursor c = free.first(); c.valid(); c = free.next(c)) {
      const uint32_t b = free.at(c).block;
      if (blocks_[b].expandable)
        in_ranges.push_back(b);
      else if (!blocks_[b].split())
        whole.push_back(b);
    }
  }
  for (const uint32_t b : whole) release_block(b);
  for (const uint32_t b : in_ranges) unmap(b);
}

// Whole free segments of the large pool at least as old as their mean, until enough is back.
void CachingAllocator::collect_garbage() {
  const auto threshold =
      static_cast<Bytes>(settings_.gc_threshold * static_cast<double>(*allowed_));
  if (reserved_ <= threshold) return;
  const Bytes target = reserved_ - threshold;
  int64_t ages = 0, count = 0;
  std::vector<uint32_t> whole;
  for (uint64_t streams = used_[1]; streams != 0; streams &= streams - 1) {
    const FreeBlocks& free = shelves_[static_cast<size_t>(2 * std::countr_zero(streams) + 1)]->free;
    for (FreeBlocks::Cursor c = free.first(); c.valid(); c = free.next(c)) {
      const uint32_t b = free.at(c).block;
      if (blocks_[b].split()) continue;
      ages += age(blocks_[b]);
      ++count;
      if (!blocks_[b].expandable) whole.push_back(b);
    }
  }
  Bytes reclaimed = 0;
  for (bool freed = true; reclaimed < target && freed && count > 0;) {
    const double least = static_cast<double>(ages) / static_cast<double>(count);
    freed = false;
    size_t kept = 0;
    for (const uint32_t b : whole) {
      if (static_cast<double>(age(blocks_[b])) < least) {
        whole[kept++] = b;
        continue;
      }
      freed = true;
      reclaimed += blocks_[b].size;
      ages -= age(blocks_[b]);
      --count;
      release_block(b);
    }
    whole.resize(kept);
  }
}

// --- Expandable ranges --------------------------------------------------------------------------

void CachingAllocator::put_unmapped(uint32_t b) {
  std::vector<uint32_t>& list = shelves_[blocks_[b].shelf]->unmapped;
  const auto lower = [&](uint32_t x, uint32_t y) {
    return blocks_[x].address < blocks_[y].address;
  };
  list.insert(std::lower_bound(list.begin(), list.end(), b, lower), b);
}

void CachingAllocator::take_unmapped(uint32_t b) {
  std::vector<uint32_t>& list = shelves_[blocks_[b].shelf]->unmapped;
  list.erase(std::find(list.begin(), list.end(), b));
}

// The lowest run of free and unmapped blocks of the stream and pool that has room for `size`, or a
// new range.
uint32_t CachingAllocator::find_range(uint8_t shelf_index, Bytes size) {
  const auto open = [&](uint32_t b) {
    return b != kNone &&
           (blocks_[b].state == BlockState::free || blocks_[b].state == BlockState::unmapped);
  };
  for (const uint32_t u : shelf(shelf_index).unmapped) {
    const uint32_t from = open(blocks_[u].prev) ? blocks_[u].prev : u;
    Bytes room = 0;
    for (uint32_t b = from; room < size && open(b); b = blocks_[b].next) room += blocks_[b].size;
    if (room >= size) return from;
  }
  const Bytes most = device_.total + device_.total / 8;
  Bytes bytes = most;
  if (settings_.range_bytes > 0) bytes = std::min(most, settings_.range_bytes);
  if (settings_.range_fraction > 0)
    bytes = static_cast<Bytes>(std::min(
        static_cast<double>(most), settings_.range_fraction * static_cast<double>(device_.total)));
  const Bytes page = pool_of(shelf_index) == 0 ? kSmallSegment : settings_.large_segment;
  bytes = ceil_div(bytes, page) * page;
  if (size > bytes) return kNone;  // one buffer cannot span ranges
  ranges_ = true;
  const uint32_t b = new_segment(shelf_index, bytes, page);
  blocks_[b].state = BlockState::unmapped;
  put_unmapped(b);
  return b;
}

uint32_t CachingAllocator::new_pages(uint8_t shelf_index, Bytes size) {
  uint32_t b = find_range(shelf_index, size);
  if (b == kNone) return kNone;
  if (blocks_[b].state == BlockState::unmapped) {
    b = map(b, std::min(blocks_[b].size, size));
    if (b == kNone) return kNone;
  }
  while (blocks_[b].size < size) {
    const uint32_t next = blocks_[b].next;
    b = map(next, std::min(size - blocks_[b].size, blocks_[next].size));
    if (b == kNone) return kNone;  // pages of earlier turns stay mapped
  }
  take(b);
  return b;
}

// Maps the pages that hold the first `size` bytes of an unmapped block, and joins the result with
// free neighbours. None: the device refused a page; those of this call have been undone.
uint32_t CachingAllocator::map(uint32_t b, Bytes size) {
  const uint32_t s = blocks_[b].segment;
  const Bytes page = segments_[s].page;
  const Bytes pages = ceil_div(size, page);
  for (Bytes i = 0; i < pages; ++i) {
    if (device_take(page, DeviceCall::map)) continue;
    for (; i > 0; --i) device_give(page, DeviceCall::unmap);
    return kNone;
  }
  const Bytes bytes = pages * page, address = blocks_[b].address;
  take_unmapped(b);
  if (bytes < blocks_[b].size) {
    const uint32_t rest = new_block();
    Block& low = blocks_[b];
    Block& high = blocks_[rest];
    high = low;
    high.address = low.address + bytes;
    high.size = low.size - bytes;
    high.prev = b;
    if (high.next != kNone) blocks_[high.next].prev = rest;
    low.next = rest;
    low.size = bytes;
    put_unmapped(rest);
  }
  blocks_[b].state = BlockState::free;
  const uint32_t prev = blocks_[b].prev;
  if (prev != kNone && blocks_[prev].state == BlockState::free) {
    take(prev);
    b = merge(prev, b);
  }
  const uint32_t next = blocks_[b].next;
  if (next != kNone && blocks_[next].state == BlockState::free) {
    take(next);
    b = merge(b, next);
  }
  put(b);
  if (segments_[s].number == kNone) segments_[s].number = next_number_++;
  segments_[s].bytes += bytes;
  reserved_ += bytes;
  statistics_.increase(Number::reserved_bytes, pool_of(blocks_[b].shelf), bytes);
  ++statistics_.device_alloc;
  log_segment(SegmentAction::map, blocks_[b], address, bytes);
  return b;
}

// Unmaps the whole pages inside a free block; a range without pages goes back.
void CachingAllocator::unmap(uint32_t b) {
  const uint32_t s = blocks_[b].segment;
  const Bytes base = segments_[s].base, page = segments_[s].page;
  const Bytes low = blocks_[b].address, high = low + blocks_[b].size;
  const Bytes from = base + ceil_div(low - base, page) * page;
  const Bytes to = base + (high - base) / page * page;
  if (from >= to) return;
  clock_->wait_stream(stream_of(blocks_[b].shelf));
  take(b);
  const auto cut = [&](uint32_t x, Bytes address) {  // the part from `address` on
    const uint32_t y = new_block();
    blocks_[y] = blocks_[x];
    blocks_[y].address = address;
    blocks_[y].size = blocks_[x].address + blocks_[x].size - address;
    blocks_[y].prev = x;
    if (blocks_[y].next != kNone) blocks_[blocks_[y].next].prev = y;
    blocks_[x].next = y;
    blocks_[x].size = address - blocks_[x].address;
    return y;
  };
  uint32_t middle = b;
  if (from > low) {
    middle = cut(b, from);
    put(b);
  }
  if (to < high) put(cut(middle, to));
  blocks_[middle].state = BlockState::unmapped;
  const uint32_t prev = blocks_[middle].prev;
  if (prev != kNone && blocks_[prev].state == BlockState::unmapped) {
    take_unmapped(prev);
    middle = merge(prev, middle);
  }
  const uint32_t next = blocks_[middle].next;
  if (next != kNone && blocks_[next].state == BlockState::unmapped) {
    take_unmapped(next);
    middle = merge(middle, next);
  }
  put_unmapped(middle);

  for (Bytes at = from; at < to; at += page) device_give(page, DeviceCall::unmap);
  reserved_ -= to - from;
  segments_[s].bytes -= to - from;
  statistics_.decrease(Number::reserved_bytes, pool_of(segments_[s].shelf), to - from);
  ++statistics_.device_free;
  log_segment(SegmentAction::unmap, blocks_[middle], from, to - from);
  if (!blocks_[middle].split()) {
    take_unmapped(middle);
    drop_segment(s);
  }
}

}  // namespace shardsim
