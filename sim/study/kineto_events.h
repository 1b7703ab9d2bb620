// The events of a trace of PyTorch's profiler (Kineto) that an op log needs, read one by one: a trace
// has millions of others, and is never a tree in memory.
//
// Times are whole nanoseconds, taken from the characters: 1711000000000000.123 microseconds are past a
// double's 53 bits. Older traces write whole microseconds; categories are written "kernel" or "Kernel",
// "gpu_memcpy" or "Memcpy", "cuda_runtime" or "Runtime" by their age.
// Worked example: "ts": 4458677009853.422 is 4,458,677,009,853,422 ns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace shardsim {

struct DeviceEvent {
  enum class Category : uint8_t { kernel, memcpy, memset } category = Category::kernel;
  uint32_t name = 0;        // of KinetoTrace::names
  uint32_t collective = 0;  // "Collective name"; 0: the empty one
  uint32_t dtype = 0;
  int64_t device = 0, stream = 0;
  int64_t correlation = -1;  // -1: not given
  int64_t start_ns = 0, duration_ns = 0;
  int64_t bytes = -1, in_elements = -1, out_elements = -1, group_size = -1;
};

// A range that the host marked: ProfilerStep#3, FSDP::all_gather (layers.3), nccl:all_reduce.
struct HostScope {
  uint32_t name = 0;
  int64_t thread = 0;
  int64_t start_ns = 0, end_ns = 0;
};

struct HostLaunch {
  int64_t thread = -1;  // -1: known by its arrow alone
  int64_t at_ns = 0;
};

struct KinetoTrace {
  std::vector<std::string> names{""};
  std::vector<DeviceEvent> device;
  std::vector<HostScope> scopes, steps;              // steps: ProfilerStep#
  std::unordered_map<int64_t, HostLaunch> launches;  // by correlation
  std::optional<int64_t> rank, world;
  std::string nccl_version;
  std::unordered_map<int64_t, std::string> gpus;  // by device
  int64_t peak_allocated = 0, peak_reserved = 0;  // of [memory] events; 0: there are none
  int64_t malformed = 0;  // events of a kind that counts without a time or place that can be read
  int64_t waits = 0;      // events of synchronization
};

// Throws Error at what is no JSON, with its line and column; a text that is cut off says so.
KinetoTrace read_kineto_events(std::string_view text, const std::string& file);

// Nanoseconds of microseconds as written: "12.5" is 12,500. nullopt: no such number, or past 2^62 ns.
std::optional<int64_t> nanoseconds(std::string_view microseconds);

}  // namespace shardsim
