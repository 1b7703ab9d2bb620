#include "backends/host/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "backends/host/kernels.h"

namespace shardsim {

namespace {

using Clock = std::chrono::steady_clock;

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  return "unknown";
}

}  // namespace

HostDevice::HostDevice(RankGroup& group, Bytes memory, Limits limits)
    : group_(group), memory_(memory), limits_(std::move(limits)) {}

HostDevice::~HostDevice() {
  finish();
  if (!failure_.empty() && group_.writes_after_stop()) return;
  for (const auto& [memory, bytes] : segments_) std::free(memory);
}

Environment HostDevice::environment() const {
  return {{"backend", "host"},
          {"processor", processor()},
          {"hardware_threads", std::to_string(std::thread::hardware_concurrency())},
          {"ranks", group_.kind()}};
}

void* HostDevice::reserve(Bytes bytes) {
  constexpr size_t kAlignment = 512;
  const Bytes whole = round_block(bytes);
  if (whole > memory_ - reserved_) return nullptr;
  void* const memory = std::aligned_alloc(kAlignment, static_cast<size_t>(whole));
  if (memory == nullptr) return nullptr;
  reserved_ += whole;
  segments_.emplace_back(memory, whole);
  return memory;
}

// cudaFree waits for the device.
void HostDevice::release(void* memory) {
  const auto at = std::find_if(segments_.begin(), segments_.end(),
                               [&](const auto& s) { return s.first == memory; });
  if (at == segments_.end()) return;
  if (failure_of_run().empty())
    synchronize();
  else if (group_.writes_after_stop())
    return;
  reserved_ -= at->second;
  std::free(memory);
  segments_.erase(at);
}

void HostDevice::pin(Bytes bytes) {
  pinned_.push_back(std::make_unique<char[]>(static_cast<size_t>(bytes)));
}

void HostDevice::prepare(const DevicePlan& plan) {
  group_.prepare(plan.comms);
  issued_.assign(plan.comms.size(), 0);
  events_.resize(plan.events);
  times_.resize(plan.slots);
  largest_kernel_ = plan.largest_kernel;
  for (const DevicePlan::Stream& s : plan.streams) {
    streams_.push_back(std::make_unique<Stream>());
    streams_.back()->name = s.name;
  }
  origin_ = Clock::now();
}

Time HostDevice::since_prepared(Clock::time_point t) const {
  return Time::ns(std::chrono::duration_cast<std::chrono::nanoseconds>(t - origin_).count());
}

std::string HostDevice::failure_of_run() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// Threads of streams that nothing is put on are never made.
void HostDevice::put(StreamId stream, const Call& call) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw Stopped(Stopped::Why::other_rank, failure_);
  Stream& s = *streams_[stream];
  s.calls.push_back(call);
  if (!s.thread.joinable()) s.thread = std::thread([this, &s] { serve(s); });
  s.more.notify_one();
}

void HostDevice::launch(StreamId stream, const Work& work, uint32_t slot) {
  put(stream, {Call::What::launch, slot, 0, &work, {}, {}});
}

void HostDevice::collective(StreamId stream, const Work& work, Regions regions, uint32_t slot) {
  put(stream, {Call::What::collective, slot, issued_[work.comm.v]++, &work, regions, {}});
}

void HostDevice::record(uint32_t event, StreamId stream) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++events_[event].recorded;
  }
  put(stream, {Call::What::record, event, number, nullptr, {}, {}});
}

void HostDevice::wait(StreamId stream, uint32_t event) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = events_[event].recorded;
    if (events_[event].passed >= number) return;
  }
  put(stream, {Call::What::wait, event, number, nullptr, {}, {}});
}

void HostDevice::fill(StreamId stream, void* at, const Pattern& pattern) {
  put(stream, {Call::What::fill, 0, 0, nullptr, {nullptr, at}, pattern});
}

void HostDevice::check(StreamId stream, const void* at, const Pattern& pattern, uint32_t slot) {
  put(stream, {Call::What::check, slot, 0, nullptr, {at, nullptr}, pattern});
}

uint32_t HostDevice::make_event() {
  const std::lock_guard lock(mutex_);
  events_.emplace_back();
  return static_cast<uint32_t>(events_.size() - 1);
}

bool HostDevice::passed(uint32_t event) {
  const std::lock_guard lock(mutex_);
  return events_[event].passed >= events_[event].recorded;
}

