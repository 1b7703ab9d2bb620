#include "sim/study/allocator_script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "sim/study/recording.h"

namespace shardsim {

namespace {

using nlohmann::json;
using Number = AllocatorStatistics::Number;

constexpr Bytes kContext = 500 * kMiB;  // of the recordings' pretend device
constexpr Bytes kLargestDevice = 1024 * 1024 * kGiB;
constexpr Bytes kMost = int64_t{1} << 60;  // of a request; PyTorch's own bound
constexpr double kMostUs = 4e12;           // of all durations; Time holds 9.2e12
constexpr int kStreamPool = 32;            // torch.cuda.Stream() hands out these in turn

AllocatorSettings settings(const std::string& text, const AllocatorSettings& running = {}) {
  try {
    return parse_allocator_settings(text, running);
  } catch (const Error& e) {
    throw UnknownStep(e.what());
  }
}

// Plays one script, step by step.
class Player {
 public:
  Player(const AllocatorSettings& options, const DeviceMemory& device)
      : allocator_(options, device, clock_) {}

  ScriptRun play(const json& script) {
    ScriptRun run;
    run.steps.reserve(script.size());
    for (size_t i = 0; i < script.size(); ++i) {
      if (!step_at(script, i)) run.oom.emplace_back(i, allocator_.out_of_memory().text());
      run.steps.push_back(statistics_row(allocator_.statistics()));
    }
    run.final = final_segments();
    return run;
  }

 private:
  bool step_at(const json& script, size_t i) {
    try {
      return step(script[i]);
    } catch (const json::exception& e) {
      throw Error(fmt::format("script [{}]: {}: {}", i, brief(script[i]), e.what()));
    } catch (const UnknownStep& e) {
      throw UnknownStep(fmt::format("script [{}]: {}", i, e.what()));
    } catch (const Error& e) {
      throw Error(fmt::format("script [{}]: {}: {}", i, brief(script[i]), e.what()));
    }
  }

  // False: out of memory.
  bool step(const json& s) {
    const auto op = s.at(0).get<std::string>();
    if (op == "alloc")
      return alloc(s.at(1).get<std::string>(), recorded_whole(s.at(2), 0, kMost),
                   stream(s.size() > 3 ? s[3] : json(0)));
    if (op == "free") {
      free(s.at(1).get<std::string>());
    } else if (op == "record_stream") {
      const auto it = buffers_.find(s.at(1).get<std::string>());
      const StreamId on = stream(s.at(2));
      if (it != buffers_.end()) allocator_.record_stream(it->second, on);
    } else if (op == "work") {
      clock_.work(stream(s.at(1)), duration(s.at(2)));
    } else if (op == "advance") {
      clock_.advance(duration(s.at(1)));
    } else if (op == "sync") {
      clock_.synchronize();
    } else if (op == "empty_cache") {
      allocator_.empty_cache();
    } else if (op == "reset_peak") {
      allocator_.reset_peaks();
    } else if (op == "fraction") {
      const auto fraction = s.at(1).get<double>();
      if (!(fraction >= 0 && fraction <= 1))
        throw Error(fmt::format("fraction: expected 0 to 1, got {}", fraction));
      allocator_.set_memory_fraction(fraction);
    } else if (op == "settings") {
      allocator_.configure(settings(s.at(1).get<std::string>(), allocator_.settings()));
    } else {
      throw UnknownStep(fmt::format("there is no step {}", brief(s[0])));
    }
    return true;
  }

  Time duration(const json& j) {
    const auto us = j.get<double>();
    total_us_ += us;
    if (!(us >= 0 && total_us_ <= kMostUs))
      throw Error(
          fmt::format("{} us: expected 0 or more, all together at most {:.0e}", us, kMostUs));
    return Time::from_us(us);
  }

  static StreamId stream(const json& j) {
    const int64_t n = recorded_whole(j, 0, INT32_MAX);
    return static_cast<StreamId>(n == 0 ? 0 : (n - 1) % kStreamPool + 1);
  }

