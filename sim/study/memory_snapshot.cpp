#include "sim/study/memory_snapshot.h"

#include <algorithm>

#include "sim/base/error.h"

namespace shardsim {

namespace {

// "unsharded_parameters of model.layers.3".
std::string holder(const Simulation& s, uint32_t slot) {
  if (slot >= s.schedule.buffers.size()) return "";
  const Buffer& b = s.schedule.buffers[slot];
  std::string out(name_of(b.category));
  if (b.group.valid()) out += " of " + s.plan.groups[b.group.v].name(s.model);
  return out;
}

// Just what the viewer's own unpickler reads.
class Pickle {
 public:
  Pickle() { out_ = "\x80\x02"; }
  void text(const std::string& s) {
    out_ += 'X';
    little(s.size(), 4);
    out_ += s;
  }
  void number(int64_t n) {
    if (n >= 0 && n < 256) {
      out_ += 'K';
      little(static_cast<uint64_t>(n), 1);
    } else if (n >= INT32_MIN && n <= INT32_MAX) {
      out_ += 'J';
      little(static_cast<uint64_t>(n), 4);
    } else {
      out_ += "\x8a\x08";
      little(static_cast<uint64_t>(n), 8);
    }
  }
  void truth(bool b) { out_ += b ? '\x88' : '\x89'; }
  void begin_map() { out_ += "}("; }
  void end_map() { out_ += 'u'; }
  void begin_list() { out_ += "]("; }
  void end_list() { out_ += 'e'; }
  void pool_id() {
    number(0);
    number(0);
    out_ += '\x86';
  }
  void entry(const char* key, int64_t value) {
    text(key);
    number(value);
  }
  void entry(const char* key, const std::string& value) {
    text(key);
    text(value);
  }
  std::string take() {
    out_ += '.';
    return std::move(out_);
  }

 private:
  void little(uint64_t n, int bytes) {
    for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(n >> (8 * i) & 0xff);
  }
  std::string out_;
};

// Writes the rows of device_traces as they happen.
class History final : public MemoryObserver, public AllocatorLog {
 public:
  History(const Simulation& s, Pickle& out) : s_(s), out_(out) {}

  void allocated(const CachingAllocator& a, uint32_t slot) override {
    row("alloc", a.address(slot), requested(slot), stream(slot), holder(s_, slot));
  }
  void freeing(const CachingAllocator& a, uint32_t slot) override {
    row("free_requested", a.address(slot), requested(slot), stream(slot), holder(s_, slot));
  }
  void freed(int64_t address, uint32_t slot) override {
    row("free_completed", address, requested(slot), stream(slot), holder(s_, slot));
  }
  void segment(const SegmentEvent& event) override {
    static const char* const names[] = {"segment_alloc", "segment_free", "segment_map",
                                        "segment_unmap"};
    row(names[static_cast<int>(event.action)], event.address, event.bytes, event.stream, "");
  }

 private:
  Bytes requested(uint32_t slot) const { return s_.schedule.buffers[slot].bytes; }
  StreamId stream(uint32_t slot) const { return s_.schedule.buffers[slot].pool; }
  void row(const char* action, int64_t at, Bytes bytes, StreamId stream, const std::string& who) {
    out_.begin_map();
    out_.entry("action", std::string(action));
    out_.entry("addr", at);
    out_.entry("size", bytes);
    out_.entry("stream", stream);
    out_.text("frames");
    frames(out_, who);
    out_.end_map();
  }

 public:
  static void frames(Pickle& out, const std::string& who) {
    out.begin_list();
    if (!who.empty()) {
      out.begin_map();
      out.entry("filename", std::string("shardsim"));
      out.entry("line", int64_t{0});
      out.entry("name", who);
      out.end_map();
    }
    out.end_list();
  }

