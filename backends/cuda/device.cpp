#include "backends/cuda/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "backends/cuda/environment.h"
#include "backends/cuda/kernels.h"
#include "sim/base/error.h"

namespace shardsim {

namespace {

constexpr Bytes kStaging = 64 * kMiB;        // larger copies from and to the host go in pieces
constexpr Bytes kLeastScratch = 256 * kMiB;  // more than the second-level cache of any GPU
constexpr uint32_t kAnchorEvery = 256, kLookEvery = 256;  // launches
constexpr uint32_t kHarvest = 16;  // launches whose times are taken in some 50 us
constexpr auto kSpin = std::chrono::microseconds(200);

int count_gpus() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver || count == 0)
    throw NoDevice(code == cudaErrorInsufficientDriver
                       ? "this machine has no NVIDIA driver, or one older than this build's CUDA"
                       : "this machine has no NVIDIA GPU");
  call("cudaGetDeviceCount", code);
  return count;
}

int choose_gpu(const Meeting& meeting, const CudaOptions& options) {
  const int count = count_gpus();
  const int local = options.local_rank.value_or(meeting.rank() % count);
  if (local >= count)
    throw Error(fmt::format("rank {} is to use GPU {} of its node, which shows {}", meeting.rank(),
                            local, count),
                {}, "start one process a GPU, or look at CUDA_VISIBLE_DEVICES");
  return local;
}

}  // namespace

CudaDevice::CudaDevice(Meeting& meeting, const CudaOptions& options)
    : meeting_(meeting), options_(options), scopes_(options.groups) {
  const int gpu = choose_gpu(meeting, options);
  call("cudaSetDevice", cudaSetDevice(gpu));
  size_t free = 0, total = 0;
  call("cudaMemGetInfo", cudaMemGetInfo(&free, &total));
  most_ = static_cast<Bytes>(total);
  if (options_.memory_limit > 0) most_ = std::min(most_, options_.memory_limit);
  call("cudaDeviceGetAttribute",
       cudaDeviceGetAttribute(&sms_, cudaDevAttrMultiProcessorCount, gpu));
}

CudaDevice::~CudaDevice() {
  collectives_.reset();
  for (const Timed& t : timed_)
    for (cudaEvent_t e : {t.begin, t.end})
      if (e != nullptr) cudaEventDestroy(e);
  if (origin_ != nullptr) cudaEventDestroy(origin_);
  for (cudaEvent_t e : events_) cudaEventDestroy(e);
  for (cudaStream_t s : streams_) cudaStreamDestroy(s);
  for (const auto& [at, bytes] : segments_) cudaFree(at);
  for (void* at : pinned_) cudaFreeHost(at);
}

int CudaDevice::world() const {
  return options_.single_gpu ? static_cast<int>(options_.single_gpu_world) : meeting_.world();
}

Environment CudaDevice::environment() const {
  Environment e = cuda_environment();
  if (options_.single_gpu)
    e.emplace_back("collectives", fmt::format("modelled: one GPU plays rank 0 of {}, a collective "
                                              "waits as long as the cost model says",
                                              options_.single_gpu_world));
  if (options_.memory_limit > 0)
    e.emplace_back("memory_limit", fmt::format("{} bytes", options_.memory_limit));
  return e;
}

void* CudaDevice::reserve(Bytes bytes) {
  void* at = nullptr;
  if (reserved_ + bytes > most_) return nullptr;
  const cudaError_t code = cudaMalloc(&at, static_cast<size_t>(bytes));
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it would be reported by the next kernel's launch
    return nullptr;
  }
  call("cudaMalloc", code);
  reserved_ += bytes;
  segments_.emplace_back(at, bytes);
  return at;
}

void CudaDevice::release(void* memory) {
  const auto at = std::find_if(segments_.begin(), segments_.end(),
                               [&](const auto& s) { return s.first == memory; });
  SHARDSIM_ASSERT(at != segments_.end(), "only what reserve() gave is released");
  reserved_ -= at->second;
  segments_.erase(at);
  // After a fault of the device its memory goes with the process.
  cudaFree(memory);
}