// In slices, for the sake of what no condition tells: Ctrl-C and the other ranks.
template <class F>
void HostDevice::wait_until(F&& done, const char* what) {
  const auto patience = std::chrono::duration<double>(limits_.timeout_s);
  auto deadline = Clock::now() + patience;
  std::unique_lock lock(mutex_);
  uint64_t seen = played_;
  while (true) {
    if (played_ != seen) {
      seen = played_;
      deadline = Clock::now() + patience;
    }
    // First: a stream that has failed has no calls left either.
    if (!failure_.empty()) throw Stopped(Stopped::Why::other_rank, failure_);
    if (done()) return;
    if (limits_.interrupted()) throw Stopped(Stopped::Why::interrupted, "interrupted");
    if (std::string why = group_.stopped(); !why.empty())
      throw Stopped(Stopped::Why::other_rank, why);
    if (Clock::now() > deadline)
      throw Stopped(Stopped::Why::timeout,
                    fmt::format("{} did not end in {} s", what, limits_.timeout_s));
    changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
}

void HostDevice::host_wait(uint32_t event) {
  wait_until([&] { return events_[event].passed >= events_[event].recorded; }, "an event");
}

void HostDevice::synchronize(StreamId stream) {
  wait_until([&] { return streams_[stream]->calls.empty(); }, "a stream's work");
}

void HostDevice::synchronize() {
  wait_until(
      [&] {
        return std::all_of(streams_.begin(), streams_.end(),
                           [](const auto& s) { return s->calls.empty(); });
      },
      "the device's work");
}

void HostDevice::barrier() {
  synchronize();
  group_.barrier(limits_);
}

void HostDevice::serve(Stream& stream) {
  HostKernels kernels(largest_kernel_);
  std::unique_lock lock(mutex_);
  while (true) {
    stream.more.wait(lock, [&] { return !stream.calls.empty() || ending_ || !failure_.empty(); });
    if (!failure_.empty()) {
      stream.calls.clear();
      changed_.notify_all();
      return;
    }
    if (stream.calls.empty()) return;
    const Call call = stream.calls.front();
    if (call.what == Call::What::wait) {
      changed_.wait(lock,
                    [&] { return events_[call.slot].passed >= call.number || !failure_.empty(); });
    } else if (call.what == Call::What::record) {
      events_[call.slot].passed = std::max(events_[call.slot].passed, call.number);
      changed_.notify_all();
    } else {
      lock.unlock();
      std::string failed;
      try {
        play(call, kernels);
      } catch (const Stopped& e) {
        failed = e.what();
      }
      lock.lock();
      if (!failed.empty() && failure_.empty()) failure_ = failed;
    }
    if (!failure_.empty()) continue;
    stream.calls.pop_front();
    ++played_;
    if (stream.calls.empty()) changed_.notify_all();
  }
}

void HostDevice::play(const Call& call, HostKernels& kernels) {
  switch (call.what) {
    case Call::What::fill: return fill_pattern(call.regions.out, call.pattern);
    case Call::What::check: {
      const int64_t different = count_differences(call.regions.in, call.pattern);
      if (different == 0) return;
      const std::lock_guard lock(mutex_);
      differences_.emplace_back(call.slot, different);
      return;
    }
    default: break;
  }
  const auto number = static_cast<uint32_t>(call.number);
  if (call.what == Call::What::collective) group_.wait_for_turn(*call.work, number);
  const Clock::time_point start = Clock::now();
  Clock::time_point end;
  if (call.what == Call::What::launch) {
    kernels.run(*call.work);
    end = Clock::now();
  } else {
    end = group_.run(*call.work, number, call.regions);
  }
  const std::lock_guard lock(mutex_);
  times_[call.slot] = {since_prepared(start), since_prepared(end), true};
}

void HostDevice::finish() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (const auto& s : streams_) s->more.notify_all();
    changed_.notify_all();
  }
  for (const auto& s : streams_)
    if (s->thread.joinable()) s->thread.join();
}

std::vector<LaunchTimes> HostDevice::times() {
  const std::lock_guard lock(mutex_);
  return times_;
}

std::vector<std::pair<uint32_t, int64_t>> HostDevice::differences() {
  const std::lock_guard lock(mutex_);
  return differences_;
}

// First the others, that no thread of this rank waits for them; then this rank's own threads.
void HostDevice::abort(const std::string& why) {
  group_.stop(fmt::format("rank {}: {}", rank(), why));
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = why;
  }
  finish();
}

}  // namespace shardsim