 private:
  const Simulation& s_;
  Pickle& out_;
};

}  // namespace

FreeAtPeak free_at_peak(const Scenario& scenario, const Simulation& s, size_t top) {
  SHARDSIM_ASSERT(scenario.options.memory == MemoryLevel::blocks, "free blocks need level blocks");
  Bytes peak = 0;
  for (const MarkRow& m : s.trace.marks) peak = std::max(peak, m.reserved_peak);
  if (s.trace.out_of_memory) peak = std::max(peak, s.trace.out_of_memory->reserved);
  const std::unique_ptr<Machine> machine = make_machine(scenario);
  machine->stop_at_reserved(peak);
  Trace trace;
  machine->play(s.schedule, price(scenario, s.schedule), trace);
  const CachingAllocator& a = *machine->allocator();
  FreeAtPeak out;
  out.allocated = a.allocated();
  out.active = a.active();
  out.reserved = a.reserved();
  for (const CachingAllocator::SegmentView& segment : a.segments()) {
    const auto blocks = a.blocks(segment.number);
    const bool whole = std::all_of(blocks.begin(), blocks.end(), [](const auto& b) {
      return b.state == BlockState::free || b.state == BlockState::unmapped;
    });
    for (const CachingAllocator::BlockView& b : blocks) {
      if (b.state != BlockState::free) continue;
      (whole ? out.free_whole : out.free_in_use) += b.size;
      out.largest.push_back({b.size, segment.bytes, holder(s, b.slot)});
    }
  }
  std::stable_sort(out.largest.begin(), out.largest.end(),
                   [](const FreeBlockRow& x, const FreeBlockRow& y) { return x.size > y.size; });
  if (out.largest.size() > top) out.largest.resize(top);
  return out;
}

std::string memory_snapshot(const Scenario& scenario, const Simulation& s) {
  SHARDSIM_ASSERT(scenario.options.memory == MemoryLevel::blocks, "a snapshot needs level blocks");
  Pickle out;
  out.begin_map();
  out.text("device_traces");
  out.begin_list();
  out.begin_list();
  const std::unique_ptr<Machine> machine = make_machine(scenario);
  History history(s, out);
  machine->observe(&history, &history);
  Trace trace;
  machine->play(s.schedule, price(scenario, s.schedule), trace);
  out.end_list();
  out.end_list();
  const CachingAllocator& a = *machine->allocator();
  out.text("segments");
  out.begin_list();
  for (const CachingAllocator::SegmentView& segment : a.segments()) {
    const auto blocks = a.blocks(segment.number);
    Bytes allocated = 0, active = 0;
    for (const auto& b : blocks) {
      if (b.state == BlockState::allocated) allocated += b.size;
      if (b.state == BlockState::allocated || b.state == BlockState::pending) active += b.size;
    }
    out.begin_map();
    out.entry("device", int64_t{0});
    out.entry("address", segment.address);
    out.entry("total_size", segment.bytes);
    out.entry("allocated_size", allocated);
    out.entry("active_size", active);
    out.entry("stream", segment.stream);
    out.entry("segment_type", std::string(segment.small ? "small" : "large"));
    out.text("segment_pool_id");
    out.pool_id();
    out.text("is_expandable");
    out.truth(segment.expandable);
    out.text("frames");
    History::frames(out, "");
    out.text("blocks");
    out.begin_list();
    for (const auto& b : blocks) {
      if (b.state == BlockState::unmapped) continue;
      out.begin_map();
      out.entry("address", segment.address + b.offset);
      out.entry("size", b.size);
      out.entry("requested_size", b.requested);
      out.entry("state", std::string(b.state == BlockState::allocated ? "active_allocated"
                                     : b.state == BlockState::pending ? "active_pending_free"
                                                                      : "inactive"));
      out.text("frames");
      History::frames(out, b.state == BlockState::free ? "" : holder(s, b.slot));
      out.end_map();
    }
    out.end_list();
    out.end_map();
  }
  out.end_list();
  out.end_map();
  return out.take();
}

}  // namespace shardsim