void CudaDevice::pin(Bytes bytes) {
  void* at = nullptr;
  call("cudaMallocHost", cudaMallocHost(&at, static_cast<size_t>(bytes)));
  pinned_.push_back(at);
}

void* CudaDevice::scratch_memory(Bytes bytes) {
  void* const at = reserve(bytes);
  if (at == nullptr)
    throw Stopped(Stopped::Why::out_of_memory,
                  fmt::format("the device has no {} bytes for what its kernels read and write, "
                              "beside the {} that are reserved",
                              bytes, reserved_));
  return at;
}

void CudaDevice::prepare(const DevicePlan& plan) {
  int least = 0, greatest = 0;
  call("cudaDeviceGetStreamPriorityRange", cudaDeviceGetStreamPriorityRange(&least, &greatest));
  for (const DevicePlan::Stream& s : plan.streams) {
    cudaStream_t stream = nullptr;
    call("cudaStreamCreateWithPriority",
         cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                      s.high_priority ? greatest : least));
    streams_.push_back(stream);
  }
  workspaces_.assign(streams_.size(), nullptr);
  for (uint32_t e = 0; e < plan.events; ++e) make_event();
  timed_.resize(plan.slots);
  times_.resize(plan.slots);
  for (Timed& t : timed_) {
    call("cudaEventCreate", cudaEventCreateWithFlags(&t.begin, cudaEventDefault));
    call("cudaEventCreate", cudaEventCreateWithFlags(&t.end, cudaEventDefault));
  }
  scratch_bytes_ = std::max(round_block(plan.largest_kernel) + 2 * kBlock, kLeastScratch);
  scratch_ = static_cast<char*>(scratch_memory(scratch_bytes_));
  kernels::fill_scratch(scratch_, scratch_bytes_, sms_, streams_[0]);
  call("scratch_kernel", cudaGetLastError());
  call("cudaMallocHost", cudaMallocHost(&staging_, static_cast<size_t>(kStaging)));
  pinned_.push_back(staging_);
  counts_ = static_cast<unsigned long long*>(
      scratch_memory(std::max<Bytes>(plan.slots, 1) * static_cast<Bytes>(sizeof *counts_)));
  call("cudaMemsetAsync", cudaMemsetAsync(counts_, 0, plan.slots * sizeof *counts_, streams_[0]));
  if (!options_.single_gpu) {
    collectives_ = std::make_unique<Collectives>(meeting_, options_.limits);
    collectives_->prepare(plan.comms);
  }
  synchronize();
  call("cudaEventCreate", cudaEventCreateWithFlags(&origin_, cudaEventDefault));
  anchor_ = origin_;
  // The stream is empty: the event passes while the host goes on.
  host_origin_ = Clock::now();
  call("cudaEventRecord", cudaEventRecord(origin_, streams_[0]));
}

Time CudaDevice::now() const {
  const auto since =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - host_origin_);
  return Time::ns(since.count());
}

// Whether there is a reason to stop. Looked at in long waits and, where the host has none, now and then.
void CudaDevice::look() {
  if (collectives_) collectives_->look();
  meeting_.look();
  if (options_.limits.interrupted()) throw Stopped(Stopped::Why::interrupted, "interrupted");
}

