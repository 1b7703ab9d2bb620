// One rank's GPU. All waits of the host are loops that ask (cudaEventQuery, cudaStreamQuery), so that
// each ends at a time-out, at Ctrl-C, at an error of NCCL's or when another rank has failed.
//
// Launches are timed by two events each; the schedule's own events carry no time, as PyTorch's do
// not. Times of far-off events lose digits (a float of milliseconds: 1 us after 10 s), so a launch is
// timed from an anchor, the start of one of the 256 launches before it, and anchors from each other.
// Worked number: an anchor at 8,000.000 ms and a start .125 ms behind it: 8,000,125,000,000 ps.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "backends/cuda/collectives.h"
#include "backends/cuda/products.h"
#include "backends/cuda/replay.h"
#include "backends/cuda/scope.h"

namespace shardsim {

class CudaDevice final : public Device {
 public:
  CudaDevice(Meeting& meeting, const CudaOptions& options);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  int rank() const override { return meeting_.rank(); }
  int world() const override;
  Environment environment() const override;
  Bytes total_memory() const override { return most_; }
  void* reserve(Bytes bytes) override;
  void release(void* memory) override;
  void pin(Bytes bytes) override;
  void prepare(const DevicePlan& plan) override;
  void launch(StreamId stream, const Work& work, uint32_t slot) override;
  void collective(StreamId stream, const Work& work, Regions regions, uint32_t slot) override;
  void record(uint32_t event, StreamId stream) override;
  void wait(StreamId stream, uint32_t event) override;
  void fill(StreamId stream, void* at, const Pattern& pattern) override;
  void check(StreamId stream, const void* at, const Pattern& pattern, uint32_t slot) override;
  uint32_t make_event() override;
  bool passed(uint32_t event) override;
  void host_wait(uint32_t event) override;
  void synchronize(StreamId stream) override;
  void synchronize() override;
  void barrier() override;
  Time now() const override;
  std::vector<LaunchTimes> times() override;
  std::vector<std::pair<uint32_t, int64_t>> differences() override;
  void abort(const std::string& why) override;

 private:
  using Clock = std::chrono::steady_clock;
  // Of one launch; its events are recorded around it.
  struct Timed {
    cudaEvent_t begin = nullptr, end = nullptr;
  };

  void* scratch_memory(Bytes bytes);
  std::pair<void*, void*> scratch_halves(Bytes bytes);
  void* workspace(StreamId stream);
  void product(StreamId stream, const Work& work);
  void copy(const Work& work, cudaStream_t stream);
  void begin(StreamId stream, uint32_t slot);
  void end(StreamId stream, uint32_t slot);
  uint32_t harvest(uint32_t most, bool past_gaps);
  void look();
  template <class F>
  void wait_until(F&& done, const char* what);

  Meeting& meeting_;
  const CudaOptions options_;
  int sms_ = 0;
  Bytes most_ = 0, reserved_ = 0;  // of what is reserved
  std::vector<std::pair<void*, Bytes>> segments_;
  std::vector<void*> pinned_;

  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
  std::vector<Timed> timed_;  // by slot
  std::vector<LaunchTimes> times_;
  uint32_t harvested_ = 0, issued_ = 0;  // slots below it are in times_; are launched
  cudaEvent_t origin_ = nullptr, anchor_ = nullptr;
  Time anchor_at_;
  Clock::time_point host_origin_;

  char* scratch_ = nullptr;
  Bytes scratch_bytes_ = 0, cursor_ = 0;
  void* staging_ = nullptr;               // pinned
  std::vector<void*> workspaces_;         // by stream
  unsigned long long* counts_ = nullptr;  // by slot: elements that differ
  Products products_;
  Scopes scopes_;
  std::unique_ptr<Collectives> collectives_;
};

}  // namespace shardsim
