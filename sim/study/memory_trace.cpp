#include "sim/study/memory_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <unordered_map>

#include "sim/base/error.h"
#include "sim/base/input_file.h"
#include "sim/study/pickle.h"
#include "sim/study/recording.h"

namespace shardsim {

namespace {

using nlohmann::json;

constexpr Bytes kContext = 500 * kMiB;
constexpr const char* kNoSize = "a size that is no whole number from 0 to 1 PiB";
constexpr Bytes kLargest = 1024 * 1024 * kGiB;
constexpr int64_t kLargestTrace = int64_t{4} << 30;  // bytes of the file
constexpr Bytes kEndless = int64_t{1} << 61;         // sums stop here

std::optional<TraceAction> action_of(std::string_view name) {
  static const std::map<std::string_view, TraceAction> actions = {
      {"alloc", TraceAction::alloc},
      {"free_requested", TraceAction::free_requested},
      {"free_completed", TraceAction::free_completed},
      {"segment_alloc", TraceAction::segment_alloc},
      {"segment_free", TraceAction::segment_free},
      {"segment_map", TraceAction::segment_map},
      {"segment_unmap", TraceAction::segment_unmap},
      {"oom", TraceAction::oom}};
  const auto it = actions.find(name);
  if (it == actions.end()) return std::nullopt;
  return it->second;
}

bool is_size(const json& v) { return v.is_number_integer() && v >= 0 && v <= kLargest; }

// Of a snapshot; -1 where there is none.
Bytes size_of(const ValueTree& tree, ValueTree::Id v) {
  if (tree.kind(v) != ValueTree::Kind::integer) return -1;
  const Bytes n = tree.integer(v);
  return n >= 0 && n <= kLargest ? n : -1;
}

// Ties frees to allocs. A key is where a buffer is; several can be live under one key only where the
// trace does not say more.
class Matcher {
 public:
  explicit Matcher(MemoryTrace& trace) : trace_(trace) {}

  // The rows are complete when the key's buffers are known; false: the row was left out.
  bool add(TraceRow row, uint64_t key) {
    if (row.bytes < 0 || row.bytes > kLargest) return left_out(kNoSize);
    const auto at = static_cast<uint32_t>(trace_.rows.size());
    Live& live = live_[key];
    switch (row.action) {
      case TraceAction::alloc:
        row.buffer = buffer(row, at);
        live.open.push_back(row.buffer);
        break;
      case TraceAction::free_requested:
        if (live.open.empty()) return left_out("free_requested of nothing that was allocated");
        row.buffer = live.open.back();
        live.open.pop_back();
        trace_.buffers[row.buffer].freed = at;
        live.closing.push_back(row.buffer);
        break;
      case TraceAction::free_completed:
        if (live.closing.empty()) return left_out("free_completed of nothing that was freed");
        row.buffer = live.closing.front();
        live.closing.pop_front();
        trace_.buffers[row.buffer].completed = at;
        break;
      default: break;
    }
    trace_.rows.push_back(row);
    return true;
  }
  bool left_out(const std::string& reason) {
    ++trace_.left_out[reason];
    return false;
  }
  uint32_t buffer(const TraceRow& row, uint32_t at) {
    TraceBuffer b;
    b.bytes = row.bytes;
    b.stream = row.stream;
    b.allocated = at;
    trace_.buffers.push_back(std::move(b));
    return static_cast<uint32_t>(trace_.buffers.size() - 1);
  }

 private:
  struct Live {
    std::vector<uint32_t> open;
    std::deque<uint32_t> closing;
  };
  MemoryTrace& trace_;
  std::unordered_map<uint64_t, Live> live_;
};

StreamId dense_stream(std::vector<std::string>& names, const std::string& name) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it != names.end()) return static_cast<StreamId>(it - names.begin());
  if (names.size() == kAllocatorStreams)
    throw Error(fmt::format("the trace has more than {} streams", kAllocatorStreams));
  names.push_back(name);
  return static_cast<StreamId>(names.size() - 1);
}

// The innermost two frames that are not the allocator's or PyTorch's own: "hidden model.py:2 <
// forward model.py:7".
std::string origin_of(const ValueTree& tree, ValueTree::Id frames) {
  std::string out;
  int found = 0;
  for (const ValueTree::Id f : tree.list(frames)) {
    const std::string_view file = tree.text(tree.get(f, "filename"));
    const bool inside = file.empty() || file == "??" || file.ends_with(".cpp") ||
                        file.ends_with(".h") || file.ends_with(".cu") ||
                        file.find("/torch/") != std::string_view::npos;
    if (inside) continue;
    const size_t slash = file.rfind('/');
    out += fmt::format("{}{} {}:{}", out.empty() ? "" : " < ", tree.text(tree.get(f, "name")),
                       slash == std::string_view::npos ? file : file.substr(slash + 1),
                       tree.integer(tree.get(f, "line")));
    if (++found == 2) break;
  }
  return out;
}

