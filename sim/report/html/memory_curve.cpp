#include "sim/report/html/memory_curve.h"

#include <algorithm>
#include <array>

#include "sim/schedule/streams.h"

namespace shardsim {
namespace {

class Walk {
 public:
  Walk(const Schedule& schedule, const Trace& trace, std::span<const Time> launch,
       std::span<const Bytes> reserved)
      : schedule_(schedule), trace_(trace), launch_(launch), reserved_(reserved) {}

  MemoryCurve take() {
    for (size_t s = 0; s < schedule_.segments.size(); ++s) {
      const Segment& segment = schedule_.segments[s];
      for (uint32_t i = segment.begin; i < segment.end; ++i) {
        if (trace_.out_of_memory && s == trace_.peak_segment && i == trace_.peak_instr)
          return finish();
        play(schedule_.code[i], segment);
      }
    }
    return finish();
  }

 private:
  MemoryCurve finish() {
    flush();
    out_.first.push_back(static_cast<uint32_t>(out_.changes.size()));
    Time end;
    for (const Time t : trace_.end) end = std::max(end, t);
    reach(end);
    return std::move(out_);
  }

  void play(const Instr& in, const Segment& segment) {
    switch (in.kind) {
      case Kind::Launch:
        flush();
        if (launches_ < trace_.issued.size()) {
          now_ = trace_.issued[launches_] + (in.a < launch_.size() ? launch_[in.a] : Time{});
          if (in.stream == kCompute) reach(trace_.start[launches_]);
        }
        ++launches_;
        break;
      case Kind::Mark:
        flush();
        if (marks_ < trace_.marks.size()) now_ = trace_.marks[marks_].host;
        ++marks_;
        break;
      case Kind::HostWork:
        flush();
        if (worked_ < trace_.worked.size()) now_ = trace_.worked[worked_].end;
        ++worked_;
        break;
      case Kind::HostWait:
      case Kind::StreamSync:
      case Kind::DeviceSync:
      case Kind::EventLimit:
        flush();
        now_ = next();
        break;
      default: change(in, segment);
    }
  }

  // The compute stream is at t, where all points are drawn that it had not reached.
  void reach(Time t) { out_.device.resize(out_.host.size(), t); }

  // When the host is known to be next.
  Time next() const {
    Time t = Time::max();
    if (launches_ < trace_.issued.size()) t = std::min(t, trace_.issued[launches_]);
    if (marks_ < trace_.marks.size()) t = std::min(t, trace_.marks[marks_].host);
    if (worked_ < trace_.worked.size()) t = std::min(t, trace_.worked[worked_].start);
    return t == Time::max() ? now_ : std::max(now_, t);
  }

  void change(const Instr& in, const Segment& segment) {
    const int sign = walk_.change(in);
    if (sign == 0) return;
    const uint32_t id = segment.buffer(in).v;
    if (id >= schedule_.buffers.size() || schedule_.buffers[id].bytes <= 0) return;
    const Buffer& b = schedule_.buffers[id];
    if (any_ && sign < 0 && rose_) flush();
    any_ = true;
    rose_ = sign > 0;
    pending_[static_cast<size_t>(b.category)] += sign * round_block(b.bytes);
    if (seen_ < reserved_.size()) held_ = reserved_[seen_++];
  }

  void flush() {
    if (!any_) return;
    any_ = false;
    const size_t first = out_.changes.size();
    for (size_t c = 0; c < pending_.size(); ++c)
      if (pending_[c] != 0) out_.changes.push_back({static_cast<Category>(c), pending_[c]});
    pending_ = {};
    out_.host.push_back(now_);
    out_.first.push_back(static_cast<uint32_t>(first));
    if (!reserved_.empty()) out_.reserved.push_back(held_);
  }

  const Schedule& schedule_;
  const Trace& trace_;
  std::span<const Time> launch_;
  std::span<const Bytes> reserved_;
  MemoryCurve out_;
  LiveWalk walk_;
  std::array<Bytes, kCategories> pending_{};
  Time now_;
  Bytes held_ = 0;
  size_t launches_ = 0, marks_ = 0, worked_ = 0, seen_ = 0;
  bool any_ = false, rose_ = false;
};

}  // namespace

MemoryCurve memory_curve(const Schedule& schedule, const Trace& trace, std::span<const Time> launch,
                         std::span<const Bytes> reserved) {
  return Walk(schedule, trace, launch, reserved).take();
}

}  // namespace shardsim