  // A new buffer under a name that is in use comes first; the old one goes once it is there.
  bool alloc(const std::string& name, Bytes bytes, StreamId on) {
    uint32_t slot = next_slot_;
    if (spare_.empty()) {
      ++next_slot_;
    } else {
      slot = spare_.back();
      spare_.pop_back();
    }
    if (!allocator_.alloc(slot, bytes, on)) {
      spare_.push_back(slot);
      return false;
    }
    free(name);
    buffers_[name] = slot;
    return true;
  }

  void free(const std::string& name) {
    const auto it = buffers_.find(name);
    if (it == buffers_.end()) return;
    allocator_.free(it->second);
    spare_.push_back(it->second);
    buffers_.erase(it);
  }

  // A range with holes is several segments to PyTorch's snapshot.
  std::vector<ScriptSegment> final_segments() const {
    std::vector<ScriptSegment> out;
    for (const auto& s : allocator_.segments()) {
      bool open = false;
      for (const auto& b : allocator_.blocks(s.number)) {
        if (b.state == BlockState::unmapped) {
          open = false;
          continue;
        }
        if (!open) out.push_back({s.number, b.offset, 0, s.stream, s.small, {}});
        open = true;
        const char state = b.state == BlockState::allocated ? 'a'
                           : b.state == BlockState::pending ? 'p'
                                                            : 'f';
        out.back().bytes += b.size;
        out.back().blocks.push_back({b.size, b.requested, state});
      }
    }
    return out;
  }

