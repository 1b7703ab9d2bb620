// What a replay asks of a device: streams, events, memory, works, and what time they took. One object
// is one rank's device; backends/host has one made of threads, backends/cuda one of CUDA and NCCL.
// The player (player.h) plays a schedule on it with PyTorch's own calls, in the host's order.
//
// All calls that put work on a stream return at once. Calls that wait end when what they wait for has
// passed, and otherwise throw Stopped: another rank has failed, the user has interrupted, a time-out
// (Limits), or the device reports a fault of its own.
//
// Worked example, one kernel that an event orders before a collective:
//   launch(0, gemm, slot 0); record(e, 0); wait(2, e); collective(2, all_gather, slot 1);
//   synchronize(); times() -> slot 0: 0..120 us, slot 1: 120..300 us
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backends/replay/pattern.h"
#include "sim/base/error.h"
#include "sim/base/units.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

// A run that cannot go on. What has been measured so far is kept.
class Stopped : public std::runtime_error {
 public:
  enum class Why : uint8_t {
    fault,       // of this rank's own
    other_rank,  // another rank has failed and said so
    timeout,
    interrupted,  // Ctrl-C
    out_of_memory,
  };
  Stopped(Why why, const std::string& what) : std::runtime_error(what), why_(why) {}
  Why why() const { return why_; }

 private:
  Why why_;
};

// There is nothing to replay on: no GPU here, or a build without its backend.
class NoDevice : public Error {
 public:
  using Error::Error;
};

struct Limits {
  double timeout_s = 60;  // longest wait in which nothing happens
  std::function<bool()> interrupted = [] { return false; };
};

// What a device makes before the run.
struct DevicePlan {
  struct Stream {
    std::string name;
    bool high_priority = false;
  };
  std::vector<Stream> streams;  // by StreamId
  uint32_t events = 0;          // ids from 0; more with make_event
  uint32_t slots = 0;           // launches that are timed
  std::vector<Comm> comms;      // by CommId, all made before the run, in this order on every rank
  Bytes largest_kernel = 0;     // bytes of a kernel or copy: scratch memory that they work on
};

// Where a collective reads and writes. For an all-gather `in` is the rank's part, for a
// reduce-scatter `out`; one region for both is in place.
struct Regions {
  const void* in = nullptr;
  void* out = nullptr;
};

struct LaunchTimes {
  Time start, end;
  bool done = false;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

class Device {
 public:
  virtual ~Device() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  // "NVIDIA H100 80GB HBM3", driver, versions, NCCL_* variables: what a log says it was measured on.
  virtual Environment environment() const = 0;
  virtual Bytes total_memory() const = 0;

  // Memory of the device, as cudaMalloc gives it; nullptr where there is none left.
  virtual void* reserve(Bytes bytes) = 0;
  virtual void release(void* memory) = 0;
  // A block of pinned host memory, kept to the end of the run.
  virtual void pin(Bytes bytes) = 0;

  virtual void prepare(const DevicePlan& plan) = 0;

  // Calls on a stream. `slot` is where times() has the launch.
  virtual void launch(StreamId stream, const Work& work, uint32_t slot) = 0;
  virtual void collective(StreamId stream, const Work& work, Regions regions, uint32_t slot) = 0;
  virtual void record(uint32_t event, StreamId stream) = 0;
  virtual void wait(StreamId stream, uint32_t event) = 0;  // for its latest record
  // Data that is checked (pattern.h): written, and compared, on the stream. Differences are counted.
  virtual void fill(StreamId stream, void* at, const Pattern& pattern) = 0;
  virtual void check(StreamId stream, const void* at, const Pattern& pattern, uint32_t slot) = 0;

  virtual uint32_t make_event() = 0;
  virtual bool passed(uint32_t event) = 0;
  virtual void host_wait(uint32_t event) = 0;
  virtual void synchronize(StreamId stream) = 0;
  virtual void synchronize() = 0;

  // All ranks are here; a synchronization between timed steps and before the first.
  virtual void barrier() = 0;

  // The host's now on the clock of times(), which begins with prepare().
  virtual Time now() const = 0;
  // After the run, or what there is of it: by slot.
  virtual std::vector<LaunchTimes> times() = 0;
  // Checks that found other data, as (slot, elements that differ).
  virtual std::vector<std::pair<uint32_t, int64_t>> differences() = 0;
  // Ends what is under way, so that the device can be destroyed: collectives are aborted.
  virtual void abort(const std::string& why) = 0;
};

}  // namespace shardsim
