// libcudart: the functions that the backend calls, and those that nvcc's launches become (CUDA 12:
// cudaLaunchKernel, CUDA 13: __cudaGetKernel and __cudaLaunchKernel).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "backends/replay/pattern.h"
#include "tests/standin/machine.h"

using standin::Device;
using standin::Machine;
using standin::Operation;
using Lock = std::unique_lock<std::mutex>;

namespace {

cudaError_t fails(int code) {
  Machine::last_error() = code;
  return static_cast<cudaError_t>(code);
}

standin::Stream* stream_of(cudaStream_t s) { return reinterpret_cast<standin::Stream*>(s); }
std::shared_ptr<standin::Event>& event_of(cudaEvent_t e) {
  return *reinterpret_cast<std::shared_ptr<standin::Event>*>(e);
}

// Something another rank's thread has to bring about is waited for a moment in real time, so that a
// waiting loop does not spend virtual time on it.
template <class F>
bool soon(Lock& lock, F&& done) {
  Machine& m = Machine::get();
  if (done()) return true;
  return m.changed.wait_for(lock, std::chrono::milliseconds(1), done);
}

cudaError_t not_ready() { return fails(cudaErrorNotReady); }

std::map<const void*, std::string>& kernels() {
  static std::map<const void*, std::string> names;
  return names;
}

// Kernel names are mangled: "..13stream_kernelE..".
bool is(const std::string& name, const char* kernel) {
  return name.find(kernel) != std::string::npos;
}
template <class T>
T argument(void** args, int i) {
  return *static_cast<T*>(args[i]);
}

int64_t duration_of(const std::string& name, void** args) {
  if (is(name, "wait_kernel")) return argument<int64_t>(args, 0);
  int64_t ns = 2000;
  if (is(name, "stream_kernel") || is(name, "attention_kernel"))
    ns += argument<int64_t>(args, 2) * 32 / 2000;
  if (is(name, "attention_kernel")) ns += argument<int64_t>(args, 3) * 100;
  return ns;
}

std::function<void()> effect_of(const std::string& name, void** args) {
  using shardsim::Pattern;
  if (is(name, "fill_kernel"))
    return [at = argument<void*>(args, 0), p = argument<Pattern>(args, 1)] {
      shardsim::fill_pattern(at, p);
    };
  if (is(name, "check_kernel"))
    return [at = argument<const void*>(args, 0), p = argument<Pattern>(args, 1),
            count = argument<unsigned long long*>(args, 2)] {
      *count += static_cast<unsigned long long>(shardsim::count_differences(at, p));
    };
  return {};
}

std::string short_name(const std::string& mangled) {
  for (const char* k : {"stream_kernel", "attention_kernel", "wait_kernel", "fill_kernel",
                        "check_kernel", "scratch_kernel"})
    if (is(mangled, k)) return k;
  return mangled;
}

cudaError_t launch(const void* function, void** args, cudaStream_t stream) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("cudaLaunchKernel")) return fails(code);
  const std::string& name = kernels()[function];
  standin::Record& r = m.record(short_name(name), stream_of(stream));
  if (is(name, "stream_kernel") || is(name, "attention_kernel"))
    r.bytes = argument<int64_t>(args, 2) * 32;
  if (is(name, "attention_kernel")) r.extra = argument<int64_t>(args, 3);
  if (is(name, "wait_kernel")) r.extra = argument<int64_t>(args, 0);
  if (is(name, "fill_kernel") || is(name, "check_kernel")) {
    r.out = argument<const void*>(args, 0);
    r.bytes = argument<shardsim::Pattern>(args, 1).bytes();
    if (!m.holds(r.out, r.bytes)) return fails(cudaErrorIllegalAddress);
  }
  Operation o;
  o.duration = duration_of(name, args);
  o.effect = effect_of(name, args);
  m.put(stream_of(stream), std::move(o));
  return cudaSuccess;
}

struct Configuration {
  dim3 grid{}, block{};
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};
Configuration& configuration() {
  thread_local Configuration c;
  return c;
}

