#include "sim/study/import_kineto.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "sim/base/error.h"
#include "sim/study/read_gzip.h"

namespace shardsim {
namespace {

constexpr int64_t kLargestTrace = int64_t{4} << 30;  // bytes of text
constexpr int64_t kHead = int64_t{1} << 20;          // of a folder's files, to find their rank in
constexpr size_t kLongestName = 120;

// Lower case, without what separates words.
std::string squeezed(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <size_t N>
bool has_any(std::string_view text, const std::string_view (&parts)[N]) {
  return std::any_of(std::begin(parts), std::end(parts),
                     [&](std::string_view p) { return has(text, p); });
}

// Not in the middle of a UTF-8 sequence.
std::string shortened(const std::string& name) {
  size_t length = std::min(name.size(), kLongestName);
  while (length > 0 && length < name.size() &&
         (static_cast<unsigned char>(name[length]) & 0xC0) == 0x80)
    --length;
  return name.substr(0, length);
}

// "reduce" is part of the others' names, so it comes last.
std::optional<WorkKind> collective_kind(std::string_view name) {
  const std::string s = squeezed(name);
  if (has(s, "alltoall") || has(s, "sendrecv")) return std::nullopt;
  if (has(s, "reducescatter")) return WorkKind::ReduceScatter;
  if (has(s, "allgather")) return WorkKind::AllGather;
  if (has(s, "allreduce")) return WorkKind::AllReduce;
  if (has(s, "broadcast")) return WorkKind::Broadcast;
  if (has(s, "reduce")) return WorkKind::Reduce;
  return std::nullopt;
}

bool is_nccl(std::string_view kernel) {
  return kernel.starts_with("nccl") || has(kernel, "ncclKernel") || has(kernel, "ncclDevKernel");
}

bool is_product(std::string_view kernel) {
  constexpr std::string_view kAttention[] = {"flash", "fmha", "attention", "softmax"};
  constexpr std::string_view kProduct[] = {"gemm", "gemv",   "nvjet",    "xmma",
                                           "cijk", "matmul", "tritonmm", "tritontemfusedmm"};
  const std::string s = squeezed(kernel);
  return !has_any(s, kAttention) && has_any(s, kProduct);
}

WorkKind copy_kind(const std::string& name) {
  if (has(name, "HtoD")) return WorkKind::CopyH2D;
  if (has(name, "DtoH")) return WorkKind::CopyD2H;
  return WorkKind::CopyD2D;
}

int64_t bytes_of_dtype(std::string_view torch) {
  constexpr std::pair<std::string_view, int64_t> kSizes[] = {
      {"Float", 4}, {"BFloat16", 2}, {"Half", 2}, {"Double", 8}, {"Long", 8},
      {"Int", 4},   {"Short", 2},    {"Char", 1}, {"Byte", 1},   {"Bool", 1}};
  for (const auto& [name, size] : kSizes)
    if (name == torch) return size;
  return torch.starts_with("Float8") ? 1 : 0;
}

std::optional<Bytes> collective_bytes(const DeviceEvent& e, WorkKind kind,
                                      const std::string& dtype) {
  const int64_t elements = kind == WorkKind::AllGather ? e.out_elements : e.in_elements;
  const int64_t size = bytes_of_dtype(dtype);
  if (elements < 0 || size == 0) return std::nullopt;
  return elements * size;
}

// "FSDP::all_gather (layers.3)" is of layers.3; "FSDP::all_gather" and "... (root)" of the root.
std::string group_of(const std::string& scope) {
  const size_t open = scope.find(" (");
  if (open == std::string::npos || !scope.ends_with(')')) return "(root)";
  std::string name = scope.substr(open + 2, scope.size() - open - 3);
  return name.empty() || name == "root" ? "(root)" : name;
}

// The scopes around a moment of a thread, the innermost last.
class ScopeStack {
 public:
  ScopeStack(const KinetoTrace& trace, std::string_view prefix) {
    for (const HostScope& s : trace.scopes)
      if (trace.names[s.name].starts_with(prefix)) by_thread_[s.thread].push_back(s);
    for (auto& [thread, scopes] : by_thread_)
      std::stable_sort(scopes.begin(), scopes.end(), [](const HostScope& a, const HostScope& b) {
        return std::tie(a.start_ns, b.end_ns) < std::tie(b.start_ns, a.end_ns);
      });
  }

  bool empty() const { return by_thread_.empty(); }

  // Moments of a thread must come in order.
  const HostScope* innermost(int64_t thread, int64_t at_ns) {
    const auto it = by_thread_.find(thread);
    if (it == by_thread_.end()) return nullptr;
    Walk& w = walks_[thread];
    const std::vector<HostScope>& scopes = it->second;
    for (; w.next < scopes.size() && scopes[w.next].start_ns <= at_ns; ++w.next)
      w.open.push_back(w.next);
    while (!w.open.empty() && scopes[w.open.back()].end_ns < at_ns) w.open.pop_back();
    return w.open.empty() ? nullptr : &scopes[w.open.back()];
  }

 private:
  struct Walk {
    size_t next = 0;
    std::vector<size_t> open;
  };
  std::map<int64_t, std::vector<HostScope>> by_thread_;
  std::map<int64_t, Walk> walks_;
};

// A device event that is an op, its time in nanoseconds of the trace.
struct Op {
  const DeviceEvent* event = nullptr;
  WorkKind kind = WorkKind::Kernel;
  std::string group;
  int64_t launched_ns = 0;  // by the host; by its own start where that is not known
};

struct Step {
  std::string name;
  int64_t number = -1;
  int64_t start_ns = 0, end_ns = 0;
  std::vector<const Op*> ops;
};

class Importer {
 public:
  Importer(const KinetoTrace& trace, const std::string& file) : trace_(trace), file_(file) {}

  OpLog log(const KinetoChoice& choice) {
    collect();
    cut();
    const Step& step = chosen(choice);
    facts(step);
    for (const Op* op : step.ops) add(*op, step);
    name_streams();
    return std::move(log_);
  }

 private:
  void warn(std::string text) { log_.warnings.push_back(std::move(text)); }

  // The device with most events: a process has one, as a rule.
  int64_t device() {
    std::map<int64_t, size_t> count;
    for (const DeviceEvent& e : trace_.device) ++count[e.device];
    const auto most =
        std::max_element(count.begin(), count.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (count.size() > 1)
      warn(fmt::format("the trace has {} devices: only device {} is taken", count.size(),
                       most->first));
    return most->first;
  }

  void collect() {
    if (trace_.device.empty())
      throw Error("the trace has no kernels", {file_},
                  "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]");
    const int64_t of = device();
    std::vector<Op> all;
    int64_t alone = 0;
    for (const DeviceEvent& e : trace_.device) {
      if (e.device != of) continue;
      Op op;
      op.event = &e;
      const auto launch = trace_.launches.find(e.correlation);
      const bool known = e.correlation >= 0 && launch != trace_.launches.end();
      op.launched_ns = known ? launch->second.at_ns : e.start_ns;
      if (!known) ++alone;
      all.push_back(std::move(op));
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Op& a, const Op& b) { return a.launched_ns < b.launched_ns; });
    ScopeStack fsdp(trace_, "FSDP::"), nccl(trace_, "nccl:");
    std::map<std::string, int64_t> left_out;
    bool collectives = false;
    for (Op& op : all) {
      const DeviceEvent& e = *op.event;
      const std::string& name = trace_.names[e.name];
      const auto launch = trace_.launches.find(e.correlation);
      const bool placed = launch != trace_.launches.end() && launch->second.thread >= 0;
      const HostScope* scope =
          placed ? nccl.innermost(launch->second.thread, op.launched_ns) : nullptr;
      const HostScope* of_group =
          placed ? fsdp.innermost(launch->second.thread, op.launched_ns) : nullptr;
      std::optional<WorkKind> kind = WorkKind::Memset;
      if (e.category == DeviceEvent::Category::memcpy) kind = copy_kind(name);
      if (e.category == DeviceEvent::Category::kernel)
        kind = kernel_kind(name, trace_.names[e.collective],
                           scope != nullptr ? trace_.names[scope->name] : "");
      if (!kind) {
        ++left_out[name.substr(0, name.find_first_of("(<"))];
        continue;
      }
      op.kind = *kind;
      if (of_group != nullptr) op.group = group_of(trace_.names[of_group->name]);
      collectives = collectives || is_collective(op.kind);
      ops_.push_back(std::move(op));
    }
    for (const auto& [name, count] : left_out)
      warn(fmt::format("left out, as op logs have no such kind: {} of {}", count, name));
    if (trace_.malformed > 0)
      warn(fmt::format("left out, for want of a time or stream: {} of the events",
                       trace_.malformed));
    if (alone > 0)
      warn(
          fmt::format("{} of {} device events have no launch in the trace: they are put into "
                      "steps by their own time, and belong to no group",
                      alone, all.size()));
    if (collectives && fsdp.empty())
      warn("the trace has no FSDP:: ranges of the host, so ops belong to no group");
    if (ops_.empty()) throw Error("the trace has no op that a log could hold", {file_});
  }

  // Into steps; each begins where what was launched before it has ended.
  void cut() {
    std::vector<HostScope> ranges = trace_.steps;
    std::stable_sort(ranges.begin(), ranges.end(), [](const HostScope& a, const HostScope& b) {
      return a.start_ns < b.start_ns;
    });
    if (ranges.empty()) {
      warn("the trace has no ProfilerStep# ranges: all of it is taken for one step");
      Step& all = steps_.emplace_back();
      all.name = "the whole trace";
      all.start_ns = ops_.front().event->start_ns;
      for (const Op& op : ops_) all.start_ns = std::min(all.start_ns, op.event->start_ns);
      for (const Op& op : ops_) all.ops.push_back(&op);
      all.end_ns = last_end(all);
      return;
    }
    size_t next = 0;
    std::optional<int64_t> ended;
    for (size_t r = 0; r < ranges.size(); ++r) {
      const int64_t until = r + 1 < ranges.size() ? ranges[r + 1].start_ns : ranges[r].end_ns;
      for (; next < ops_.size() && ops_[next].launched_ns < ranges[r].start_ns; ++next)
        ended = std::max(ended.value_or(INT64_MIN), end_of(ops_[next]));
      Step step;
      step.name = trace_.names[ranges[r].name];
      step.number = number_of(step.name);
      step.start_ns = ended ? *ended : ranges[r].start_ns;
      for (; next < ops_.size() && ops_[next].launched_ns < until; ++next)
        step.ops.push_back(&ops_[next]);
      if (step.ops.empty()) continue;  // the profiler's last one
      step.end_ns = last_end(step);
      ended = std::max(ended.value_or(INT64_MIN), step.end_ns);
      if (step.end_ns > step.start_ns) steps_.push_back(std::move(step));
    }
    if (steps_.empty()) throw Error("no ProfilerStep# of the trace launches anything", {file_});
  }

  static int64_t end_of(const Op& op) { return op.event->start_ns + op.event->duration_ns; }
  static int64_t last_end(const Step& step) {
    int64_t end = INT64_MIN;
    for (const Op* op : step.ops) end = std::max(end, end_of(*op));
    return end;
  }
  static int64_t number_of(const std::string& name) {
    const std::string digits = name.substr(name.find('#') + 1);
    const bool whole = !digits.empty() && digits.size() < 19 &&
                       digits.find_first_not_of("0123456789") == std::string::npos;
    return whole ? std::stoll(digits) : -1;
  }

  const Step& chosen(const KinetoChoice& choice) {
    if (choice.step) {
      for (const Step& s : steps_)
        if (s.number == *choice.step) return s;
      std::vector<std::string> names;
      for (const Step& s : steps_) names.push_back(s.name);
      throw Error(fmt::format("--step: the trace has no ProfilerStep#{}", *choice.step), {file_},
                  fmt::format("it has {}", fmt::join(names, ", ")));
    }
    std::vector<const Step*> order;
    for (const Step& s : steps_) order.push_back(&s);
    std::stable_sort(order.begin(), order.end(), [](const Step* a, const Step* b) {
      return a->end_ns - a->start_ns < b->end_ns - b->start_ns;
    });
    return *order[(order.size() - 1) / 2];
  }

  void facts(const Step& step) {
    log_.source = OpSource::kineto;
    log_.step_time = Time::ns(step.end_ns - step.start_ns);
    log_.repeats = static_cast<int64_t>(steps_.size());
    log_.statistic = steps_.size() > 1 ? "median step" : "single";
    log_.environment["trace"] = std::filesystem::path(file_).filename().string();
    log_.environment["step"] = step.name;
    if (const auto gpu = trace_.gpus.find(ops_.front().event->device); gpu != trace_.gpus.end())
      log_.environment["GPU"] = gpu->second;
    if (!trace_.nccl_version.empty()) log_.environment["NCCL"] = trace_.nccl_version;
    int64_t largest = 1;
    for (const DeviceEvent& e : trace_.device) largest = std::max(largest, e.group_size);
    log_.rank = trace_.rank.value_or(0);
    log_.world = trace_.world.value_or(std::max(largest, log_.rank + 1));
    if (!trace_.rank) warn("the trace does not say its rank: taken for 0");
    if (!trace_.world)
      warn(
          fmt::format("the trace does not say how many ranks there are: taken for {}", log_.world));
    if (log_.rank >= log_.world) {
      warn(fmt::format("the trace says rank {} of {}", log_.rank, log_.world));
      log_.world = log_.rank + 1;
    }
    if (trace_.peak_allocated > 0) log_.peak_allocated = trace_.peak_allocated;
    if (trace_.peak_reserved > 0) log_.peak_reserved = trace_.peak_reserved;
  }

  void add(const Op& from, const Step& step) {
    const DeviceEvent& e = *from.event;
    LoggedOp& op = log_.ops.emplace_back();
    const auto [it, fresh] =
        stream_of_.try_emplace(e.stream, static_cast<uint32_t>(log_.streams.size()));
    if (fresh) log_.streams.push_back(fmt::format("stream {}", e.stream));
    op.stream = it->second;
    op.kind = from.kind;
    op.name = shortened(trace_.names[e.name]);
    op.group = from.group;
    if (is_collective(op.kind))
      op.bytes = collective_bytes(e, op.kind, trace_.names[e.dtype]);
    else if (e.bytes >= 0)
      op.bytes = e.bytes;
    op.start = Time::ns(e.start_ns - step.start_ns);
    op.duration = Time::ns(e.duration_ns);
  }

  void name_streams() {
    const std::vector<std::string> roles = stream_roles(log_);
    for (size_t s = 0; s < roles.size(); ++s)
      log_.streams[s] = fmt::format("{} ({})", roles[s], log_.streams[s]);
  }

  const KinetoTrace& trace_;
  const std::string& file_;
  OpLog log_;
  std::vector<Op> ops_;  // in the order of their launches
  std::vector<Step> steps_;
  std::map<int64_t, uint32_t> stream_of_;
};

bool is_trace_name(const std::string& name) {
  return name.ends_with(".json") || name.ends_with(".json.gz");
}

// The first whole number behind a key, as {"distributedInfo": {..., "rank": 3} has it.
std::optional<int64_t> number_behind(std::string_view text, std::string_view key) {
  size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  at += key.size();
  while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) == 0 &&
         (text[at] == ':' || text[at] == ' ' || text[at] == '-' || text[at] == '_'))
    ++at;
  int64_t n = 0;
  size_t digits = 0;
  for (; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0 && digits < 9;
       ++at, ++digits)
    n = n * 10 + (text[at] - '0');
  return digits > 0 ? std::optional(n) : std::nullopt;
}

std::optional<int64_t> rank_of_file(const std::filesystem::path& path) {
  const std::string head = read_maybe_gzip(path.string(), kLargestTrace, kHead);
  if (const size_t at = head.find("\"distributedInfo\""); at != std::string::npos)
    if (const auto rank = number_behind(std::string_view(head).substr(at), "\"rank\"")) return rank;
  return number_behind(path.filename().string(), "rank");
}

std::string file_of_rank(const std::string& folder, const std::optional<int64_t>& wanted) {
  std::map<int64_t, std::string> ranks;
  size_t files = 0;
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  if (error) throw Error(fmt::format("cannot be read: {}", error.message()), {folder});
  for (const auto& entry : entries) {
    if (!entry.is_regular_file() || !is_trace_name(entry.path().filename().string())) continue;
    ++files;
    const std::optional<int64_t> rank = rank_of_file(entry.path());
    if (!rank) continue;
    const auto [it, fresh] = ranks.try_emplace(*rank, entry.path().string());
    if (!fresh)
      throw Error(fmt::format("two traces are of rank {}: {} and {}", *rank,
                              std::min(entry.path().string(), it->second),
                              std::max(entry.path().string(), it->second)),
                  {folder}, "give one of them");
  }
  if (files == 0) throw Error("the folder has no traces (.json, .json.gz)", {folder});
  if (ranks.empty())
    throw Error("no trace of the folder says its rank", {folder}, "give one of them");
  if (!wanted) return ranks.begin()->second;
  const auto found = ranks.find(*wanted);
  if (found != ranks.end()) return found->second;
  std::vector<int64_t> known;
  known.reserve(ranks.size());
  for (const auto& [rank, path] : ranks) known.push_back(rank);
  throw Error(fmt::format("--rank: the folder has no trace of rank {}", *wanted), {folder},
              fmt::format("it has those of {}", fmt::join(known, ", ")));
}

}  // namespace

std::optional<WorkKind> kernel_kind(std::string_view kernel, std::string_view collective,
                                    std::string_view scope) {
  if (is_nccl(kernel)) {
    if (!collective.empty()) return collective_kind(collective);
    if (has(squeezed(kernel), "sendrecv")) return std::nullopt;
    if (const std::optional<WorkKind> kind = collective_kind(kernel)) return kind;
    return collective_kind(scope);
  }
  return is_product(kernel) ? WorkKind::Gemm : WorkKind::Kernel;
}

OpLog op_log_of(const KinetoTrace& trace, const std::string& file, const KinetoChoice& choice) {
  return Importer(trace, file).log(choice);
}

OpLog import_kineto(const std::string& path, const KinetoChoice& choice) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    OpLog log =
        op_log_of(read_kineto_events(read_maybe_gzip(path, kLargestTrace), path), path, choice);
    if (choice.rank && *choice.rank != log.rank)
      throw Error(fmt::format("--rank: this is the trace of rank {}", log.rank), {path});
    return log;
  }
  const std::string file = file_of_rank(path, choice.rank);
  return op_log_of(read_kineto_events(read_maybe_gzip(file, kLargestTrace), file), file, choice);
}

}  // namespace shardsim
