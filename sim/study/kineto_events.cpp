#include "sim/study/kineto_events.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/escape.h"

namespace shardsim {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostElements = int64_t{1} << 50;

bool starts(std::string_view text, std::string_view with) { return text.starts_with(with); }

// What one event says; the strings keep their memory from event to event.
struct Event {
  std::string phase, category, name, collective, dtype, id;
  std::optional<int64_t> ts, duration, thread, device, stream, correlation, bytes;
  std::optional<int64_t> in_elements, out_elements, group_size;
  std::optional<int64_t> allocated, reserved, device_type;

  void clear() {
    for (std::string* s : {&phase, &category, &name, &collective, &dtype, &id}) s->clear();
    ts = duration = thread = device = stream = correlation = bytes = std::nullopt;
    in_elements = out_elements = group_size = allocated = reserved = device_type = std::nullopt;
  }
};

class Handler {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  Handler(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(number_integer_t n) { return whole(n); }
  bool number_unsigned(number_unsigned_t n) {
    return whole(n > INT64_MAX ? -1 : static_cast<int64_t>(n));
  }
  bool number_float(number_float_t v, const string_t& token) {
    if (in_event() && !in_args_) {
      if (key_ == "ts") event_.ts = nanoseconds(token);
      if (key_ == "dur") event_.duration = nanoseconds(token);
    } else if (v == std::floor(v) && std::abs(v) < 9e15) {
      return whole(static_cast<int64_t>(v));
    }
    return true;
  }
  bool binary(binary_t&) { return false; }

  bool string(string_t& s) {
    if (in_event()) {
      if (depth_ == events_depth_ + 1) {
        if (key_ == "ph") event_.phase = s;
        if (key_ == "cat") event_.category = s;
        if (key_ == "name") event_.name = s;
        if (key_ == "id") event_.id = s;
      } else if (in_args_ && depth_ == events_depth_ + 2) {
        if (key_ == "Collective name") event_.collective = s;
        if (key_ == "dtype") event_.dtype = s;
      }
    } else if (depth_ == 2 && top_ == "distributedInfo" && key_ == "nccl_version") {
      trace_.nccl_version = printable(s);
    } else if (depth_ == 3 && top_ == "deviceProperties" && key_ == "name") {
      gpu_name_ = printable(s);
    }
    return true;
  }

  bool key(string_t& k) {
    key_ = k;
    if (depth_ == 1) top_ = k;
    return true;
  }

  bool start_object(size_t) {
    ++depth_;
    if (events_depth_ > 0 && depth_ == events_depth_ + 1) {
      event_.clear();
      in_args_ = false;
      inside_ = true;
    } else if (inside_ && depth_ == events_depth_ + 2) {
      in_args_ = key_ == "args";
    }
    if (depth_ == 3 && top_ == "deviceProperties") {
      gpu_name_.clear();
      gpu_ = -1;
    }
    return true;
  }
  bool end_object() {
    if (inside_ && depth_ == events_depth_ + 1) {
      inside_ = false;
      take();
    } else if (inside_ && depth_ == events_depth_ + 2) {
      in_args_ = false;
    }
    if (depth_ == 3 && top_ == "deviceProperties" && !gpu_name_.empty())
      trace_.gpus[gpu_] = gpu_name_;
    --depth_;
    return true;
  }
  bool start_array(size_t) {
    ++depth_;
    // Chrome's other form is the list of events alone.
    if (depth_ == 1 || (depth_ == 2 && top_ == "traceEvents")) {
      events_depth_ = depth_;
      found_ = true;
    }
    return true;
  }
  bool end_array() {
    if (depth_ == events_depth_) events_depth_ = 0;
    --depth_;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& e) {
    const size_t at = std::min(position > 0 ? position - 1 : 0, text_.size());
    const std::string_view before = text_.substr(0, at);
    const auto line = static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1;
    const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    const Place place{file_, line, static_cast<int>(at - begin) + 1};
    if (text_.find_first_not_of(" \t\r\n", at) == std::string_view::npos || at + 1 >= text_.size())
      throw Error("the trace ends in the middle of its JSON", place,
                  "the profiler was stopped while it wrote, or the file was copied only in part");
    std::string what = e.what();
    if (const size_t colon = what.find(": "); colon != std::string::npos) what.erase(0, colon + 2);
    throw Error("not valid JSON: " + what, place);
  }

  KinetoTrace take_trace() {
    if (!found_)
      throw Error("this is no trace of a profiler: it has no traceEvents", {file_},
                  "torch.profiler's export_chrome_trace or tensorboard_trace_handler writes one");
    return std::move(trace_);
  }

 private:
  bool in_event() const { return inside_; }

  bool whole(int64_t n) {
    if (!inside_) {
      if (depth_ == 2 && top_ == "distributedInfo") {
        if (key_ == "rank" && n >= 0) trace_.rank = n;
        if (key_ == "world_size" && n > 0) trace_.world = n;
      }
      if (depth_ == 3 && top_ == "deviceProperties" && key_ == "id") gpu_ = n;
      return true;
    }
    if (!in_args_ && depth_ == events_depth_ + 1) {
      constexpr int64_t kMostUs = int64_t{1} << 52;
      const bool fits = n > -kMostUs && n < kMostUs;
      if (key_ == "ts" && fits) event_.ts = n * 1000;
      if (key_ == "dur" && fits) event_.duration = n * 1000;
      if (key_ == "tid") event_.thread = n;
      if (key_ == "id") event_.id = std::to_string(n);
    } else if (in_args_ && depth_ == events_depth_ + 2) {
      if (key_ == "device") event_.device = n;
      if (key_ == "stream") event_.stream = n;
      if (key_ == "correlation") event_.correlation = n;
      if (key_ == "bytes") event_.bytes = n;
      if (key_ == "In msg nelems") event_.in_elements = n;
      if (key_ == "Out msg nelems") event_.out_elements = n;
      if (key_ == "Group size") event_.group_size = n;
      if (key_ == "Total Allocated") event_.allocated = n;
      if (key_ == "Total Reserved") event_.reserved = n;
      if (key_ == "Device Type") event_.device_type = n;
    }
    return true;
  }

  uint32_t name_id(const std::string& name) {
    if (name.empty()) return 0;
    const auto [it, fresh] = ids_.try_emplace(name, static_cast<uint32_t>(trace_.names.size()));
    if (fresh) trace_.names.push_back(printable(name));
    return it->second;
  }

  void take() {
    const std::string category = lower(event_.category);
    const Event& e = event_;
    if (e.phase == "s" && category == "ac2g") {
      if (e.ts && !e.id.empty() && e.id.size() < 19 &&
          e.id.find_first_not_of("0123456789") == std::string::npos)
        trace_.launches.try_emplace(std::stoll(e.id), HostLaunch{-1, *e.ts});
      return;
    }
    if (e.name == "[memory]") {
      // Type 1 is CUDA, 0 the host.
      if (e.device_type != 1) return;
      trace_.peak_allocated = std::max(trace_.peak_allocated, e.allocated.value_or(0));
      trace_.peak_reserved = std::max(trace_.peak_reserved, e.reserved.value_or(0));
      return;
    }
    if (e.phase != "X") return;
    if (category == "kernel")
      device(DeviceEvent::Category::kernel);
    else if (category == "gpu_memcpy" || category == "memcpy")
      device(DeviceEvent::Category::memcpy);
    else if (category == "gpu_memset" || category == "memset")
      device(DeviceEvent::Category::memset);
    else if (category == "cuda_sync")
      ++trace_.waits;
    else if (category == "cuda_runtime" || category == "cuda_driver" || category == "runtime" ||
             category == "driver")
      launch();
    else if (category == "user_annotation" || category == "cpu_op" || category == "operator")
      scope();
  }

  void device(DeviceEvent::Category category) {
    const Event& e = event_;
    const std::optional<int64_t> stream = e.stream ? e.stream : e.thread;
    if (!e.ts || !e.duration || *e.duration < 0 || !stream || e.name.empty()) {
      ++trace_.malformed;
      return;
    }
    DeviceEvent d;
    d.category = category;
    d.name = name_id(e.name);
    d.collective = name_id(e.collective);
    d.dtype = name_id(e.dtype);
    d.device = e.device.value_or(0);
    d.stream = *stream;
    d.correlation = e.correlation.value_or(-1);
    d.start_ns = *e.ts;
    d.duration_ns = *e.duration;
    const auto in_range = [](const std::optional<int64_t>& n) {
      return n && *n >= 0 && *n <= kMostElements ? *n : -1;
    };
    d.bytes = in_range(e.bytes);
    d.in_elements = in_range(e.in_elements);
    d.out_elements = in_range(e.out_elements);
    d.group_size = in_range(e.group_size);
    trace_.device.push_back(d);
  }

  void launch() {
    if (!event_.correlation || !event_.ts) return;
    trace_.launches[*event_.correlation] = {event_.thread.value_or(0), *event_.ts};
  }

  void scope() {
    const Event& e = event_;
    const bool step = starts(e.name, "ProfilerStep#");
    if (!step && !starts(e.name, "FSDP::") && !starts(e.name, "nccl:")) return;
    if (!e.ts || !e.duration || *e.duration < 0) {
      ++trace_.malformed;
      return;
    }
    (step ? trace_.steps : trace_.scopes)
        .push_back({name_id(e.name), e.thread.value_or(0), *e.ts, *e.ts + *e.duration});
  }

  static std::string lower(std::string s) {
    for (char& c : s) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return s;
  }

  std::string_view text_;
  const std::string& file_;
  KinetoTrace trace_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::string key_, top_, gpu_name_;
  int64_t gpu_ = -1;
  int depth_ = 0;
  int events_depth_ = 0;  // of the list of events; 0: outside of it
  bool inside_ = false;   // an event
  bool in_args_ = false;
  bool found_ = false;
  Event event_;
};

}  // namespace

std::optional<int64_t> nanoseconds(std::string_view us) {
  // An exponent is no form that profilers write; a double serves it.
  constexpr double kMost = 4e18;
  if (us.find_first_of("eE") != std::string_view::npos) {
    const double v = std::strtod(std::string(us).c_str(), nullptr) * 1000;
    return std::abs(v) < kMost ? std::optional<int64_t>(std::llround(v)) : std::nullopt;
  }
  const bool negative = starts(us, "-");
  if (negative) us.remove_prefix(1);
  int64_t ns = 0;
  int decimals = -1;
  for (const char c : us) {
    if (c == '.' && decimals < 0) {
      decimals = 0;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    if (decimals == 3) break;
    if (decimals >= 0) ++decimals;
    if (ns > static_cast<int64_t>(kMost / 10)) return std::nullopt;
    ns = ns * 10 + (c - '0');
  }
  for (int d = std::max(decimals, 0); d < 3; ++d) {
    if (ns > static_cast<int64_t>(kMost / 10)) return std::nullopt;
    ns *= 10;
  }
  return us.empty() ? std::nullopt : std::optional<int64_t>(negative ? -ns : ns);
}

KinetoTrace read_kineto_events(std::string_view text, const std::string& file) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw Error("the file is empty", {file});
  Handler handler(text, file);
  Json::sax_parse(text.begin(), text.end(), &handler);
  return handler.take_trace();
}

}  // namespace shardsim