// The configuration that a snapshot names: the text the process began with, and what holds now.
AllocatorSettings snapshot_settings(const ValueTree& tree, ValueTree::Id settings,
                                    std::string& text) {
  for (const char* key : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"})
    if (!tree.text(tree.get(settings, key)).empty()) text = tree.text(tree.get(settings, key));
  AllocatorSettings out = parse_allocator_settings(text);
  const ValueTree::Id expandable = tree.get(settings, "expandable_segments");
  if (expandable != ValueTree::kAbsent) out.expandable = tree.integer(expandable) != 0;
  const ValueTree::Id max_split = tree.get(settings, "max_split_size");
  if (tree.integer(max_split) > 0) out.max_split = tree.integer(max_split);
  return out;
}

}  // namespace

MemoryTrace recorded_memory_trace(const json& recording, const std::string& file) {
  MemoryTrace t;
  t.file = file;
  t.kind = "recording";
  t.placed = true;
  try {
    const json environment = recording.value("environment", json::object());
    if (!environment.is_object()) throw Error("'environment' is an object in a recording");
    for (const char* key : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})
      if (environment.contains(key)) t.settings_text = environment[key].get<std::string>();
    t.settings = parse_allocator_settings(t.settings_text);
    DeviceMemory device;
    device.total = environment_device(environment);
    device.outside = kContext;
    t.device = device;
    const json memory = recording.value("memory", json::array());
    for (const json& m : memory)
      if (m.contains("reserved_peak"))
        t.reserved_peak =
            std::max(t.reserved_peak.value_or(0), recorded_whole(m["reserved_peak"], 0, kLargest));

    Matcher matcher(t);
    t.streams.push_back("s0");
    if (!recording.at("allocator").is_array()) throw Error("'allocator' is a list in a recording");
    for (const json& r : recording.at("allocator")) {
      const auto action = action_of(r.at(0).get<std::string>());
      if (!action) {
        ++t.left_out["action " + r.at(0).get<std::string>()];
        continue;
      }
      TraceRow row;
      row.action = *action;
      if (!is_size(r.at(2)) || !is_size(r.at(3))) {
        matcher.left_out(kNoSize);
        continue;
      }
      row.segment = static_cast<int32_t>(recorded_whole(r.at(1), -1, INT32_MAX - 1));
      row.offset = r.at(2).get<Bytes>();
      row.bytes = r.at(3).get<Bytes>();
      row.stream = dense_stream(t.streams, r.at(4).get<std::string>());
      t.preloaded = t.preloaded || row.segment < 0;
      const auto place = static_cast<uint64_t>(row.segment < 0 ? row.bytes : row.offset);
      matcher.add(row, static_cast<uint64_t>(row.segment + 1) << 44 ^ place);
    }
  } catch (const json::exception& e) {
    throw Error(std::string("this is not a recording: ") + e.what(), {file});
  } catch (const Error& e) {
    throw Error(std::string("this is not a recording: ") + e.what(), {file});
  }
  return t;
}

