// The free blocks of one stream and pool, ordered by (size, address): PyTorch's std::set of a pool,
// without a tree. Sizes fall into bins (16 to a power of two, in units of 512 bytes); a bitmap says
// which bins hold something, and a bin keeps its few entries sorted. The smallest block of at least n
// bytes is in n's own bin, or the first of the next bin that holds any: a few instructions, and no
// memory is asked for once the bins have grown.
//   bin(size): u = size / 512; u < 16: u; else 16 (floor(log2 u) - 3) + next four bits of u.
// Worked number: 20 MiB is u = 40,960 = 1010 0000 0000 0000 b: bin 16 (15 - 3) + 4 = 196, which
// begins at 20 MiB and ends at 21 MiB.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "sim/base/units.h"

namespace shardsim {

class FreeBlocks {
 public:
  struct Entry {
    Bytes size = 0, address = 0;
    uint32_t block = 0;
  };
  // A position in the order; not valid after a change.
  struct Cursor {
    int bin = -1;
    int index = 0;
    bool valid() const { return bin >= 0; }
  };

  const Entry& at(Cursor c) const { return data(bins_[c.bin])[c.index]; }

  // In a bin entries descend, so that the smallest and lowest, which goes first, is at the back.
  void insert(Bytes size, Bytes address, uint32_t block) {
    const int b = bin_of(size);
    Bin& bin = bins_[b];
    if (bin.size == bin.capacity) grow(bin);
    if (bin.size == 0) mark(b);
    Entry* const entries = data(bin);
    int at = bin.size++;
    if (at > kLinear) {
      const int to = position(entries, at, size, address);
      std::copy_backward(entries + to, entries + at, entries + at + 1);
      at = to;
    } else {
      for (; at > 0 && before(entries[at - 1], size, address); --at) entries[at] = entries[at - 1];
    }
    entries[at].size = size;
    entries[at].address = address;
    entries[at].block = block;
  }

  void erase(Bytes size, Bytes address) {
    const int b = bin_of(size);
    const Entry* const entries = data(bins_[b]);
    int at = bins_[b].size;
    if (at > kLinear) {
      at = position(entries, at, size, address) - 1;
    } else {
      while (entries[--at].address != address) {
      }
    }
    erase(Cursor{b, at});
  }
  void erase(Cursor c) {
    Bin& bin = bins_[c.bin];
    Entry* const entries = data(bin);
    std::copy(entries + c.index + 1, entries + bin.size, entries + c.index);
    if (--bin.size == 0) unmark(c.bin);
  }

  // The smallest of at least `size`, the lowest of these.
  Cursor lower_bound(Bytes size) const {
    const int b = bin_of(size);
    const Entry* const entries = data(bins_[b]);
    int at = bins_[b].size;
    if (at > kLinear) {
      at = position(entries, at, size, -1);
    } else {
      while (at > 0 && entries[at - 1].size < size) --at;
    }
    if (at > 0) return {b, at - 1};
    return first_from(b + 1);
  }
  Cursor first() const { return first_from(0); }
  Cursor next(Cursor c) const {
    if (c.index > 0) return {c.bin, c.index - 1};
    return first_from(c.bin + 1);
  }
  // The one before; before an invalid cursor, the last of all.
  Cursor previous(Cursor c) const {
    if (c.valid() && c.index + 1 < bins_[c.bin].size) return {c.bin, c.index + 1};
    for (int b = c.valid() ? c.bin - 1 : kBins - 1; b >= 0; --b)
      if (bins_[b].size > 0) return {b, 0};
    return {};
  }

 private:
  // A run of store_. One that is full moves to the end of it, twice as long.
  struct Bin {
    uint32_t begin = 0;
    int32_t size = 0, capacity = 0;
  };
  static constexpr int kBins = 512;   // the last one also holds all above 16 TiB
  static constexpr int kLinear = 12;  // entries up to which no bisection pays

  Entry* data(const Bin& b) { return store_.data() + b.begin; }
  const Entry* data(const Bin& b) const { return store_.data() + b.begin; }
  void grow(Bin& b) {
    const auto to = static_cast<uint32_t>(store_.size());
    const int32_t capacity = b.capacity == 0 ? 4 : 2 * b.capacity;
    store_.resize(to + static_cast<size_t>(capacity));
    std::copy(data(b), data(b) + b.size, store_.data() + to);
    b.begin = to;
    b.capacity = capacity;
  }
  static int bin_of(Bytes size) {
    const auto u = static_cast<uint64_t>(size) / static_cast<uint64_t>(kBlock);
    if (u < 16) return static_cast<int>(u);
    const int log2 = std::bit_width(u) - 1;
    const int b = 16 * (log2 - 3) + static_cast<int>((u >> (log2 - 4)) & 15);
    return b < kBins ? b : kBins - 1;
  }
  static bool before(const Entry& e, Bytes size, Bytes address) {
    return e.size < size || (e.size == size && e.address < address);
  }
  // In a bin's first n entries: how many are not before (size, address).
  static int position(const Entry* entries, int n, Bytes size, Bytes address) {
    int lo = 0, hi = n;
    while (lo < hi) {
      const int mid = (lo + hi) / 2;
      if (before(entries[mid], size, address))
        hi = mid;
      else
        lo = mid + 1;
    }
    return lo;
  }
  void mark(int b) {
    bits_[static_cast<size_t>(b >> 6)] |= uint64_t{1} << (b & 63);
    words_ |= 1U << (b >> 6);
  }
  void unmark(int b) {
    uint64_t& word = bits_[static_cast<size_t>(b >> 6)];
    word &= ~(uint64_t{1} << (b & 63));
    if (word == 0) words_ &= ~(1U << (b >> 6));
  }
  Cursor first_from(int b) const {
    if (b >= kBins) return {};
    const int w = b >> 6;
    uint64_t word = bits_[static_cast<size_t>(w)] & (~uint64_t{0} << (b & 63));
    int at = w;
    if (word == 0) {
      const unsigned later = words_ & (~1U << w);
      if (later == 0) return {};
      at = std::countr_zero(later);
      word = bits_[static_cast<size_t>(at)];
    }
    const int found = at * 64 + std::countr_zero(word);
    return {found, bins_[found].size - 1};
  }

  std::vector<Entry> store_;
  Bin bins_[kBins];
  std::array<uint64_t, kBins / 64> bits_{};
  unsigned words_ = 0;  // bit w: bits_[w] is not zero
};

}  // namespace shardsim
