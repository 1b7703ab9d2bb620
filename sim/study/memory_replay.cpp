#include "sim/study/memory_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "sim/base/error.h"

namespace shardsim {

namespace {

using Number = AllocatorStatistics::Number;

constexpr size_t kDifferences = 5;

// An event is the row of a free_completed; it has passed when the replay is beyond it.
class RowClock final : public DeviceClock {
 public:
  int64_t record(StreamId) override { return now; }
  bool done(int64_t event) override { return event < now; }
  void wait(int64_t) override {}
  void wait_stream(StreamId) override {}
  int64_t now = 0;
};

// A segment row as a recording has it. Each segment_alloc and segment_map counts one up, and a place
// is given from the nearest such beginning below it, until a row has taken that away again.
struct RecordedEvent {
  SegmentAction action = SegmentAction::alloc;
  int64_t segment = 0;
  Bytes offset = 0, bytes = 0;
  StreamId stream = 0;
  friend bool operator==(const RecordedEvent&, const RecordedEvent&) = default;
};

class RecordedPlaces final : public AllocatorLog {
 public:
  // With a segment before the history, which is -1 to the recording.
  void begin() {
    events.clear();
    begins_.clear();
    next_ = 0;
  }
  void segment(const SegmentEvent& e) override {
    const bool more = e.action == SegmentAction::alloc || e.action == SegmentAction::map;
    if (more)
      begins_.insert(std::lower_bound(begins_.begin(), begins_.end(), e.address, below),
                     {e.address, next_++});
    const auto [segment, offset] = place(e.address);
    events.push_back({e.action, segment, offset, e.bytes, e.stream});
    if (!more && segment >= 0) begins_.erase(nearest(e.address));
  }
  std::pair<int64_t, Bytes> place(Bytes address) {
    const auto it = nearest(address);
    if (it == begins_.end()) return {-1, 0};
    return {it->number, address - it->address};
  }

  std::vector<RecordedEvent> events;

 private:
  struct Begin {
    Bytes address = 0;
    int64_t number = 0;
  };
  static bool below(const Begin& b, Bytes address) { return b.address < address; }
  std::vector<Begin>::iterator nearest(Bytes address) {
    const auto it = std::lower_bound(begins_.begin(), begins_.end(), address + 1, below);
    return it == begins_.begin() ? begins_.end() : it - 1;
  }
  std::vector<Begin> begins_;  // by address
  int64_t next_ = 0;
};

std::optional<SegmentAction> segment_action(TraceAction a) {
  switch (a) {
    case TraceAction::segment_alloc: return SegmentAction::alloc;
    case TraceAction::segment_free: return SegmentAction::free;
    case TraceAction::segment_map: return SegmentAction::map;
    case TraceAction::segment_unmap: return SegmentAction::unmap;
    default: return std::nullopt;
  }
}

bool takes(const TraceRow& r) {
  return r.action == TraceAction::segment_alloc || r.action == TraceAction::segment_map;
}
bool gives(const TraceRow& r) {
  return r.action == TraceAction::segment_free || r.action == TraceAction::segment_unmap;
}

class Replayer {
 public:
  Replayer(const MemoryTrace& trace, const MemoryReplayOptions& options)
      : trace_(trace), options_(options), allocator_(options.settings, options.device, clock_) {
    if (options.check) allocator_.set_log(&log_);
  }

  // Plays rows up to `stop`.
  void play(size_t stop) {
    if (trace_.preloaded) {
      // Two buffers fill the segment of 2 MiB.
      for (const uint32_t i : {0U, 1U}) allocator_.alloc(scratch_slot() + i, kMiB, 0);
      if (!options_.given) free_first_segment();
      log_.begin();
    }
    for (row_ = 0; row_ < stop && !result_.oom_row; ++row_) step(trace_.rows[row_]);
    finish();
  }
  MemoryReplay& result() { return result_; }
  const CachingAllocator& allocator() const { return allocator_; }

 private:
  uint32_t scratch_slot() const { return static_cast<uint32_t>(trace_.buffers.size()); }

  void free_first_segment() {
    for (const uint32_t i : {0U, 1U}) allocator_.free(scratch_slot() + i);
  }
  bool given(uint32_t buffer) const {
    return options_.given && trace_.rows[trace_.buffers[buffer].allocated].segment < 0;
  }

