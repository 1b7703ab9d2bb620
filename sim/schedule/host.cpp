#include "sim/schedule/host.h"

#include "sim/base/error.h"

namespace shardsim {

uint32_t Host::repeat_buffers(uint32_t begin, uint32_t end, GroupId group) {
  const auto first = static_cast<uint32_t>(s_.buffers.size());
  s_.buffers.resize(first + (end - begin));
  for (uint32_t i = begin; i < end; ++i) {
    Buffer& b = s_.buffers[first + (i - begin)];
    b = s_.buffers[i];
    b.group = group;
  }
  return first;
}

uint32_t Host::begin_span() {
  flush();
  return static_cast<uint32_t>(s_.code.size());
}

Span Host::end_span(uint32_t begin) {
  SHARDSIM_ASSERT(open_ == begin, "nothing is played while a span is laid out");
  open_ = static_cast<uint32_t>(s_.code.size());
  return {begin, open_};
}

}  // namespace shardsim
