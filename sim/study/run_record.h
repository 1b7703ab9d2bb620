// One run as calls between marks, whether real PyTorch made it (a recording's JSON file) or the
// simulator did. What `conform` compares.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/units.h"

namespace shardsim {

enum class CallKind : uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  reduce,
  gemm,
  kernel,  // anchors among them are marked
  copy,    // copies and memsets
  record,
  wait,
  event_sync,
  stream_sync,
  device_sync,
  other,
};

constexpr bool is_collective(CallKind k) { return k <= CallKind::reduce; }

struct Call {
  CallKind kind = CallKind::other;
  bool anchor = false;
  int stream = -1;
  int64_t bytes = 0;
  int64_t ranks = 0;  // of the communicator
  int64_t event = -1;
  int shape_kind = 0;  // anchors that are kernels: copy_out 1, chunk_cat 2, cat 3
  std::array<int64_t, 4> gemm{};
  Time start, end;
  bool timed = false;
};

struct Section {
  std::string until;
  std::vector<Call> calls;
};

struct MemoryMark {
  std::string phase;
  Bytes allocated = 0, allocated_peak = 0;
  std::optional<Bytes> active_peak, reserved_peak;
  bool oom = false;
};

using LocalShapes = std::set<std::pair<std::string, std::vector<int64_t>>>;

struct RunRecord {
  LocalShapes shapes;
  bool some_shapes = false;  // the recorder keeps some of them only
  std::vector<Section> sections;
  std::vector<MemoryMark> memory;
};

}  // namespace shardsim
