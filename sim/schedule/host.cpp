#include "sim/schedule/host.h"

#include "sim/base/error.h"
#include "sim/schedule/streams.h"

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

void Host::launch(StreamId stream, WorkId w, std::initializer_list<BufferId> tensors) {
  if (tensors.size() > 0)
    s_.tensors.push_back(
        {static_cast<uint32_t>(s_.code.size()), *tensors.begin(), *(tensors.end() - 1)});
  launch(stream, w);
}

// Behind it in 2.7: the work's end event and its future's are recorded, the issuer waits for the first.
void Host::collective(StreamId stream, WorkId w, std::initializer_list<BufferId> tensors) {
  if (!behaviour_.internal_streams && legacy_nccl_) {
    make_group(s_.works[w.v].comm);
    launch(stream, w, tensors);
    record(stream);
    record(stream);
    return;
  }
  if (!behaviour_.internal_streams) {
    record(stream);
    launch(stream, w, tensors);
    const EventId done = record(stream);
    emit(Kind::WaitUnlessDone, stream, done.v);
    return;
  }
  const Work& work = s_.works[w.v];
  const StreamId internal = internal_stream(work.comm);
  wait_stream(internal, stream);
  if (behaviour_.records_streams &&
      (work.kind == WorkKind::AllReduce || work.kind == WorkKind::Broadcast))
    for (BufferId b : tensors) use_on(b, internal);
  launch(internal, w, tensors);
  const EventId done = record(internal);
  record(internal);
  wait(stream, done);
}

void Host::make_streams() {
  if (streams_made_) return;
  streams_made_ = true;
  if (behaviour_.makes_groups_late || legacy_nccl_) emit(Kind::HostCalls, 0, 4 * 32);
}

// The legacy backend makes a group's communicator, and the pools of streams, at its first collective.
void Host::make_group(CommId comm) {
  if (made_.size() <= comm.v) made_.resize(comm.v + 1, false);
  if (made_[comm.v]) return;
  made_[comm.v] = true;
  make_streams();
  emit(Kind::HostCalls, 0, 1);
}

Host::AsyncWork Host::issue(StreamId stream, WorkId w, std::initializer_list<BufferId> tensors) {
  const StreamId internal = internal_stream(s_.works[w.v].comm);
  wait_stream(internal, stream);
  if (behaviour_.records_streams)
    for (BufferId b : tensors) use_on(b, internal);
  const bool recent = !behaviour_.internal_streams && !legacy_nccl_;
  if (recent) record(internal);
  launch(internal, w, tensors);
  const EventId end = record(internal);
  return {end, recent ? EventId{} : record(internal)};
}

EventId Host::future_of(StreamId stream, const AsyncWork& work) {
  if (work.future.valid()) return work.future;
  wait_for_work(stream, work.end);
  return record(stream);
}

// FSDP2's all-reduce stream is the first of them.
StreamId Host::pool_stream() {
  constexpr size_t kPool = 32;
  make_streams();
  const size_t place = (1 + pool_streams_++) % kPool;
  const StreamId stream = place == 0 ? kAllReduce : static_cast<StreamId>(kInternal + place - 1);
  if (s_.streams.size() == stream) s_.streams.push_back("pool " + std::to_string(place));
  return stream;
}

// They come from the device's pool, handed out in turn.
StreamId Host::internal_stream(CommId comm) {
  if (internal_.size() <= comm.v) internal_.resize(comm.v + 1, 0);
  if (internal_[comm.v] != 0) return internal_[comm.v];
  make_streams();
  if (legacy_nccl_ && !behaviour_.internal_streams)
    make_group(comm);
  else if (behaviour_.makes_groups_late)
    emit(Kind::HostCalls, 0, 1);  // the communicator
  const size_t known = s_.streams.size();
  internal_[comm.v] = pool_stream();
  if (s_.streams.size() > known) s_.streams.back() = "internal (" + s_.comms[comm.v].name + ")";
  return internal_[comm.v];
}

void Host::keep_workspace(Thread thread) {
  BufferId& b = workspaces_[static_cast<size_t>(thread)];
  if (!b.valid()) b = buffer(kCublasWorkspace, kCompute, Category::workspace);
  memory(Kind::AllocOnce, b, Reloc::none);
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
