// The caching allocator seen from outside: its segments and blocks, and the check of its invariants.
#include <algorithm>
#include <bit>

#include "sim/base/error.h"
#include "sim/memory/caching_allocator.h"

namespace shardsim {

namespace {
using Number = AllocatorStatistics::Number;
}  // namespace

CachingAllocator::Place CachingAllocator::place(uint32_t slot) const {
  const Block& b = blocks_[slots_[slot]];
  const Segment& s = segments_[b.segment];
  return {s.number, b.address - s.base};
}

std::vector<CachingAllocator::SegmentView> CachingAllocator::segments() const {
  std::vector<SegmentView> out;
  for (const Segment& s : segments_) {
    if (!s.alive || s.number == kNone) continue;
    out.push_back(
        {s.number, stream_of(s.shelf), pool_of(s.shelf) == 0, s.page != 0, s.bytes, s.base});
  }
  std::sort(out.begin(), out.end(),
            [](const SegmentView& a, const SegmentView& b) { return a.number < b.number; });
  return out;
}

std::vector<CachingAllocator::BlockView> CachingAllocator::blocks(uint32_t segment) const {
  std::vector<BlockView> out;
  for (const Segment& s : segments_) {
    if (!s.alive || s.number != segment) continue;
    for (uint32_t b = s.first; b != kNone; b = blocks_[b].next) {
      const Block& x = blocks_[b];
      out.push_back({x.address - s.base, x.size, x.requested, x.state, x.slot});
    }
  }
  return out;
}

uint64_t CachingAllocator::layout_digest() const {
  uint64_t h = 0x9e3779b97f4a7c15U;
  const auto mix = [&](uint64_t x) {
    h ^= x;
    h *= 0xff51afd7ed558ccdU;
    h ^= h >> 32;
  };
  std::vector<const Segment*> order;
  for (const Segment& s : segments_)
    if (s.alive) order.push_back(&s);
  std::sort(order.begin(), order.end(),
            [](const Segment* a, const Segment* b) { return a->base < b->base; });
  for (const Segment* s : order) {
    mix(s->shelf);
    mix(static_cast<uint64_t>(s->page));
    for (uint32_t b = s->first; b != kNone; b = blocks_[b].next) {
      const Block& x = blocks_[b];
      mix(static_cast<uint64_t>(x.size) * 4 + static_cast<uint64_t>(x.state));
      mix(x.uses + x.events);
      if (collects_ && x.state == BlockState::free) mix(age(x));
    }
  }
  return h;
}

void CachingAllocator::check_invariants() const {
  struct Sums {
    int64_t segments = 0, reserved = 0, allocation = 0, allocated = 0, active = 0, active_bytes = 0,
            requested = 0, splits = 0, split_bytes = 0;
  } sums[2];
  size_t free_blocks = 0, unmapped_blocks = 0, alive = 0, waiting = 0;
  Bytes reserved = 0;
  for (uint32_t i = 0; i < segments_.size(); ++i) {
    const Segment& s = segments_[i];
    if (!s.alive) continue;
    Sums& sum = sums[pool_of(s.shelf)];
    Bytes at = s.base, mapped = 0;
    uint32_t before = kNone;
    for (uint32_t b = s.first; b != kNone; b = blocks_[b].next) {
      const Block& x = blocks_[b];
      ++alive;
      SHARDSIM_ASSERT(x.prev == before, "a block's left neighbour is the one before it");
      SHARDSIM_ASSERT(x.address == at && x.size > 0, "blocks tile their segment");
      SHARDSIM_ASSERT(x.segment == i && x.shelf == s.shelf, "a block is of its segment's pool");
      SHARDSIM_ASSERT(x.expandable == (s.page != 0), "blocks of a range are marked");
      SHARDSIM_ASSERT((x.state == BlockState::pending) == (x.events > 0),
                      "pending blocks wait for events");
      if (before != kNone && (x.state == BlockState::free || x.state == BlockState::unmapped))
        SHARDSIM_ASSERT(blocks_[before].state != x.state, "free neighbours have merged");
      at += x.size;
      before = b;
      waiting += x.events;
      if (x.state == BlockState::unmapped) {
        ++unmapped_blocks;
        SHARDSIM_ASSERT((x.address - s.base) % s.page == 0 && x.size % s.page == 0,
                        "unmapped blocks are whole pages");
        const auto& list = shelves_[x.shelf]->unmapped;
        SHARDSIM_ASSERT(std::find(list.begin(), list.end(), b) != list.end(),
                        "unmapped blocks are listed");
        continue;
      }
      mapped += x.size;
      if (x.state == BlockState::free) {
        ++free_blocks;
        const FreeBlocks& free = shelves_[x.shelf]->free;
        FreeBlocks::Cursor c = free.lower_bound(x.size);
        while (c.valid() && free.at(c).size == x.size && free.at(c).block != b) c = free.next(c);
        SHARDSIM_ASSERT(c.valid() && free.at(c).block == b && free.at(c).address == x.address,
                        "free blocks are listed");
        SHARDSIM_ASSERT(x.uses == 0, "free blocks have no uses");
        if (x.split() && !x.expandable) {
          ++sum.splits;
          sum.split_bytes += x.size;
        }
        continue;
      }
      ++sum.active;
      sum.active_bytes += x.size;
      sum.requested += x.requested;
      SHARDSIM_ASSERT(x.size >= settings_.round(1) && x.requested <= x.size,
                      "a block has room for what was asked");
      if (x.state != BlockState::allocated) continue;
      ++sum.allocation;
      sum.allocated += x.size;
      SHARDSIM_ASSERT(slots_[x.slot] == b, "an allocated block is in its slot");
    }
    SHARDSIM_ASSERT(at == s.base + s.range, "blocks tile their segment to its end");
    SHARDSIM_ASSERT(mapped == s.bytes, "a segment's bytes are its mapped blocks");
    reserved += mapped;
    sum.reserved += mapped;
    if (s.page == 0) ++sum.segments;
  }
  SHARDSIM_ASSERT(reserved == reserved_, "reserved bytes are the mapped ones");
  SHARDSIM_ASSERT(device_used_ >= reserved_ && device_used_ <= device_.total - device_.outside,
                  "the device has room for what is reserved");
  size_t listed = 0, listed_unmapped = 0, spare = 0;
  for (const auto& s : shelves_) {
    if (!s) continue;
    Bytes size = 0, address = -1;
    for (FreeBlocks::Cursor c = s->free.first(); c.valid(); c = s->free.next(c)) {
      ++listed;
      const FreeBlocks::Entry& e = s->free.at(c);
      SHARDSIM_ASSERT(e.size > size || (e.size == size && e.address > address),
                      "free blocks are in order");
      size = e.size;
      address = e.address;
    }
    for (size_t i = 0; i < s->unmapped.size(); ++i) {
      ++listed_unmapped;
      SHARDSIM_ASSERT(
          i == 0 || blocks_[s->unmapped[i - 1]].address < blocks_[s->unmapped[i]].address,
          "unmapped blocks are in order");
    }
  }
  SHARDSIM_ASSERT(listed == free_blocks, "only free blocks are listed");
  SHARDSIM_ASSERT(listed_unmapped == unmapped_blocks, "only unmapped blocks are listed as such");
  for (uint32_t b = spare_; b != kNone; b = blocks_[b].next) ++spare;
  SHARDSIM_ASSERT(alive + spare == blocks_.size(), "every block is in a segment or spare");
  size_t queued = 0, held = 0;
  for (const Queue& q : queues_) queued += q.waiting.size() - q.head;
  for (const uint32_t b : slots_) held += b != kNone ? 1 : 0;
  SHARDSIM_ASSERT(queued == waiting, "every event has its block");
  SHARDSIM_ASSERT(static_cast<int64_t>(held) == sums[0].allocation + sums[1].allocation,
                  "every allocated block is somebody's");
  for (int pool = 0; pool < 2; ++pool) {
    const Sums& s = sums[pool];
    const auto equal = [&](Number n, int64_t value) {
      const AllocatorStat stat = statistics_.pool(n, pool);
      SHARDSIM_ASSERT(stat.current == value, "a statistic is the sum of its blocks");
      SHARDSIM_ASSERT(stat.peak >= value && statistics_.peak(n) >= statistics_.current(n),
                      "a peak is not below the current value");
    };
    equal(Number::segment, s.segments);
    equal(Number::reserved_bytes, s.reserved);
    equal(Number::allocation, s.allocation);
    equal(Number::allocated_bytes, s.allocated);
    equal(Number::active, s.active);
    equal(Number::active_bytes, s.active_bytes);
    equal(Number::requested_bytes, s.requested);
    equal(Number::inactive_split, s.splits);
    equal(Number::inactive_split_bytes, s.split_bytes);
  }
}

}  // namespace shardsim
