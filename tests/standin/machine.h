// The virtual machine behind the stand-ins: one lock, streams as queues of operations, a rendezvous
// for each collective. Time is in nanoseconds.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/standin/standin.h"

namespace standin {

struct Event {
  int id = 0;
  bool timed = false;
  uint64_t issued = 0;
  std::map<uint64_t, int64_t> passed;  // when, by record
};

// One collective, for all its ranks.
struct Rendezvous {
  int expected = 1, arrived = 0;
  int64_t start = 0, end = -1;  // end < 0: it has not ended
  int64_t duration = 0;
  bool hangs = false;
  std::shared_ptr<int64_t> communicator;  // until when it is taken by the collectives before
  std::function<void()> effect;
};

struct Operation {
  enum class Kind { work, record, wait, collective } kind = Kind::work;
  int64_t issued = 0, duration = 0;
  std::function<void()> effect;
  std::shared_ptr<Event> event;
  uint64_t number = 0;  // of the event's record
  std::shared_ptr<Rendezvous> rendezvous;
  bool arrived = false;
  std::shared_ptr<bool> abandoned;  // the rank has aborted its communicator
};

struct Stream {
  int id = 0, device = 0;
  int64_t ready = 0;
  std::deque<Operation> queue;
};

struct Device {
  int64_t now = 0;
  int streams_made = 0, events_made = 0, comms_made = 0, collectives = 0;
  int objects = 0;
  std::vector<Stream*> streams;
  std::map<char*, int64_t> memory;
  int64_t used = 0;
  std::map<std::string, int> calls;
  std::vector<Record> records;
};

class Machine {
 public:
  static Machine& get();
  // The calling thread's device.
  static int& current();
  static int& last_error();

  std::mutex mutex;
  std::condition_variable changed;
  Setup setup;
  std::vector<Device> devices;

  Device& device() { return devices[static_cast<size_t>(current())]; }
  void set_up(const Setup& s);
  // A call begins: takes time; the code of an injected fault, or 0.
  int begin(const char* call, int64_t takes_ns = 1000);
  const Fault* fault(const char* name, int nth) const;
  void put(Stream* stream, Operation operation);
  // Plays what can be played, on all devices.
  void play();
  bool ended(const Stream& s) const {
    return s.queue.empty() && s.ready <= devices[static_cast<size_t>(s.device)].now;
  }
  Record& record(const std::string& call, const Stream* stream);
  // Whether [at, at + bytes) lies in one block that cudaMalloc gave on the current device.
  bool holds(const void* at, int64_t bytes);

 private:
  Machine();
};

}  // namespace standin
