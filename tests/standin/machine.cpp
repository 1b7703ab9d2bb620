#include "tests/standin/machine.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace standin {

namespace {

int64_t variable(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : otherwise;
}

Setup from_environment() {
  Setup s;
  s.devices = static_cast<int>(variable("STANDIN_DEVICES", s.devices));
  s.memory = variable("STANDIN_MEMORY", s.memory);
  s.alone = variable("STANDIN_ALONE", 0) != 0;
  if (const char* const text = std::getenv("STANDIN_FAULT")) {
    std::istringstream in(text);
    Fault f;
    char colon = 0;
    std::getline(in, f.call, ':');
    in >> f.nth >> colon >> f.code >> colon >> f.device;
    s.faults.push_back(f);
  }
  return s;
}

}  // namespace

Machine::Machine() { set_up(from_environment()); }

Machine& Machine::get() {
  static Machine machine;
  return machine;
}

int& Machine::current() {
  thread_local int device = 0;
  return device;
}

int& Machine::last_error() {
  thread_local int code = 0;
  return code;
}

void Machine::set_up(const Setup& s) {
  for (Device& d : devices)
    for (auto& [at, bytes] : d.memory) std::free(at);
  setup = s;
  last_error() = 0;
  devices.assign(static_cast<size_t>(std::max(s.devices, 1)), {});
}

const Fault* Machine::fault(const char* name, int nth) const {
  for (const Fault& f : setup.faults)
    if (f.call == name && f.nth == nth && f.device == current()) return &f;
  return nullptr;
}

int Machine::begin(const char* call, int64_t takes_ns) {
  Device& d = device();
  d.now += takes_ns;
  const int nth = d.calls[call]++;
  const Fault* const f = fault(call, nth);
  if (f != nullptr) last_error() = f->code;
  return f != nullptr ? f->code : 0;
}

Record& Machine::record(const std::string& call, const Stream* stream) {
  Record r;
  r.device = current();
  r.call = call;
  r.stream = stream != nullptr ? stream->id : -1;
  r.issued_ns = device().now;
  return device().records.emplace_back(r);
}

bool Machine::holds(const void* at, int64_t bytes) {
  const auto& memory = device().memory;
  auto block = memory.upper_bound(static_cast<char*>(const_cast<void*>(at)));
  if (block == memory.begin()) return false;
  --block;
  return static_cast<const char*>(at) + bytes <= block->first + block->second;
}

void Machine::put(Stream* stream, Operation operation) {
  operation.issued = device().now;
  stream->queue.push_back(std::move(operation));
  play();
}

void Machine::play() {
  bool any = false;
  for (bool moved = true; moved;) {
    moved = false;
    for (Device& d : devices)
      for (Stream* s : d.streams)
        while (!s->queue.empty()) {
          Operation& o = s->queue.front();
          const int64_t start = std::max(s->ready, o.issued);
          if (o.kind == Operation::Kind::work) {
            if (o.effect) o.effect();
            s->ready = start + o.duration;
          } else if (o.kind == Operation::Kind::record) {
            o.event->passed[o.number] = start;
            s->ready = start;
          } else if (o.kind == Operation::Kind::wait) {
            const auto at = o.event->passed.find(o.number);
            if (o.number > 0 && at == o.event->passed.end()) break;
            s->ready = o.number > 0 ? std::max(start, at->second) : start;
          } else {
            Rendezvous& r = *o.rendezvous;
            if (!o.arrived) {
              o.arrived = true;
              r.start = std::max(r.start, start);
              if (++r.arrived == r.expected && !r.hangs && r.end < 0) {
                if (r.effect) r.effect();
                r.end = *r.communicator = std::max(r.start, *r.communicator) + r.duration;
                moved = true;
              }
            }
            if (r.end < 0 && !*o.abandoned) break;
            s->ready = std::max(start, r.end);
          }
          s->queue.pop_front();
          moved = any = true;
        }
  }
  if (any) changed.notify_all();
}

void set_up(const Setup& setup) {
  Machine& m = Machine::get();
  const std::lock_guard lock(m.mutex);
  m.set_up(setup);
}

std::vector<Record> records(int device) {
  Machine& m = Machine::get();
  const std::lock_guard lock(m.mutex);
  return m.devices[static_cast<size_t>(device)].records;
}

int64_t live_bytes(int device) {
  Machine& m = Machine::get();
  const std::lock_guard lock(m.mutex);
  return m.devices[static_cast<size_t>(device)].used;
}

int live_objects(int device) {
  Machine& m = Machine::get();
  const std::lock_guard lock(m.mutex);
  return m.devices[static_cast<size_t>(device)].objects;
}

}  // namespace standin