  double total_us_ = 0;
  ScriptClock clock_;
  CachingAllocator allocator_;
  std::unordered_map<std::string, uint32_t> buffers_;
  std::vector<uint32_t> spare_;
  uint32_t next_slot_ = 0;
};

const json& list(const json& j, const char* what) {
  if (!j.is_array()) throw Error(fmt::format("{} is a list in an allocator script", what));
  return j;
}

double relative(int64_t simulated, int64_t recorded) {
  if (recorded == 0) return simulated == 0 ? 0 : 1;
  return std::abs(static_cast<double>(simulated - recorded)) / static_cast<double>(recorded);
}

bool compare_steps(const json& recorded, const std::vector<StatisticsRow>& steps,
                   AllocatorConformance& out) {
  list(recorded, "'steps'");
  constexpr size_t kColumns[] = {0, 9, 10, 11};
  std::optional<double>* const errors[] = {&out.allocated_error, &out.peak_error, &out.active_error,
                                           &out.reserved_error};
  for (auto* e : errors) *e = 0;
  bool equal = recorded.size() == steps.size();
  if (!equal)
    out.differences.push_back(
        fmt::format("allocator: expected {} steps, got {}", recorded.size(), steps.size()));
  bool found = false;
  for (size_t i = 0; i < std::min<size_t>(recorded.size(), steps.size()); ++i) {
    std::vector<int64_t> row;
    for (const json& x : list(recorded[i], "a row of 'steps'"))
      row.push_back(recorded_whole(x, 0, int64_t{1} << 62));
    const bool same =
        row.size() == steps[i].size() && std::equal(row.begin(), row.end(), steps[i].begin());
    if (!same && !found)
      out.differences.push_back(fmt::format("allocator: steps [{}]: expected {}, got {}", i,
                                            fmt::join(row, " "), fmt::join(steps[i], " ")));
    found = found || !same;
    for (size_t k = 0; k < 4; ++k)
      if (kColumns[k] < row.size())
        *errors[k] = std::max(**errors[k], relative(steps[i][kColumns[k]], row[kColumns[k]]));
  }
  return equal && !found;
}

bool compare_final(const json& recorded, const std::vector<ScriptSegment>& segments,
                   AllocatorConformance& out) {
  list(recorded, "'final'");
  const auto differ = [&](size_t i, const std::string& what) {
    out.differences.push_back(fmt::format("allocator: final [{}]: {}", i, what));
    return false;
  };
  for (size_t i = 0; i < std::max<size_t>(recorded.size(), segments.size()); ++i) {
    if (i >= recorded.size()) return differ(i, "expected nothing, got a segment");
    if (i >= segments.size()) return differ(i, "expected a segment, got nothing");
    const ScriptSegment& s = segments[i];
    const json& r = recorded[i];
    if (r.at("segment") != s.segment || r.at("offset") != s.offset || r.at("bytes") != s.bytes)
      return differ(i, fmt::format("expected segment {} at {} of {} bytes, got {} at {} of {}",
                                   brief(r["segment"]), brief(r["offset"]), brief(r["bytes"]),
                                   s.segment, s.offset, s.bytes));
    const json& blocks = list(r.at("blocks"), "'blocks'");
    if (blocks.size() != s.blocks.size())
      return differ(i, fmt::format("expected {} blocks, got {}", blocks.size(), s.blocks.size()));
    for (size_t k = 0; k < s.blocks.size(); ++k) {
      const ScriptSegment::Block& b = s.blocks[k];
      const json& x = blocks[k];
      const bool same = x.at(0) == b.size && x.at(2) == std::string(1, b.state) &&
                        (b.state == 'f' || x.at(1) == b.requested);
      if (!same)
        return differ(i, fmt::format("block {}: expected {}, got [{},{},\"{}\"]", k, brief(x),
                                     b.size, b.requested, b.state));
    }
  }
  return true;
}

}  // namespace

int64_t ScriptClock::record(StreamId stream) { return std::max(now_, ready(stream)).ps; }

void ScriptClock::work(StreamId stream, Time duration) {
  ready(stream) = std::max(now_, ready(stream)) + duration;
}

void ScriptClock::synchronize() {
  for (const Time t : ready_) now_ = std::max(now_, t);
}

StatisticsRow statistics_row(const AllocatorStatistics& s) {
  return {s.current(Number::allocated_bytes),
          s.current(Number::active_bytes),
          s.current(Number::reserved_bytes),
          s.current(Number::inactive_split_bytes),
          s.current(Number::requested_bytes),
          s.current(Number::allocation),
          s.current(Number::active),
          s.current(Number::segment),
          s.current(Number::inactive_split),
          s.peak(Number::allocated_bytes),
          s.peak(Number::active_bytes),
          s.peak(Number::reserved_bytes),
          s.alloc_retries,
          s.ooms,
          s.device_alloc,
          s.device_free,
          s.sync_all_streams};
}

ScriptRun play_allocator_script(const json& script, const AllocatorSettings& options,
                                const DeviceMemory& device) {
  return Player(options, device).play(list(script, "'script'"));
}

AllocatorConformance conform_allocator_script(const json& file) {
  AllocatorConformance out;
  try {
    const json environment = file.value("environment", json::object());
    if (!environment.is_object()) throw Error("'environment' is an object in an allocator script");
    DeviceMemory device;
    device.total = file.contains("device_total")
                       ? recorded_whole(file["device_total"], 0, kLargestDevice)
                       : environment_device(environment);
    device.outside = kContext;
    // PYTORCH_CUDA_ALLOC_CONF is the older name; the newer one counts if both are set.
    std::string text;
    for (const char* key : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})
      if (environment.contains(key)) text = environment[key].get<std::string>();
    const ScriptRun run = play_allocator_script(file.at("script"), settings(text), device);
    if (!file.contains("steps") && !file.contains("final")) return out;
    bool equal = true;
    if (file.contains("steps")) equal = compare_steps(file["steps"], run.steps, out);
    if (file.contains("final")) equal = compare_final(file["final"], run.final, out) && equal;
    out.allocator = equal;
    const json oom = file.value("oom", json::object());
    out.oom_texts_equal = oom.size() == run.oom.size();
    for (const auto& [step, message] : run.oom)
      out.oom_texts_equal = out.oom_texts_equal && oom.value(std::to_string(step), "") == message;
  } catch (const UnknownStep& e) {
    out = {};
    out.skipped = e.what();
  } catch (const json::exception& e) {
    throw Error(fmt::format("not an allocator script: {}", e.what()));
  } catch (const Error& e) {
    throw Error(fmt::format("not an allocator script: {}", e.what()));
  }
  return out;
}

}  // namespace shardsim