MemoryTrace snapshot_memory_trace(const ValueTree& snapshot, const std::string& file, int device) {
  MemoryTrace t;
  t.file = file;
  t.kind = "snapshot";
  const auto& traces = snapshot.list(snapshot.get(snapshot.root(), "device_traces"));
  if (device < 0 || static_cast<size_t>(device) >= traces.size())
    throw Error(fmt::format("the snapshot has no history of device {}", device), {file},
                fmt::format("device_traces holds {} devices", traces.size()));
  t.settings = snapshot_settings(snapshot, snapshot.get(snapshot.root(), "allocator_settings"),
                                 t.settings_text);

  struct Entry {
    TraceRow row;
    uint64_t address = 0;
    ValueTree::Id frames = ValueTree::kAbsent;
  };
  std::vector<Entry> entries;
  t.streams.push_back("0");
  const auto stream_of = [&](ValueTree::Id of) {
    return dense_stream(t.streams,
                        fmt::format("{:x}", snapshot.integer(snapshot.get(of, "stream"))));
  };
  for (const ValueTree::Id e : snapshot.list(traces[static_cast<size_t>(device)])) {
    const std::string_view name = snapshot.text(snapshot.get(e, "action"));
    const auto action = action_of(name);
    if (!action) {
      if (name != "snapshot") ++t.left_out[fmt::format("action {}", name)];
      continue;
    }
    Entry entry;
    entry.row.action = *action;
    entry.row.bytes = size_of(snapshot, snapshot.get(e, "size"));
    entry.row.stream = stream_of(e);
    entry.address = static_cast<uint64_t>(snapshot.integer(snapshot.get(e, "addr")));
    entry.frames = snapshot.get(e, "frames");
    entries.push_back(entry);
  }
  if (entries.empty())
    throw Error("the snapshot has no history", {file},
                "record one with torch.cuda.memory._record_memory_history()");

  // What was there before: freed in the history without an alloc in it, or in the blocks of the
  // snapshot without one. A block pending at the start shows by its free_completed alone.
  std::map<uint64_t, Entry> before;
  std::set<uint64_t> live, seen;
  for (const Entry& e : entries) {
    if (e.row.action == TraceAction::alloc) {
      live.insert(e.address);
      seen.insert(e.address);
    } else if (e.row.action == TraceAction::free_requested) {
      if (live.erase(e.address) == 0 && seen.insert(e.address).second) {
        before[e.address] = e;
        before[e.address].frames = ValueTree::kAbsent;  // those of the free
      }
    }
  }
  for (const ValueTree::Id s : snapshot.list(snapshot.get(snapshot.root(), "segments"))) {
    if (snapshot.integer(snapshot.get(s, "device")) != device) continue;
    auto at = static_cast<uint64_t>(snapshot.integer(snapshot.get(s, "address")));
    for (const ValueTree::Id b : snapshot.list(snapshot.get(s, "blocks"))) {
      const Bytes size = size_of(snapshot, snapshot.get(b, "size"));
      const ValueTree::Id address = snapshot.get(b, "address");
      if (address != ValueTree::kAbsent) at = static_cast<uint64_t>(snapshot.integer(address));
      if (snapshot.text(snapshot.get(b, "state")) == "active_allocated" && seen.count(at) == 0) {
        Entry e;
        e.address = at;
        const Bytes requested = size_of(snapshot, snapshot.get(b, "requested_size"));
        e.row.bytes = requested > 0 ? requested : size;
        e.row.stream = stream_of(s);
        e.frames = snapshot.get(b, "frames");
        before[at] = e;
      }
      at += static_cast<uint64_t>(std::max<Bytes>(size, 0));
    }
  }

  Matcher matcher(t);
  std::unordered_map<ValueTree::Id, std::string> origins;
  const auto name_origin = [&](const Entry& e) {
    auto [it, fresh] = origins.try_emplace(e.frames);
    if (fresh) it->second = origin_of(snapshot, e.frames);
    t.buffers.back().origin = it->second;
  };
  for (auto& [address, e] : before) {
    e.row.action = TraceAction::alloc;
    if (!matcher.add(e.row, address)) continue;
    name_origin(e);
    std::string& origin = t.buffers.back().origin;
    origin = origin.empty() ? "before the history" : origin + " (before the history)";
  }
  t.before = static_cast<uint32_t>(t.buffers.size());
  for (const Entry& e : entries)
    if (matcher.add(e.row, e.address) && e.row.action == TraceAction::alloc) name_origin(e);
  // Numbers of segments, for the reserved peak that was recorded: what the history adds and takes.
  Bytes reserved = 0, highest = 0;
  const auto add = [&](Bytes n) { reserved = std::clamp(reserved + n, -kEndless, kEndless); };
  for (const ValueTree::Id s : snapshot.list(snapshot.get(snapshot.root(), "segments")))
    if (snapshot.integer(snapshot.get(s, "device")) == device)
      add(std::max<Bytes>(size_of(snapshot, snapshot.get(s, "total_size")), 0));
  std::erase_if(entries, [](const Entry& e) { return e.row.bytes < 0; });
  for (const Entry& e : entries) {
    if (e.row.action == TraceAction::segment_alloc || e.row.action == TraceAction::segment_map)
      add(-e.row.bytes);
    if (e.row.action == TraceAction::segment_free || e.row.action == TraceAction::segment_unmap)
      add(e.row.bytes);
  }
  highest = reserved;  // as the history begins
  for (const Entry& e : entries) {
    if (e.row.action == TraceAction::segment_alloc || e.row.action == TraceAction::segment_map)
      add(e.row.bytes);
    if (e.row.action == TraceAction::segment_free || e.row.action == TraceAction::segment_unmap)
      add(-e.row.bytes);
    highest = std::max(highest, reserved);
  }
  // More than any device holds is no figure.
  if (highest > 0 && highest <= kLargest) t.reserved_peak = highest;
  return t;
}

MemoryTrace read_memory_trace(const std::string& path, int device) {
  const std::string bytes = read_whole(path, kLargestTrace);
  if (bytes.empty()) throw Error("the trace is empty", {path});
  if (static_cast<unsigned char>(bytes[0]) == 0x80)
    return snapshot_memory_trace(read_pickle(bytes, path), path, device);
  const ValueTree tree = read_json_tree(bytes, path);
  if (tree.get(tree.root(), "device_traces") != ValueTree::kAbsent)
    return snapshot_memory_trace(tree, path, device);
  if (tree.get(tree.root(), "allocator") == ValueTree::kAbsent)
    throw Error("the file holds no history of allocations", {path},
                "a recording has 'allocator', a memory snapshot 'device_traces'");
  MemoryTrace t = recorded_memory_trace(parse_json(bytes, path), path);
  if (t.rows.empty())
    throw Error("the recording keeps no history of allocations", {path},
                "its list 'allocator' is empty");
  return t;
}

}  // namespace shardsim
