#include "sim/study/recording.h"

#include <fmt/format.h>

#include <cmath>

#include "sim/base/error.h"
#include "sim/base/input_file.h"
#include "sim/base/quantity.h"

namespace shardsim {

namespace {

using nlohmann::json;

constexpr int kDeepest = 100;
constexpr int64_t kLargestRecording = int64_t{1} << 30;  // bytes
constexpr int64_t kMost = int64_t{1} << 62;
constexpr double kMostUs = 4e12;  // half of what Time holds: two may be subtracted

int64_t whole(const json& j) { return recorded_whole(j, 0, kMost); }

CallKind kind_of(const std::string& name) {
  static const std::map<std::string, CallKind> kinds = {
      {"all_gather", CallKind::all_gather},
      {"reduce_scatter", CallKind::reduce_scatter},
      {"all_reduce", CallKind::all_reduce},
      {"broadcast", CallKind::broadcast},
      {"reduce", CallKind::reduce},
      {"gemm", CallKind::gemm},
      {"kernel", CallKind::kernel},
      {"h2d", CallKind::copy},
      {"d2h", CallKind::copy},
      {"d2d", CallKind::copy},
      {"memset", CallKind::copy},
      {"record", CallKind::record},
      {"wait", CallKind::wait},
      {"event_sync", CallKind::event_sync},
      {"stream_sync", CallKind::stream_sync},
      {"device_sync", CallKind::device_sync}};
  const auto it = kinds.find(name);
  return it == kinds.end() ? CallKind::other : it->second;
}

int stream_number(const json& j) {
  if (!j.is_string()) return -1;
  const auto name = j.get<std::string>();
  const Parsed<int64_t> number = parse_whole(std::string_view(name).substr(name.empty() ? 0 : 1));
  if (!number.ok() || number.value < 0 || number.value > INT32_MAX)
    throw Error(fmt::format("the stream {} has no number", brief(j)));
  return static_cast<int>(number.value);
}

Time time(const json& j) {
  const auto us = j.get<double>();
  if (!(std::abs(us) <= kMostUs)) throw Error(fmt::format("{} us are no time", brief(j)));
  return Time::from_us(us);
}

Call read_call(const json& j, const std::map<int64_t, int64_t>& comms) {
  Call c;
  c.kind = kind_of(j.at(0).get<std::string>());
  if (j.size() > 1) c.stream = stream_number(j[1]);
  const auto times = [&](size_t at) {
    if (j.size() < at + 2) return;
    c.start = time(j[at]);
    c.end = time(j[at + 1]);
    c.timed = true;
  };
  switch (c.kind) {
    case CallKind::all_gather:
    case CallKind::reduce_scatter:
    case CallKind::all_reduce:
    case CallKind::broadcast:
    case CallKind::reduce: {
      c.bytes = whole(j.at(2));
      const auto comm = comms.find(whole(j.at(3)));
      c.ranks = comm == comms.end() ? 0 : comm->second;
      c.anchor = true;
      times(4);
      break;
    }
    case CallKind::gemm:
      for (size_t i = 0; i < 4; ++i) c.gemm[i] = whole(j.at(2).at(i));
      c.anchor = true;
      times(3);
      break;
    case CallKind::kernel: {
      const auto name = j.at(2).get<std::string>();
      c.shape_kind = name == "copy_out" ? 1 : name == "chunk_cat" ? 2 : name == "cat" ? 3 : 0;
      c.anchor = c.shape_kind != 0;
      times(3);
      break;
    }
    case CallKind::copy:
      c.bytes = whole(j.at(2));
      times(3);
      break;
    case CallKind::record:
    case CallKind::wait:
    case CallKind::event_sync: c.event = recorded_whole(j.at(2), -kMost, kMost); break;
    default: break;
  }
  return c;
}

std::string bare_name(std::string name) {
  for (const std::string prefix : {"_fsdp_wrapped_module.", "_checkpoint_wrapped_module."})
    for (size_t at; (at = name.find(prefix)) != std::string::npos;) name.erase(at, prefix.size());
  if (name.starts_with("module.")) name.erase(0, 7);
  return name;
}

const json& list(const json& j, const char* what) {
  if (!j.is_array()) throw Error(fmt::format("{} is a list in a recording", what));
  return j;
}

// Adds what fits.
void write_brief(const json& v, std::string& out) {
  constexpr size_t kLongest = 80;
  if (out.size() > kLongest) return;
  if (v.is_array() || v.is_object()) {
    const bool object = v.is_object();
    out += object ? "{" : "[";
    bool first = true;
    for (const auto& [key, x] : v.items()) {
      if (out.size() > kLongest) {
        out += "...";
        return;
      }
      if (!first) out += ",";
      first = false;
      if (object) out += json(key).dump() + ":";
      write_brief(x, out);
    }
    out += object ? "}" : "]";
    return;
  }
  const std::string text = v.dump(-1, ' ', false, json::error_handler_t::replace);
  out += text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

}  // namespace

std::string brief(const json& value) {
  std::string out;
  write_brief(value, out);
  return out;
}

int64_t recorded_whole(const json& value, int64_t low, int64_t high) {
  const bool fits = !value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX;
  if (!value.is_number_integer() || !fits || value.get<int64_t>() < low ||
      value.get<int64_t>() > high)
    throw Error(
        fmt::format("expected a whole number from {} to {}, got {}", low, high, brief(value)));
  return value.get<int64_t>();
}

std::optional<double> environment_number(const json& value, double low, double high) {
  double x = 0;
  if (value.is_string()) {
    const Parsed<double> parsed = parse_decimal(value.get<std::string>());
    if (!parsed.ok()) return std::nullopt;
    x = parsed.value;
  } else if (value.is_number()) {
    x = value.get<double>();
  } else {
    return std::nullopt;
  }
  if (!(x >= low && x <= high)) return std::nullopt;
  return x;
}

Bytes environment_device(const json& environment) {
  const auto it = environment.find("FAKE_MEM_GIB");
  if (it == environment.end()) return 80 * kGiB;
  const auto gib = environment_number(*it, 0.001, 1024 * 1024);
  if (!gib)
    throw Error(fmt::format("environment.FAKE_MEM_GIB = {}: expected GiB, from 0.001 to 1048576",
                            brief(*it)));
  return static_cast<Bytes>(*gib * static_cast<double>(kGiB));
}

json read_json(const std::string& path) {
  return parse_json(read_whole(path, kLargestRecording), path);
}

json parse_json(const std::string& text, const std::string& path) {
  // Copies and destructors of what is parsed call themselves for what is inside.
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest)
        throw Error(fmt::format("this is not a recording: it is more than {} lists deep", kDeepest),
                    {path});
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    throw Error(std::string("this is not a recording: ") + e.what(), {path});
  }
}