template <class F>
void CudaDevice::wait_until(F&& done, const char* what) {
  if (done()) return;
  const auto began = Clock::now();
  const auto deadline = began + std::chrono::duration<double>(options_.limits.timeout_s);
  while (!done()) {
    // The first microseconds without a pause: the host must not come late to the next launch.
    const auto now = Clock::now();
    if (now - began < kSpin) continue;
    look();
    if (now > deadline)
      throw Stopped(Stopped::Why::timeout,
                    fmt::format("{} has not ended within {:g} s", what, options_.limits.timeout_s));
    if (harvest(kHarvest, false) == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// The two halves a kernel of so many bytes reads and writes. Kernels go through the scratch memory
// one behind the other, so that no cache holds what the next one reads.
std::pair<void*, void*> CudaDevice::scratch_halves(Bytes bytes) {
  const Bytes half = scratch_bytes_ / 2 / kBlock * kBlock, each = round_block(bytes / 2);
  if (cursor_ + each > half) cursor_ = 0;
  const Bytes at = cursor_;
  cursor_ += each;
  return {scratch_ + at, scratch_ + half + at};
}

void* CudaDevice::workspace(StreamId stream) {
  void*& at = workspaces_[stream];
  if (at == nullptr) at = scratch_memory(kCublasWorkspace);
  return at;
}

void CudaDevice::product(StreamId stream, const Work& w) {
  Bytes offset[3], at = 0;
  for (int i = 0; i < 3; ++i) {
    const Bytes bytes = Products::bytes_of_operand(w, i);
    // Where a schedule counts fewer bytes than its operands have (a broadcast one), they overlap.
    if (at + bytes > scratch_bytes_) at = 0;
    if (bytes > scratch_bytes_) {
      scratch_ = static_cast<char*>(scratch_memory(bytes));
      scratch_bytes_ = bytes;
    }
    offset[i] = at;
    at += round_block(bytes);
  }
  products_.run(w, scratch_ + offset[0], scratch_ + offset[1], scratch_ + offset[2],
                workspace(stream), streams_[stream]);
}

void CudaDevice::copy(const Work& w, cudaStream_t stream) {
  const Bytes most = w.kind == WorkKind::CopyD2D  ? scratch_bytes_ / 2 / kBlock * kBlock
                     : w.kind == WorkKind::Memset ? scratch_bytes_
                                                  : std::min(kStaging, scratch_bytes_);
  for (Bytes done = 0; done == 0 || done < w.bytes; done += most) {
    const auto n = static_cast<size_t>(std::min(most, w.bytes - done));
    switch (w.kind) {
      case WorkKind::CopyH2D:
        call("cudaMemcpyAsync",
             cudaMemcpyAsync(scratch_, staging_, n, cudaMemcpyHostToDevice, stream));
        break;
      case WorkKind::CopyD2H:
        call("cudaMemcpyAsync",
             cudaMemcpyAsync(staging_, scratch_, n, cudaMemcpyDeviceToHost, stream));
        break;
      case WorkKind::CopyD2D:
        call("cudaMemcpyAsync",
             cudaMemcpyAsync(scratch_ + most, scratch_, n, cudaMemcpyDeviceToDevice, stream));
        break;
      default:
        // Not zero, which later products would run on.
        call("cudaMemsetAsync", cudaMemsetAsync(scratch_, 0x3c, n, stream));
    }
  }
}

void CudaDevice::begin(StreamId stream, uint32_t slot) {
  call("cudaEventRecord", cudaEventRecord(timed_[slot].begin, streams_[stream]));
}

void CudaDevice::end(StreamId stream, uint32_t slot) {
  call("cudaEventRecord", cudaEventRecord(timed_[slot].end, streams_[stream]));
  issued_ = slot + 1;
  if (issued_ % kLookEvery == 0) look();
}

void CudaDevice::launch(StreamId stream, const Work& w, uint32_t slot) {
  const Scopes::Range range(scopes_.name(w));
  cudaStream_t const s = streams_[stream];
  begin(stream, slot);
  if (w.kind == WorkKind::Gemm) {
    product(stream, w);
  } else if (w.kind == WorkKind::Kernel) {
    const auto [in, out] = scratch_halves(w.bytes);
    if (w.kernel == KernelClass::attention && w.flops > 0)
      kernels::attention(in, out, w.bytes, w.flops, sms_, s);
    else
      kernels::stream_bytes(in, out, w.bytes, sms_, s);
    call(w.name, cudaGetLastError());
  } else {
    copy(w, s);
  }
  end(stream, slot);
}

void CudaDevice::collective(StreamId stream, const Work& w, Regions regions, uint32_t slot) {
  const Scopes::Range range(scopes_.name(w));
  begin(stream, slot);
  if (options_.single_gpu) {
    kernels::wait(options_.collective_time(w).ps / 1000, streams_[stream]);
    call("wait_kernel", cudaGetLastError());
  } else {
    collectives_->run(w, regions, streams_[stream]);
  }
  end(stream, slot);
}

void CudaDevice::record(uint32_t event, StreamId stream) {
  call("cudaEventRecord", cudaEventRecord(events_[event], streams_[stream]));
}

void CudaDevice::wait(StreamId stream, uint32_t event) {
  call("cudaStreamWaitEvent", cudaStreamWaitEvent(streams_[stream], events_[event], 0));
}

void CudaDevice::fill(StreamId stream, void* at, const Pattern& pattern) {
  kernels::fill(at, pattern, sms_, streams_[stream]);
  call("fill_kernel", cudaGetLastError());
}

void CudaDevice::check(StreamId stream, const void* at, const Pattern& pattern, uint32_t slot) {
  kernels::check(at, pattern, counts_ + slot, sms_, streams_[stream]);
  call("check_kernel", cudaGetLastError());
}

uint32_t CudaDevice::make_event() {
  cudaEvent_t e = nullptr;
  call("cudaEventCreate", cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
  events_.push_back(e);
  return static_cast<uint32_t>(events_.size()) - 1;
}

bool CudaDevice::passed(uint32_t event) {
  return ready("cudaEventQuery", cudaEventQuery(events_[event]));
}

void CudaDevice::host_wait(uint32_t event) {
  wait_until([&] { return passed(event); }, "what an event marks");
}

void CudaDevice::synchronize(StreamId stream) {
  wait_until([&] { return ready("cudaStreamQuery", cudaStreamQuery(streams_[stream])); },
             "the work on a stream");
}

void CudaDevice::synchronize() {
  for (size_t s = 0; s < streams_.size(); ++s) synchronize(static_cast<StreamId>(s));
  look();
}

void CudaDevice::barrier() {
  synchronize();
  harvest(UINT32_MAX, false);
  meeting_.barrier();
}

// Takes the times of launches that have ended, in their order, up to the first that has not, or all of
// those behind it too. Done now and then, so that a fault of the device does not take them along.
uint32_t CudaDevice::harvest(uint32_t most, bool past_gaps) {
  const auto since = [](cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    call("cudaEventElapsedTime", cudaEventElapsedTime(&ms, from, to));
    return Time::from_us(static_cast<double>(ms) * 1e3);
  };
  uint32_t taken = 0;
  for (; harvested_ < issued_ && taken < most; ++harvested_) {
    const Timed& t = timed_[harvested_];
    if (!ready("cudaEventQuery", cudaEventQuery(t.end))) {
      if (past_gaps) continue;
      break;
    }
    const Time begin = anchor_at_ + since(anchor_, t.begin);
    times_[harvested_] = {begin, begin + since(t.begin, t.end), true};
    ++taken;
    if (harvested_ % kAnchorEvery == 0) {
      anchor_ = t.begin;
      anchor_at_ = begin;
    }
  }
  return taken;
}

std::vector<LaunchTimes> CudaDevice::times() {
  try {
    harvest(UINT32_MAX, false);
  } catch (const Stopped&) {  // of a device that is broken: the times until then
  }
  return times_;
}

std::vector<std::pair<uint32_t, int64_t>> CudaDevice::differences() {
  std::vector<std::pair<uint32_t, int64_t>> out;
  if (issued_ == 0) return out;
  std::vector<unsigned long long> counts(issued_);
  if (cudaMemcpy(counts.data(), counts_, issued_ * sizeof counts[0], cudaMemcpyDeviceToHost) !=
      cudaSuccess)
    return out;
  for (uint32_t s = 0; s < issued_; ++s)
    if (counts[s] != 0) out.emplace_back(s, static_cast<int64_t>(counts[s]));
  return out;
}

void CudaDevice::abort(const std::string& why) {
  // Before NCCL is told to give up, because an aborted collective ends as well.
  try {
    harvest(UINT32_MAX, true);
  } catch (const Stopped&) {  // of a device that is broken
  }
  issued_ = harvested_;
  meeting_.fail(why);
  if (collectives_) collectives_->abort();
}

void require_gpu() { count_gpus(); }

std::unique_ptr<Device> cuda_device(Meeting& meeting, const CudaOptions& options) {
  return std::make_unique<CudaDevice>(meeting, options);
}

}  // namespace shardsim