  void step(const TraceRow& r) {
    if (r.buffer != UINT32_MAX && given(r.buffer)) {
      if (options_.check && r.action == TraceAction::alloc) {
        ++result_.check->allocs;
        ++result_.check->given;
      }
      return;
    }
    switch (r.action) {
      case TraceAction::alloc: alloc(r); break;
      case TraceAction::oom: out_of_memory(r); break;
      case TraceAction::free_requested: free(r); break;
      case TraceAction::free_completed: break;  // events pass by their rows
      default:
        if (options_.check) expected_.push_back(event_of(r));
        if (gives(r) && given_back_by_hand()) {
          set_clock();
          if (options_.given && gives_first_segment()) free_first_segment();
          allocator_.empty_cache();
        }
    }
  }

  RecordedEvent event_of(const TraceRow& r) const {
    return {*segment_action(r.action), r.segment, r.segment < 0 ? 0 : r.offset, r.bytes, r.stream};
  }

  // Whether the run of segment rows that begins here is an empty_cache. Otherwise it belongs to an
  // alloc that needed room: that one ends in a new segment that the device could not have held, or
  // in an error; or garbage was collected, if that is switched on.
  bool given_back_by_hand() const {
    if (row_ > 0 && gives(trace_.rows[row_ - 1])) return false;  // the run has begun before
    Bytes taken = 0;
    for (size_t i = row_; i < trace_.rows.size(); ++i) {
      const TraceRow& r = trace_.rows[i];
      if (r.action == TraceAction::oom) return false;
      if (r.action == TraceAction::alloc || r.action == TraceAction::free_requested) break;
      if (takes(r)) taken = std::min(taken + r.bytes, Bytes{INT64_MAX / 4});
    }
    if (taken == 0) return true;
    return own_settings() && trace_.settings.gc_threshold == 0 && taken <= allocator_.device_free();
  }
  // In the run of segment rows that begins here.
  bool gives_first_segment() const {
    for (size_t i = row_; i < trace_.rows.size() && trace_.rows[i].buffer == UINT32_MAX; ++i)
      if (gives(trace_.rows[i]) && trace_.rows[i].segment < 0) return true;
    return false;
  }
  bool own_settings() const { return options_.check; }

  void set_clock() {
    // Events whose rows come before this alloc have been seen; in a retry they are waited for.
    clock_.now = static_cast<int64_t>(row_);
  }

  void alloc(const TraceRow& r) {
    set_clock();
    const Bytes before = allocator_.reserved();
    if (!allocator_.alloc(r.buffer, r.bytes, r.stream)) {
      result_.oom_row = static_cast<uint32_t>(row_);
      result_.oom = allocator_.out_of_memory();
      return;
    }
    note_peak(before);
    if (!options_.check) return;
    compare_events();
    ++result_.check->allocs;
    if (!allocator_.holds(r.buffer)) return;  // 0 bytes have no place
    const auto [segment, offset] = log_.place(allocator_.address(r.buffer));
    const bool same_offset = segment < 0 || offset == r.offset;  // not kept in segment -1
    if (segment == r.segment && same_offset) return;
    ++result_.check->misplaced;
    differ(fmt::format(
        "row {}: alloc of {} bytes on stream {}: expected segment {} at {}, got {} at {}", row_,
        r.bytes, r.stream, r.segment, r.offset, segment, offset));
  }

  // The process went on without it.
  void out_of_memory(const TraceRow& r) {
    if (!options_.check) return;
    set_clock();
    if (!allocator_.alloc(scratch_slot(), r.bytes, r.stream)) return;
    allocator_.free(scratch_slot());
    differ(fmt::format("row {}: expected out of memory for {} bytes", row_, r.bytes));
    ++result_.check->misplaced;
  }

  void free(const TraceRow& r) {
    const TraceBuffer& b = trace_.buffers[r.buffer];
    const bool at_once = b.completed == row_ + 1;
    if (!at_once) {
      const int64_t event =
          b.completed == TraceBuffer::kNever ? INT64_MAX : static_cast<int64_t>(b.completed);
      allocator_.record_use(r.buffer, event);
    }
    allocator_.free(r.buffer);
    if (options_.check) compare_events();
  }

  void note_peak(Bytes before) {
    const Bytes now = allocator_.reserved();
    if (now <= before || now <= result_.reserved_peak) return;
    result_.reserved_peak = now;
    result_.peak_row = static_cast<uint32_t>(row_);
    result_.peak_allocated = allocator_.allocated();
    result_.peak_active = allocator_.active();
  }

  void differ(const std::string& text) {
    if (result_.check->differences.size() < kDifferences)
      result_.check->differences.push_back(text);
  }

