// A recorded history of the caching allocator, from whatever file holds one:
//   a recording of a training program (its rows [action, segment, offset, bytes, stream]);
//   a PyTorch memory snapshot, as pickle or JSON (device_traces: action, addr, size, stream, frames).
// Rows stay in host order. What belongs together is found out here: which free ends which alloc, and
// when the block of a freed buffer was free again, which is input to a replay.
//
// Where rows do not say enough: in a recording all buffers of segment -1, which was there before the
// history began, are at offset 0; a free there ends the latest alloc of that many bytes. Buffers of a
// snapshot that were there before its history are taken as allocated first, in the order of their
// addresses. Rows that make no sense (a free of nothing, a size that is no whole number from 0 to
// 1 PiB) are counted by kind and left out.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/memory/caching_allocator.h"

namespace shardsim {

enum class TraceAction : uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  oom,
};

struct TraceRow {
  TraceAction action = TraceAction::alloc;
  StreamId stream = 0;
  uint32_t buffer = UINT32_MAX;  // of alloc and free
  int32_t segment = -1;          // recordings: where; -1: the segment before the history
  Bytes offset = 0;
  Bytes bytes = 0;  // of a buffer: as asked for
};

struct TraceBuffer {
  Bytes bytes = 0;
  StreamId stream = 0;
  static constexpr uint32_t kNever = UINT32_MAX;
  uint32_t allocated = kNever;  // row
  uint32_t freed = kNever;
  uint32_t completed = kNever;  // row; the row after `freed` unless streams were recorded
  std::string origin;           // "forward model.py:120" where the trace knows
};

struct MemoryTrace {
  std::string file;
  std::string kind;  // "recording", "snapshot"
  std::vector<TraceRow> rows;
  std::vector<TraceBuffer> buffers;
  uint32_t before = 0;  // buffers [0, before) were there when the history began

  bool placed = false;         // rows say in which segment and where
  bool preloaded = false;      // a segment of 2 MiB of the small pool was there first
  AllocatorSettings settings;  // of the process, where the file says
  std::string settings_text;
  std::optional<DeviceMemory> device;
  std::optional<Bytes> reserved_peak;       // the largest that was recorded
  std::vector<std::string> streams;         // names, by stream
  std::map<std::string, int64_t> left_out;  // reason to number of rows
};

// Throws Error where the file holds no history.
MemoryTrace read_memory_trace(const std::string& path, int device = 0);
MemoryTrace recorded_memory_trace(const nlohmann::json& recording, const std::string& file);
MemoryTrace snapshot_memory_trace(const class ValueTree& snapshot, const std::string& file,
                                  int device = 0);

}  // namespace shardsim