cudaError_t moves(const char* call, void* to, const void* from, size_t bytes, bool on_to,
                  bool on_from, cudaStream_t stream) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin(call)) return fails(code);
  const auto n = static_cast<int64_t>(bytes);
  if ((on_to && !m.holds(to, n)) || (on_from && !m.holds(from, n)))
    return fails(cudaErrorInvalidValue);
  standin::Record& r = m.record(call, stream_of(stream));
  r.bytes = n;
  r.in = from;
  r.out = to;
  r.extra = on_to ? (on_from ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                  : cudaMemcpyDeviceToHost;
  Operation o;
  o.duration = 1000 + n / 50;
  m.put(stream_of(stream), std::move(o));
  return cudaSuccess;
}

}  // namespace

extern "C" {

// Launches.
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* device_name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  kernels()[host] = device_name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configuration() = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = configuration().grid;
  *block = configuration().block;
  *shared = configuration().shared;
  *static_cast<cudaStream_t*>(stream) = configuration().stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entry) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(entry));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** args, size_t,
                               cudaStream_t stream) {
  return launch(kernel, args, stream);
}
cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void** args, size_t,
                             cudaStream_t stream) {
  return launch(function, args, stream);
}

// Devices.
cudaError_t cudaGetDeviceCount(int* count) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  *count = m.setup.devices;
  return m.setup.devices > 0 ? cudaSuccess : fails(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (device >= static_cast<int>(m.devices.size())) return fails(cudaErrorInvalidDevice);
  Machine::current() = device;
  return static_cast<cudaError_t>(m.begin("cudaSetDevice"));
}
cudaError_t cudaGetDevice(int* device) {
  *device = Machine::current();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::strcpy(p->name, "stand-in GPU");
  p->major = 9;
  p->multiProcessorCount = 132;
  p->totalGlobalMem = static_cast<size_t>(Machine::get().setup.memory);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 132;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  *total = static_cast<size_t>(m.setup.memory);
  *free = static_cast<size_t>(m.setup.memory - m.device().used);
  return cudaSuccess;
}
cudaError_t cudaGetLastError(void) {
  return static_cast<cudaError_t>(std::exchange(Machine::last_error(), 0));
}
const char* cudaGetErrorName(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
         : code == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress"
                                           : "cudaErrorOther";
}
const char* cudaGetErrorString(cudaError_t code) {
  return code == cudaErrorMemoryAllocation ? "out of memory"
         : code == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
                                           : "an injected fault";
}

// Memory.
cudaError_t cudaMalloc(void** at, size_t bytes) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("cudaMalloc")) return fails(code);
  Device& d = m.device();
  const auto n = static_cast<int64_t>(bytes);
  if (d.used + n > m.setup.memory) return fails(cudaErrorMemoryAllocation);
  auto* const block = static_cast<char*>(std::calloc(std::max<size_t>(bytes, 1), 1));
  if (block == nullptr) return fails(cudaErrorMemoryAllocation);
  d.memory[block] = n;
  d.used += n;
  *at = block;
  standin::Record& r = m.record("cudaMalloc", nullptr);
  r.bytes = n;
  r.out = block;
  return cudaSuccess;
}
cudaError_t cudaFree(void* at) {
  if (at == nullptr) return cudaSuccess;
  Machine& m = Machine::get();
  Lock lock(m.mutex);
  if (const int code = m.begin("cudaFree")) return fails(code);
  Device& d = m.device();
  const auto block = d.memory.find(static_cast<char*>(at));
  if (block == d.memory.end()) return fails(cudaErrorInvalidValue);
  // The real one waits for the device; ten seconds tell a hang.
  m.changed.wait_for(lock, std::chrono::seconds(10), [&] {
    return std::all_of(d.streams.begin(), d.streams.end(),
                       [](const standin::Stream* s) { return s->queue.empty(); });
  });
  for (const standin::Stream* s : d.streams) {
    if (!s->queue.empty()) return fails(cudaErrorLaunchTimeout);
    d.now = std::max(d.now, s->ready);
  }
  standin::Record& r = m.record("cudaFree", nullptr);
  r.bytes = block->second;
  r.out = at;
  d.used -= block->second;
  d.memory.erase(block);
  std::free(at);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** at, size_t bytes) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("cudaMallocHost")) return fails(code);
  *at = std::calloc(std::max<size_t>(bytes, 1), 1);
  ++m.device().objects;
  m.record("cudaMallocHost", nullptr).bytes = static_cast<int64_t>(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* at) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  --m.device().objects;
  std::free(at);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("cudaMemcpy")) return fails(code);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return moves("cudaMemcpyAsync", to, from, bytes, kind != cudaMemcpyDeviceToHost,
               kind != cudaMemcpyHostToDevice, stream);
}
cudaError_t cudaMemsetAsync(void* at, int, size_t bytes, cudaStream_t stream) {
  return moves("cudaMemsetAsync", at, nullptr, bytes, true, false, stream);
}