  void compare_events() {
    result_.check->segments += static_cast<int64_t>(expected_.size());
    // Within one call the order among streams is that of pointers: not known, and not compared.
    const auto less = [](const RecordedEvent& a, const RecordedEvent& b) {
      return std::tie(a.action, a.segment, a.offset) < std::tie(b.action, b.segment, b.offset);
    };
    std::sort(expected_.begin(), expected_.end(), less);
    std::sort(log_.events.begin(), log_.events.end(), less);
    if (expected_ != log_.events) {
      std::vector<RecordedEvent> common;
      std::set_intersection(expected_.begin(), expected_.end(), log_.events.begin(),
                            log_.events.end(), std::back_inserter(common), less);
      result_.check->segments_elsewhere +=
          static_cast<int64_t>(std::max(expected_.size(), log_.events.size()) - common.size());
      const auto list = [](const std::vector<RecordedEvent>& events) {
        std::string out;
        for (const RecordedEvent& e : events) {
          static const char* const names[] = {"alloc", "free", "map", "unmap"};
          out += fmt::format(" {} segment {} of {} bytes", names[static_cast<int>(e.action)],
                             e.segment, e.bytes);
        }
        return out.empty() ? std::string(" nothing") : out;
      };
      differ(fmt::format("row {}: segments: expected{}, got{}", row_, list(expected_),
                         list(log_.events)));
    }
    expected_.clear();
    log_.events.clear();
  }

  void finish() {
    if (options_.check && !result_.oom_row) compare_events();
    const AllocatorStatistics& s = allocator_.statistics();
    result_.allocated_peak = s.peak(Number::allocated_bytes);
    result_.active_peak = s.peak(Number::active_bytes);
    result_.requested_peak = s.peak(Number::requested_bytes);
    result_.reserved_peak = s.peak(Number::reserved_bytes);
    result_.device_allocs = s.device_alloc;
    result_.device_frees = s.device_free;
    result_.retries = s.alloc_retries;
  }

 public:
  void begin_check() {
    result_.check.emplace();
    result_.check->recorded_reserved_peak = trace_.reserved_peak;
  }

 private:
  const MemoryTrace& trace_;
  const MemoryReplayOptions& options_;
  RowClock clock_;
  CachingAllocator allocator_;
  RecordedPlaces log_;
  std::vector<RecordedEvent> expected_;
  MemoryReplay result_;
  size_t row_ = 0;
};

// The free blocks that there are now.
void report_free_blocks(const CachingAllocator& allocator, const MemoryTrace& trace, size_t top,
                        MemoryReplay& out) {
  for (const auto& segment : allocator.segments()) {
    const auto blocks = allocator.blocks(segment.number);
    uint32_t holder = UINT32_MAX;
    Bytes most = 0;
    for (const auto& b : blocks) {
      const bool used = b.state == BlockState::allocated || b.state == BlockState::pending;
      if (used && b.size > most) {
        most = b.size;
        holder = b.slot;
      }
    }
    for (const auto& b : blocks) {
      if (b.state != BlockState::free) continue;
      const bool whole = holder == UINT32_MAX;
      (whole ? out.peak_free_whole : out.peak_free_split) += b.size;
      FreeBlockReport r;
      r.size = b.size;
      r.segment = int64_t{segment.number} - (trace.preloaded ? 1 : 0);
      r.offset = b.offset;
      r.stream = segment.stream;
      r.small = segment.small;
      r.expandable = segment.expandable;
      r.whole = whole;
      r.left_by = b.slot < trace.buffers.size() ? b.slot : UINT32_MAX;
      r.held_by = holder;
      out.free_blocks.push_back(r);
    }
  }
  std::stable_sort(
      out.free_blocks.begin(), out.free_blocks.end(),
      [](const FreeBlockReport& a, const FreeBlockReport& b) { return a.size > b.size; });
  if (out.free_blocks.size() > top) out.free_blocks.resize(top);
}

}  // namespace

MemoryReplay replay_memory(const MemoryTrace& trace, const MemoryReplayOptions& options) {
  const auto play = [&](const MemoryReplayOptions& o) {
    Replayer replayer(trace, o);
    if (o.check) replayer.begin_check();
    replayer.play(trace.rows.size());
    return replayer.result();
  };
  MemoryReplay out = play(options);
  if (options.check && trace.preloaded && !options.given && !out.check->equal(out.reserved_peak)) {
    MemoryReplayOptions with_given = options;
    with_given.given = true;
    const MemoryReplay second = play(with_given);
    if (second.check->equal(second.reserved_peak)) out.check = second.check;
  }
  if (!trace.rows.empty()) {
    // Played once more up to the row of the peak, to look at it.
    MemoryReplayOptions quiet = options;
    quiet.check = false;
    Replayer again(trace, quiet);
    again.play(std::min<size_t>(out.peak_row + 1, trace.rows.size()));
    report_free_blocks(again.allocator(), trace, options.top, out);
  }
  return out;
}

}  // namespace shardsim
