#include "sim/schedule/step_end.h"

#include <vector>

namespace shardsim {
namespace {

// The instructions of some segments, one after another.
class Walk {
 public:
  Walk(const Schedule& schedule, size_t begin, size_t end)
      : s_(schedule), at_(begin), end_(end), i_(begin < end ? s_.segments[begin].begin : 0) {
    skip();
  }
  bool over() const { return at_ == end_; }
  const Segment& segment() const { return s_.segments[at_]; }
  const Instr& instr() const { return s_.code[i_]; }
  void next() {
    ++i_;
    skip();
  }

 private:
  void skip() {
    while (at_ < end_ && i_ >= s_.segments[at_].end)
      if (++at_ < end_) i_ = s_.segments[at_].begin;
  }
  const Schedule& s_;
  size_t at_, end_;
  uint32_t i_;
};

}  // namespace

StepEnd end_of(const Schedule& schedule) {
  return {schedule.code.size(),  schedule.segments.size(), schedule.tensors.size(),
          schedule.marks.size(), schedule.works.size(),    schedule.host_works.size()};
}

bool repeats(const Schedule& schedule, const StepEnd& a, const StepEnd& b) {
  if (schedule.works.size() != b.works || schedule.host_works.size() != b.host_works) return false;
  if (schedule.marks.size() - b.marks != b.marks - a.marks) return false;
  std::vector<uint32_t> same(schedule.events, UINT32_MAX);  // by the first's event, the other's
  Walk one(schedule, a.segments, b.segments), other(schedule, b.segments, schedule.segments.size());
  for (; !one.over() && !other.over(); one.next(), other.next()) {
    const Instr &x = one.instr(), &y = other.instr();
    if (x.kind != y.kind || x.stream != y.stream) return false;
    switch (x.kind) {
      case Kind::Mark: break;
      case Kind::Record: same[one.segment().event(x).v] = other.segment().event(y).v; break;
      case Kind::Wait:
      case Kind::WaitUnlessDone:
        if (same[one.segment().event(x).v] != other.segment().event(y).v) return false;
        break;
      case Kind::Alloc:
      case Kind::AllocOnce:
      case Kind::Free:
      case Kind::UseOn:
        if (one.segment().buffer(x) != other.segment().buffer(y)) return false;
        break;
      case Kind::HostWait:
      case Kind::StreamSync:
      case Kind::DeviceSync:
      case Kind::EventPush:
      case Kind::EventLimit: return false;
      default:
        if (x.a != y.a) return false;
    }
  }
  return one.over() && other.over();
}

void cut(Schedule& schedule, const StepEnd& end) {
  schedule.code.resize(end.code);
  schedule.segments.resize(end.segments);
  schedule.tensors.resize(end.tensors);
  schedule.marks.resize(end.marks);
}

}  // namespace shardsim