Recording read_recording(const std::string& path) { return read_recording(read_json(path), path); }

Recording read_recording(const json& j, const std::string& path) {
  Recording r;
  r.file = path;
  try {
    if (!j.is_object() || !j.contains("case") || !j.contains("torch"))
      throw Error("this is not a recording: it has no 'case' and 'torch'", {path},
                  "recordings are made by the recorder; cases.json only lists programs");
    r.torch = j.at("torch").get<std::string>();
    r.program = j.at("case");
    r.environment = j.value("environment", json::object());
    if (!r.program.is_object() || !r.environment.is_object())
      throw Error("'case' and 'environment' are objects in a recording", {path});
    std::map<int64_t, int64_t> comms;
    const auto object = [&](const char* key) {
      json v = j.value(key, json::object());
      if (!v.is_object()) throw Error(fmt::format("'{}' is an object in a recording", key));
      return v;
    };
    const json communicators = object("communicators");
    const json local_shapes = object("local_shapes");
    const json sections = j.value("sections", json::array());
    const json memory = j.value("memory", json::array());
    for (const auto& [k, v] : communicators.items()) {
      const Parsed<int64_t> number = parse_whole(k);
      if (!number.ok()) throw Error("the communicator '" + k + "' has no number");
      comms[number.value] = whole(v);
    }
    for (const auto& [name, shape] : local_shapes.items()) {
      std::vector<int64_t> dims;
      for (const json& d : list(shape, "a shape")) dims.push_back(whole(d));
      r.seen.shapes.emplace(bare_name(name), std::move(dims));
    }
    for (const json& section : list(sections, "'sections'")) {
      Section& s = r.seen.sections.emplace_back();
      s.until = section.at("until").get<std::string>();
      for (const json& call : list(section.at("calls"), "'calls'"))
        s.calls.push_back(read_call(call, comms));
    }
    for (const json& row : list(memory, "'memory'")) {
      MemoryMark m;
      m.phase = row.at("phase").get<std::string>();
      m.allocated = whole(row.at("allocated"));
      m.allocated_peak = whole(row.at("allocated_peak"));
      if (row.contains("active_peak")) m.active_peak = whole(row["active_peak"]);
      if (row.contains("reserved_peak")) m.reserved_peak = whole(row["reserved_peak"]);
      m.oom = m.phase == "oom";
      r.seen.memory.push_back(std::move(m));
    }
  } catch (const json::exception& e) {
    throw Error(std::string("this is not a recording: ") + e.what(), {path});
  } catch (const Error& e) {
    if (!e.place().file.empty()) throw;
    throw Error(std::string("this is not a recording: ") + e.what(), {path});
  }
  return r;
}

}  // namespace shardsim