// Streams and events.
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("cudaStreamCreateWithPriority")) return fails(code);
  auto* const s = new standin::Stream;
  s->device = Machine::current();
  s->id = m.device().streams_made++;
  m.device().streams.push_back(s);
  ++m.device().objects;
  m.record("cudaStreamCreateWithPriority", s).extra = priority;
  *stream = reinterpret_cast<cudaStream_t>(s);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  standin::Stream* const s = stream_of(stream);
  std::erase(m.device().streams, s);
  --m.device().objects;
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Machine& m = Machine::get();
  Lock lock(m.mutex);
  if (const int code = m.begin("cudaStreamQuery")) return fails(code);
  const standin::Stream& s = *stream_of(stream);
  if (!soon(lock, [&] { return s.queue.empty(); })) return not_ready();
  if (m.ended(s)) return cudaSuccess;
  m.device().now += 5000;
  return not_ready();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("cudaStreamWaitEvent")) return fails(code);
  m.record("cudaStreamWaitEvent", stream_of(stream)).event = event_of(event)->id;
  Operation o;
  o.kind = Operation::Kind::wait;
  o.event = event_of(event);
  o.number = o.event->issued;
  m.put(stream_of(stream), std::move(o));
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("cudaEventCreate")) return fails(code);
  auto* const e = new std::shared_ptr<standin::Event>(std::make_shared<standin::Event>());
  (*e)->id = m.device().events_made++;
  (*e)->timed = (flags & cudaEventDisableTiming) == 0;
  ++m.device().objects;
  *event = reinterpret_cast<cudaEvent_t>(e);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  --m.device().objects;
  delete &event_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("cudaEventRecord")) return fails(code);
  standin::Record& r = m.record("cudaEventRecord", stream_of(stream));
  r.event = event_of(event)->id;
  r.extra = event_of(event)->timed ? 1 : 0;
  Operation o;
  o.kind = Operation::Kind::record;
  o.event = event_of(event);
  o.number = ++o.event->issued;
  m.put(stream_of(stream), std::move(o));
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Machine& m = Machine::get();
  Lock lock(m.mutex);
  const std::shared_ptr<standin::Event> e = event_of(event);
  // How often times are looked for depends on how fast the test runs.
  if (const int code = m.begin("cudaEventQuery", e->timed ? 0 : 1000)) return fails(code);
  if (e->issued == 0) return cudaSuccess;
  if (!soon(lock, [&] { return e->passed.count(e->issued) != 0; })) return not_ready();
  if (e->passed[e->issued] <= m.device().now) return cudaSuccess;
  if (!e->timed) m.device().now += 5000;
  return not_ready();
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  Machine& m = Machine::get();
  const Lock lock(m.mutex);
  if (const int code = m.begin("cudaEventElapsedTime", 0)) return fails(code);
  const standin::Event &a = *event_of(from), &b = *event_of(to);
  if (!a.timed || !b.timed || a.passed.empty() || b.passed.empty())
    return fails(cudaErrorInvalidResourceHandle);
  *ms = static_cast<float>(
      static_cast<double>(b.passed.rbegin()->second - a.passed.rbegin()->second) * 1e-6);
  return cudaSuccess;
}

}  // extern "C"
