#include "sim/study/recording.h"

#include <fstream>
#include <sstream>

#include "sim/base/error.h"

namespace shardsim {

namespace {

using nlohmann::json;

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
  return std::stoi(j.get<std::string>().substr(1));
}

Call read_call(const json& j, const std::map<int64_t, int64_t>& comms) {
  Call c;
  c.kind = kind_of(j.at(0).get<std::string>());
  if (j.size() > 1) c.stream = stream_number(j[1]);
  const auto times = [&](size_t at) {
    if (j.size() < at + 2) return;
    c.start = Time::from_us(j[at].get<double>());
    c.end = Time::from_us(j[at + 1].get<double>());
    c.timed = true;
  };
  switch (c.kind) {
    case CallKind::all_gather:
    case CallKind::reduce_scatter:
    case CallKind::all_reduce:
    case CallKind::broadcast:
    case CallKind::reduce: {
      c.bytes = j[2].get<int64_t>();
      const auto comm = comms.find(j[3].get<int64_t>());
      c.ranks = comm == comms.end() ? 0 : comm->second;
      c.anchor = true;
      times(4);
      break;
    }
    case CallKind::gemm:
      for (size_t i = 0; i < 4; ++i) c.gemm[i] = j[2][i].get<int64_t>();
      c.anchor = true;
      times(3);
      break;
    case CallKind::kernel: {
      const auto name = j[2].get<std::string>();
      c.shape_kind = name == "copy_out" ? 1 : name == "chunk_cat" ? 2 : name == "cat" ? 3 : 0;
      c.anchor = c.shape_kind != 0;
      times(3);
      break;
    }
    case CallKind::copy:
      c.bytes = j[2].get<int64_t>();
      times(3);
      break;
    case CallKind::record:
    case CallKind::wait:
    case CallKind::event_sync: c.event = j[2].get<int64_t>(); break;
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

}  // namespace

json read_json(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("cannot read the recording", {path}, "give a JSON file or a folder of them");
  try {
    return json::parse(in);
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
    const json communicators = j.value("communicators", json::object());
    const json local_shapes = j.value("local_shapes", json::object());
    const json sections = j.value("sections", json::array());
    const json memory = j.value("memory", json::array());
    for (const auto& [k, v] : communicators.items()) comms[std::stoll(k)] = v.get<int64_t>();
    for (const auto& [name, shape] : local_shapes.items())
      r.seen.shapes.emplace(bare_name(name), shape.get<std::vector<int64_t>>());
    for (const json& section : sections) {
      Section& s = r.seen.sections.emplace_back();
      s.until = section.at("until").get<std::string>();
      for (const json& call : section.at("calls")) s.calls.push_back(read_call(call, comms));
    }
    for (const json& row : memory) {
      MemoryMark m;
      m.phase = row.at("phase").get<std::string>();
      m.allocated = row.at("allocated").get<Bytes>();
      m.allocated_peak = row.at("allocated_peak").get<Bytes>();
      if (row.contains("active_peak")) m.active_peak = row["active_peak"].get<Bytes>();
      if (row.contains("reserved_peak")) m.reserved_peak = row["reserved_peak"].get<Bytes>();
      m.oom = m.phase == "oom";
      r.seen.memory.push_back(std::move(m));
    }
  } catch (const json::exception& e) {
    throw Error(std::string("this is not a recording: ") + e.what(), {path});
  } catch (const std::logic_error& e) {
    throw Error("this is not a recording: a stream or communicator has no number", {path});
  }
  return r;
}

}  // namespace shardsim
