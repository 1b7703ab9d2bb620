// A device made of threads: each stream is one, which plays its calls in order; an event is a count of
// its records. Times are the machine's steady clock, from when the device was prepared.
// Worked example: record(e, 0); wait(2, e): stream 2's thread sleeps until stream 0's has come to the
// record.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backends/host/group.h"
#include "backends/replay/device.h"

namespace shardsim {

class HostDevice : public Device {
 public:
  // `group` outlives it. `memory`: bytes that reserve() gives out in all.
  HostDevice(RankGroup& group, Bytes memory, Limits limits);
  ~HostDevice() override;

  int rank() const override { return group_.rank(); }
  int world() const override { return group_.world(); }
  Environment environment() const override;
  Bytes total_memory() const override { return memory_; }
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
  Time now() const override { return since_prepared(std::chrono::steady_clock::now()); }
  std::vector<LaunchTimes> times() override;
  std::vector<std::pair<uint32_t, int64_t>> differences() override;
  void abort(const std::string& why) override;

 private:
  struct Call {
    enum class What : uint8_t { launch, collective, record, wait, fill, check };
    What what = What::launch;
    uint32_t slot = 0;    // launch, collective, check; the event of record and wait
    uint64_t number = 0;  // of the record; of the collective on its communicator
    const Work* work = nullptr;
    Regions regions;
    Pattern pattern;
  };
  struct Stream {
    std::string name;
    std::deque<Call> calls;  // the first one is being played
    std::condition_variable more;
    std::thread thread;
  };
  struct Event {
    uint64_t recorded = 0, passed = 0;
  };

  void put(StreamId stream, const Call& call);
  void serve(Stream& stream);
  void play(const Call& call, class HostKernels& kernels);
  template <class F>
  void wait_until(F&& done, const char* what);
  std::string failure_of_run();
  void finish();
  Time since_prepared(std::chrono::steady_clock::time_point t) const;

  RankGroup& group_;
  const Bytes memory_;
  const Limits limits_;
  Bytes reserved_ = 0;
  std::vector<std::pair<void*, Bytes>> segments_;
  std::vector<std::unique_ptr<char[]>> pinned_;
  std::vector<uint32_t> issued_;  // collectives, by communicator
  Bytes largest_kernel_ = 0;
  std::chrono::steady_clock::time_point origin_;

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Event> events_;
  std::vector<LaunchTimes> times_;
  std::vector<std::pair<uint32_t, int64_t>> differences_;
  uint64_t played_ = 0;  // calls of all streams
  std::string failure_;  // why no more calls are played; empty: they are
  bool ending_ = false;
};

}  // namespace shardsim
