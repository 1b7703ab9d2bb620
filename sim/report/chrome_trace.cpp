#include "sim/report/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <ostream>

#include "sim/base/escape.h"
#include "sim/schedule/fsdp_scope.h"

namespace shardsim {
namespace {

constexpr int kHostPid = 1000;
constexpr int kHostTid = 1000;
constexpr int kComputeStream = 7;
constexpr int kDevice = 0;
constexpr size_t kListedRanks = 30;

int stream_number(StreamId s) { return s == 0 ? kComputeStream : 12 + 4 * s; }

// Whole nanoseconds, as microseconds with three decimals.
std::string us(Time t) {
  const int64_t ns = (t.ps + 500) / 1000;
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

// Start and end are rounded, so intervals that touch still touch.
std::string duration(Time start, Time end) {
  const int64_t ns = (end.ps + 500) / 1000 - (start.ps + 500) / 1000;
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

std::string_view nccl_dtype(DType t) {
  switch (t) {
    case DType::bf16: return "bf16";
    case DType::fp16: return "f16";
    case DType::fp8: return "f8e4m3";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
    case DType::fp32: return "f32";
  }
  return "f32";
}

std::string_view torch_dtype(DType t) {
  switch (t) {
    case DType::bf16: return "BFloat16";
    case DType::fp16: return "Half";
    case DType::fp8: return "Float8_e4m3fn";
    case DType::i64: return "Long";
    case DType::u8: return "Byte";
    case DType::fp32: return "Float";
  }
  return "Float";
}

// NCCL builds one kernel for each function and type, named after ring and LL whatever runs in it.
std::string nccl_kernel(const Work& w) {
  constexpr std::string_view kTail = "_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
  switch (w.kind) {
    case WorkKind::AllGather: return fmt::format("ncclDevKernel_AllGather{}", kTail);
    case WorkKind::Broadcast: return fmt::format("ncclDevKernel_Broadcast{}", kTail);
    case WorkKind::ReduceScatter:
      return fmt::format("ncclDevKernel_ReduceScatter_Sum_{}{}", nccl_dtype(w.dtype), kTail);
    case WorkKind::Reduce:
      return fmt::format("ncclDevKernel_Reduce_Sum_{}{}", nccl_dtype(w.dtype), kTail);
    default: return fmt::format("ncclDevKernel_AllReduce_Sum_{}{}", nccl_dtype(w.dtype), kTail);
  }
}

std::string_view collective_name(WorkKind k) {
  switch (k) {
    case WorkKind::AllGather: return "_allgather_base";
    case WorkKind::ReduceScatter: return "_reduce_scatter_base";
    case WorkKind::Broadcast: return "broadcast";
    case WorkKind::Reduce: return "reduce";
    default: return "allreduce";
  }
}

std::string_view nccl_scope(WorkKind k) {
  switch (k) {
    case WorkKind::AllGather: return "nccl:_all_gather_base";
    case WorkKind::ReduceScatter: return "nccl:_reduce_scatter_base";
    case WorkKind::Broadcast: return "nccl:broadcast";
    case WorkKind::Reduce: return "nccl:reduce";
    default: return "nccl:all_reduce";
  }
}

// HTA counts a name with Memcpy, Memset, Sync or dma as no compute.
std::string kernel_name(const Work& w) {
  if (w.kind == WorkKind::Gemm)
    return fmt::format("nvjet_{}_{}x{}x{}{}", name_of(w.dtype), w.m, w.n, w.k,
                       w.batch > 1 ? fmt::format("_b{}", w.batch) : "");
  return *w.name != '\0' ? std::string(w.name) : "kernel";
}

// "step1.0.after_forward" ends the phase "forward".
std::string phase_of(const std::string& mark) {
  std::string last = mark.substr(mark.rfind('.') + 1);
  if (last.rfind("after_", 0) == 0) last.erase(0, 6);
  return last;
}

// The args object of an event.
class Args {
 public:
  Args& number(std::string_view key, int64_t value) { return raw(key, std::to_string(value)); }
  Args& text(std::string_view key, std::string_view value) {
    return raw(key, '"' + escaped(value) + '"');
  }
  Args& raw(std::string_view key, std::string_view value) {
    if (!text_.empty()) text_ += ", ";
    text_ += '"';
    text_ += key;
    text_ += "\": ";
    text_ += value;
    return *this;
  }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

class Writer {
 public:
  Writer(const Schedule& schedule, const Trace& trace, std::span<const std::string> groups,
         const ChromeTraceOptions& options)
      : schedule_(schedule), trace_(trace), groups_(groups), options_(options) {}

  std::string write() {
    header();
    labels();
    steps();
    plays();
    counters();
    text_ += fmt::format("\n],\n\"traceName\": \"{}\"\n}}\n", escaped(options_.trace_name));
    return std::move(text_);
  }

 private:
  template <class... A>
  void raw(fmt::format_string<A...> f, A&&... args) {
    fmt::format_to(std::back_inserter(text_), f, std::forward<A>(args)...);
  }
  template <class... A>
  void event(fmt::format_string<A...> f, A&&... args) {
    if (!first_) text_ += ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(text_), f, std::forward<A>(args)...);
  }

  void header() {
    const Gpu& g = options_.gpu;
    raw("{{\n\"schemaVersion\": 1,\n\"deviceProperties\": [\n"
        "{{\"id\": {}, \"name\": \"{}\", \"totalGlobalMem\": {}, \"computeMajor\": {}, "
        "\"computeMinor\": {}, \"numSms\": {}}}\n],\n",
        kDevice, escaped(g.name), g.memory_bytes, g.compute_capability / 10,
        g.compute_capability % 10, g.sms);
    raw("\"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {}, "
        "\"pg_count\": {}, \"pg_config\": [",
        options_.rank, options_.world, schedule_.comms.size());
    for (size_t c = 0; c < schedule_.comms.size(); ++c)
      raw("{}{{\"pg_name\": \"{}\", \"pg_desc\": \"{}\", \"backend_config\": \"cuda:nccl\", "
          "\"pg_size\": {}, \"ranks\": {}}}",
          c == 0 ? "" : ", ", c, escaped(schedule_.comms[c].name), schedule_.comms[c].size,
          json_ranks(schedule_.comms[c]));
    raw("], \"nccl_version\": \"{}\"}},\n", escaped(options_.nccl_version));
    raw("\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": 0,\n\"traceEvents\": [\n");
  }

  // JSON has no "...": a long list is left out, its size is beside it.
  std::string json_ranks(const Comm& c) const {
    return c.size > static_cast<int64_t>(kListedRanks) ? "[]" : ranks_text(c, options_.rank);
  }

  // Metadata, counters and arrows.
  void simple(std::string_view ph, std::string_view name, int pid, int tid, Time at,
              std::string_view rest) {
    event("{{\"ph\": \"{}\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"ts\": {}, {}}}", ph,
          name, pid, tid, us(at), rest);
  }

  void complete(std::string_view cat, std::string_view name, int pid, int tid, Time start, Time end,
                const Args& args) {
    event(
        "{{\"ph\": \"X\", \"cat\": \"{}\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"ts\": {}, "
        "\"dur\": {}, \"args\": {{{}}}}}",
        cat, escaped(name), pid, tid, us(start), duration(start, std::max(start, end)), args.str());
  }

  void label(int pid, int tid, std::string_view name, std::string_view key,
             std::string_view value) {
    simple("M", name, pid, tid, {}, fmt::format("\"args\": {{\"{}\": {}}}", key, value));
  }

  void labels() {
    label(kHostPid, 0, "process_name", "name", "\"shardsim\"");
    label(kHostPid, 0, "process_labels", "labels", "\"CPU\"");
    label(kHostPid, 0, "process_sort_index", "sort_index", std::to_string(kHostPid));
    label(kHostPid, kHostTid, "thread_name", "name", "\"host thread\"");
    label(kHostPid, kHostTid, "thread_sort_index", "sort_index", "0");
    label(kDevice, 0, "process_name", "name", "\"shardsim\"");
    label(kDevice, 0, "process_labels", "labels", fmt::format("\"GPU {}\"", kDevice));
    label(kDevice, 0, "process_sort_index", "sort_index", std::to_string(16777216 + kDevice));
    for (size_t s = 0; s < schedule_.streams.size(); ++s) {
      const int number = stream_number(static_cast<StreamId>(s));
      label(kDevice, number, "thread_name", "name",
            fmt::format("\"stream {} {}\"", number, escaped(schedule_.streams[s])));
      label(kDevice, number, "thread_sort_index", "sort_index", std::to_string(number));
    }
  }

  void scope(std::string_view cat, std::string_view name, Time start, Time end) {
    complete(cat, name, kHostPid, kHostTid, start, end, Args().number("External id", ++external_));
  }

  // The host's last call, so that what follows it in the file follows it in time.
  Time host_end() const {
    Time t{};
    if (!trace_.issued.empty()) t = trace_.issued.back() + last_launch();
    if (!trace_.worked.empty()) t = std::max(t, trace_.worked.back().end);
    if (!trace_.marks.empty())
      t = std::max(t, trace_.marks.back().host + options_.host[HostCall::other]);
    return t;
  }

  // What the last launch that was played cost the host.
  Time last_launch() const {
    size_t left = trace_.issued.size();
    Time cost{};
    schedule_.for_each([&](const Instr& i, const Segment&) {
      if (i.kind == Kind::Launch && left > 0 && --left == 0) cost = options_.launch[i.a];
    });
    return cost;
  }

  void steps() {
    int n = 0;
    const size_t rows = trace_.marks.size();
    for (size_t i = 0; i < rows; ++i) {
      if (!schedule_.step_follows(trace_.marks[i].mark)) continue;
      size_t j = i + 1;
      while (j < rows && !schedule_.marks[trace_.marks[j].mark].begins_step) ++j;
      const Time end = j < rows ? trace_.marks[j].host : host_end();
      scope("user_annotation", fmt::format("ProfilerStep#{}", n++), trace_.marks[i].host, end);
      for (size_t k = i + 1; k <= j && k < rows; ++k)
        scope("user_annotation", phase_of(schedule_.marks[trace_.marks[k].mark].name),
              trace_.marks[k - 1].host, trace_.marks[k].host);
    }
    // The extra one: begins where the host is done.
    Time last = host_end();
    for (const Time t : trace_.end) last = std::max(last, t);
    scope("user_annotation", fmt::format("ProfilerStep#{}", n), host_end() + Time::us(1),
          std::max(last, host_end() + Time::us(2)));
  }

  struct Scope {
    std::string_view name;
    GroupId group;
    Time start, end;
  };

  void close_scope() {
    if (!scope_.name.empty())
      scope("cpu_op", fmt::format("{} ({})", scope_.name, group_name(scope_.group)), scope_.start,
            scope_.end);
    scope_ = {};
  }

  std::string group_name(GroupId g) const {
    if (g.v < groups_.size()) return groups_[g.v].empty() ? "root" : groups_[g.v];
    return "group " + std::to_string(g.v);
  }

  void host_call(std::string_view name, int cbid, Time start, Time end, uint32_t correlation) {
    complete("cuda_runtime", name, kHostPid, kHostTid, start, end,
             Args().number("cbid", cbid).number("correlation", correlation));
  }

  // Every instruction in order; `now` is where the host is.
  void plays() {
    const size_t streams = stream_count();
    std::vector<Time> stream_ready(streams), event_at(schedule_.events);
    std::vector<uint32_t> event_correlation(schedule_.events);
    std::vector<StreamId> event_stream(schedule_.events);
    uint32_t launch = 0;
    size_t row = 0, limit = 0, worked = 0;
    Time now{};
    LiveWalk walk;
    schedule_.for_each([&](const Instr& i, const Segment& s) {
      // No call between two launches runs past the second's issue.
      const Time bound = launch < trace_.issued.size() ? trace_.issued[launch] : Time::max();
      const auto ends = [&](HostCall c) { return std::min(now + options_.host[c], bound); };
      switch (i.kind) {
        case Kind::Launch: {
          now = trace_.issued[launch];
          play(i, launch);
          stream_ready[i.stream] = trace_.end[launch];
          now += options_.launch[i.a];
          ++launch;
          break;
        }
        case Kind::Record: {
          const Time end = ends(HostCall::record);
          event_at[s.event(i).v] = std::max(now, stream_ready[i.stream]);
          event_correlation[s.event(i).v] = ++correlation_;
          event_stream[s.event(i).v] = i.stream;
          host_call("cudaEventRecord", 135, now, end, correlation_);
          now = end;
          break;
        }
        case Kind::Wait:
        case Kind::WaitUnlessDone: {
          const uint32_t event = s.event(i).v;
          if (i.kind == Kind::WaitUnlessDone && event_at[event] <= now) break;
          ++correlation_;
          const Time end = ends(HostCall::wait);
          host_call("cudaStreamWaitEvent", 147, now, end, correlation_);
          if (event_correlation[event] != 0)
            waits_.push_back(
                {i.stream, event_stream[event], now, correlation_, event_correlation[event]});
          stream_ready[i.stream] = std::max(stream_ready[i.stream], event_at[event]);
          now = end;
          break;
        }
        case Kind::HostWait:
          now = host_wait("cudaEventSynchronize", 137, now, event_at[i.a], bound);
          break;
        case Kind::EventLimit: {
          const uint32_t event = trace_.limited[limit++];
          if (event != Trace::kNoEvent)
            now = host_wait("cudaEventSynchronize", 137, now, event_at[event], bound);
          break;
        }
        case Kind::StreamSync:
          now = host_wait("cudaStreamSynchronize", 131, now, stream_ready[i.stream], bound);
          break;
        case Kind::DeviceSync:
          now = host_wait("cudaDeviceSynchronize", 165, now,
                          *std::max_element(stream_ready.begin(), stream_ready.end()), bound);
          break;
        case Kind::Mark:
          close_scope();
          if (row < trace_.marks.size())
            now = trace_.marks[row++].host + options_.host[HostCall::other];
          break;
        case Kind::Alloc:
        case Kind::AllocOnce:
        case Kind::Free: {
          const BufferId b = s.buffer(i);
          const int change = walk.change(i);
          if (b.v >= schedule_.buffers.size() || change == 0) break;
          const Bytes n = round_block(schedule_.buffers[b.v].bytes);
          live_ += change * n;
          if (!memory_.empty() && memory_.back().first == now)
            memory_.back().second = std::max(memory_.back().second, live_);
          else
            memory_.emplace_back(now, live_);
          break;
        }
        case Kind::PinnedRelease: {
          const Time end = ends(HostCall::record);
          host_call("cudaEventRecord", 135, now, end, ++correlation_);
          now = end;
          break;
        }
        case Kind::HostWork:
          close_scope();
          scope("cpu_op", schedule_.host_works[i.a].name, trace_.worked[worked].start,
                trace_.worked[worked].end);
          now = trace_.worked[worked++].end;
          break;
        case Kind::HostCalls:
          for (uint32_t k = 0; k < i.a; ++k) now = ends(HostCall::other);
          break;
        case Kind::UseOn:
        case Kind::EmptyCache:
        case Kind::EventPush:
        case Kind::PinnedTake: break;
      }
    });
    close_scope();
  }

  size_t stream_count() const {
    size_t n = std::max<size_t>(1, schedule_.streams.size());
    for (const Instr& i : schedule_.code) n = std::max<size_t>(n, size_t{i.stream} + 1);
    return n;
  }

  Time host_wait(std::string_view name, int cbid, Time now, Time until, Time bound) {
    const Time end =
        std::min(std::max(now, until) + options_.host[HostCall::sync], std::max(now, bound));
    host_call(name, cbid, now, end, ++correlation_);
    return end;
  }

  void play(const Instr& i, uint32_t launch) {
    const Work& w = schedule_.works[i.a];
    const Time issued = trace_.issued[launch], done = issued + options_.launch[i.a];
    const Time start = trace_.start[launch], end = trace_.end[launch];
    const uint32_t correlation = ++correlation_;
    const int stream = stream_number(i.stream);

    const std::string_view name = fsdp_scope(w);
    if (name != scope_.name || w.group != scope_.group) {
      close_scope();
      if (!name.empty()) scope_ = {name, w.group, issued, done};
    }
    scope_.end = done;

    Args args;
    args.number("device", kDevice).number("context", 1).number("stream", stream);
    args.number("correlation", correlation);
    if (is_collective(w.kind)) {
      scope("user_annotation", nccl_scope(w.kind), issued, done);
      host_call("cudaLaunchKernelExC", 430, issued, done, correlation);
      collective_args(args, w);
      complete("kernel", nccl_kernel(w), kDevice, stream, start, end, args);
    } else if (is_compute(w.kind)) {
      host_call("cudaLaunchKernel", 211, issued, done, correlation);
      complete("kernel", kernel_name(w), kDevice, stream, start, end, args);
    } else {
      const bool memset = w.kind == WorkKind::Memset;
      host_call(memset ? "cudaMemsetAsync" : "cudaMemcpyAsync", memset ? 51 : 41, issued, done,
                correlation);
      args.number("bytes", w.bytes);
      const double gbps =
          end > start ? static_cast<double>(w.bytes) * 1e3 / static_cast<double>((end - start).ps)
                      : 0;
      args.raw("memory bandwidth (GB/s)", fmt::format("{:.3f}", gbps));
      complete(memset ? "gpu_memset" : "gpu_memcpy",
               memset                        ? "Memset (Device)"
               : w.kind == WorkKind::CopyH2D ? "Memcpy HtoD (Pinned -> Device)"
               : w.kind == WorkKind::CopyD2H ? "Memcpy DtoH (Device -> Pinned)"
                                             : "Memcpy DtoD (Device -> Device)",
               kDevice, stream, start, end, args);
    }
    const std::string arrow = fmt::format("\"id\": {}, \"cat\": \"ac2g\"", correlation);
    simple("s", "ac2g", kHostPid, kHostTid, issued, arrow);
    simple("f", "ac2g", kDevice, stream, start, arrow + ", \"bp\": \"e\"");
  }

  void collective_args(Args& args, const Work& w) const {
    const bool named = w.comm.v < schedule_.comms.size();
    const Comm none;
    const Comm& comm = named ? schedule_.comms[w.comm.v] : none;
    const int64_t whole = w.bytes / std::max(1, bytes_of(w.dtype));
    const int64_t shard = whole / std::max<int64_t>(1, comm.size);
    args.text("Collective name", collective_name(w.kind));
    args.number("In msg nelems", w.kind == WorkKind::AllGather ? shard : whole);
    args.number("Out msg nelems", w.kind == WorkKind::ReduceScatter ? shard : whole);
    args.number("Group size", comm.size).text("dtype", torch_dtype(w.dtype));
    args.text("In split size", "[]").text("Out split size", "[]");
    args.text("Process Group Name", named ? std::to_string(w.comm.v) : "");
    args.text("Process Group Description", comm.name);
    args.text("Process Group Ranks", ranks_text(comm, options_.rank));
  }

  void counters() {
    for (const Wait& w : waits_) {
      Args args;
      args.number("stream", stream_number(w.stream)).number("correlation", w.correlation);
      args.number("wait_on_stream", stream_number(w.on));
      args.number("wait_on_cuda_event_record_corr_id", w.record);
      args.text("cuda_sync_kind", "Stream Wait Event");
      // As CUPTI reports it, at the host's call; of no length, since HTA takes it for compute. On a
      // whole microsecond, which HTA's rounding leaves alone.
      const Time at{(w.at.ps + 999'999) / 1'000'000 * 1'000'000};
      complete("cuda_sync", "Stream Wait Event", kDevice, stream_number(w.stream), at, at, args);
    }
    if (!options_.counters) return;
    for (const auto& [at, bytes] : memory_)
      simple("C", "memory", kDevice, 0, at,
             fmt::format("\"args\": {{\"allocated bytes\": {}}}", bytes));
  }

  struct Wait {
    StreamId stream, on;
    Time at;
    uint32_t correlation, record;
  };

  const Schedule& schedule_;
  const Trace& trace_;
  std::span<const std::string> groups_;
  const ChromeTraceOptions& options_;
  std::string text_;
  bool first_ = true;
  uint32_t correlation_ = 0;
  uint32_t external_ = 0;
  Scope scope_{};
  std::vector<Wait> waits_;
  Bytes live_ = 0;
  std::vector<std::pair<Time, Bytes>> memory_;
};

}  // namespace

std::string ranks_text(const Comm& comm, int64_t rank) {
  // Rank r is the (r / stride mod size)-th of its communicator.
  const int64_t base = rank - rank / comm.stride % comm.size * comm.stride;
  std::string out = "[";
  const auto listed = static_cast<int64_t>(kListedRanks);
  for (int64_t i = 0; i < comm.size; ++i) {
    if (comm.size > listed && i == listed - 1) {
      out += ", ...";
      i = comm.size - 1;
    }
    if (i > 0) out += ", ";
    out += std::to_string(base + i * comm.stride);
  }
  return out + "]";
}

void write_chrome_trace(std::ostream& out, const Schedule& schedule, const Trace& trace,
                        std::span<const std::string> groups, const ChromeTraceOptions& options) {
  out << Writer(schedule, trace, groups, options).write();
}

}  // namespace shardsim
