// The CUDA backend, unchanged, on the stand-in libraries: what it calls is compared with the schedule,
// call by call; ranks as threads move real data; each injected fault ends with one message and what was
// measured until then.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "backends/cuda/replay.h"
#include "backends/replay/communicators.h"
#include "backends/replay/player.h"
#include "backends/replay/proof.h"
#include "backends/replay/regions.h"
#include "backends/replay/scale.h"
#include "sim/base/error.h"
#include "sim/schedule/graph/schedule_graph.h"
#include "sim/schedule/works.h"
#include "tests/standin/standin.h"
#include "tests/unit/lay_out.h"

namespace shardsim {
namespace {

using standin::Fault;
using standin::Record;
using standin::Setup;
using Reason = Stopped::Why;

constexpr int64_t kScale = 65536;

struct Played {
  Scenario scenario;
  Schedule schedule;
};

// A shipped scenario, or one of them with another setting.
struct Variant {
  const char* name;
  const char* shipped;
  std::vector<std::pair<std::string, std::string>> replaced;
};

const std::pair<std::string, std::string> kTwoByTwo{
    "training:\n", "training:\n  mesh: {replicate: 2, shard: 2}\n"};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{
      {"fsdp1-grad-op", "fsdp1", {{"full_shard", "shard_grad_op"}}},
      {"fsdp1-no-shard", "fsdp1", {{"full_shard", "no_shard"}}},
      {"fsdp1-hybrid", "fsdp1", {{"full_shard", "hybrid_shard"}, kTwoByTwo}},
      {"fsdp1-hybrid-zero2", "fsdp1", {{"full_shard", "hybrid_shard_zero2"}, kTwoByTwo}},
      {"fsdp2-hsdp", "fsdp2", {kTwoByTwo}},
      {"zero1",
       "zero3",
       {{"strategy: zero3", "strategy: zero1"},
        {", stage3_prefetch_bucket_size: 2e6, stage3_param_persistence_threshold: 1e4", ""}}},
      {"zero2",
       "zero3",
       {{"strategy: zero3", "strategy: zero2"},
        {", stage3_prefetch_bucket_size: 2e6, stage3_param_persistence_threshold: 1e4", ""}}},
  };
  return all;
}

Scenario scenario_of(const std::string& name) {
  for (const Variant& v : variants()) {
    if (v.name != name) continue;
    std::ostringstream text;
    text << std::ifstream(std::string(SHARDSIM_SOURCE_DIR) + "/scenarios/small/" + v.shipped +
                          ".yaml")
                .rdbuf();
    std::string yaml = text.str();
    for (const auto& [from, to] : v.replaced) {
      const size_t at = yaml.find(from, yaml.find("shardsim: 1"));
      EXPECT_NE(at, std::string::npos) << from;
      yaml.replace(at, from.size(), to);
    }
    const std::string path = testing::TempDir() + name + "." + std::to_string(::getpid()) + ".yaml";
    std::ofstream(path) << yaml;
    const Scenario s = load_scenario(path);
    ::unlink(path.c_str());
    return s;
  }
  return test::shipped(name);
}

Played small(const std::string& name, int steps) {
  Played p{scenario_of(name), {}};
  p.schedule =
      scaled(test::lay_out_steps(p.scenario, steps), kScale, p.scenario.training.mesh.world());
  return p;
}

PlayOptions play_options(int checked_steps) {
  PlayOptions o;
  o.memory = {kGiB, 0};
  o.checked_steps = checked_steps;
  o.timed_from = 1;
  return o;
}

CudaOptions cuda_options(double timeout_s = 20) {
  CudaOptions o;
  o.limits.timeout_s = timeout_s;
  return o;
}

// Rank 0's world as its meeting sees it, where nobody else takes part.
class Pretends final : public Meeting {
 public:
  explicit Pretends(int64_t world) : world_(static_cast<int>(world)) {}
  int rank() const override { return 0; }
  int world() const override { return world_; }
  std::vector<std::string> all_gather(const std::string& mine) override {
    return std::vector<std::string>(static_cast<size_t>(world_), mine);
  }
  void look() override {}
  void fail(const std::string&) override {}

 private:
  const int world_;
};

Replay play_alone(const Played& p, Setup setup = {}, const CudaOptions& options = cuda_options()) {
  setup.alone = true;
  standin::set_up(setup);
  Pretends meeting(p.scenario.training.mesh.world());
  const std::unique_ptr<Device> device = cuda_device(meeting, options);
  return play(p.schedule, *device, play_options(-1));
}

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof a;
  ::bind(fd, reinterpret_cast<sockaddr*>(&a), size);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size);
  ::close(fd);
  return ntohs(a.sin_port);
}

// All ranks as threads, each with a device; `absent` does not come.
std::vector<Replay> play_ranks(const Played& p, Setup setup, const CudaOptions& given,
                               int checked_steps = 1, int absent = -1) {
  const auto world = static_cast<int>(p.scenario.training.mesh.world());
  setup.devices = world;
  standin::set_up(setup);
  const int port = free_port();
  std::vector<Replay> out(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r)
    if (r != absent)
      threads.emplace_back([&, r] {
        Replay& mine = out[static_cast<size_t>(r)];
        try {
          const auto meeting = meet_over_tcp(r, world, "127.0.0.1", port, given.limits);
          prove_same_collectives(
              {collectives_in_order(p.schedule), collectives_in_order(p.schedule)});
          CudaOptions options = given;
          options.local_rank = r;
          const std::unique_ptr<Device> device = cuda_device(*meeting, options);
          mine = play(p.schedule, *device, play_options(checked_steps));
        } catch (const Stopped& e) {
          mine.failure = Failure{e.why(), e.what()};
        }
      });
  for (std::thread& t : threads) t.join();
  return out;
}

// What the schedule says the device is asked, as text; launches of kernels by their kernel.
struct Expected {
  const Schedule& schedule;
  const Trace& trace;  // what the host decided on the way
  std::vector<std::string> lines;
  size_t left_out = 0, limited = 0;

  void add(std::string line) { lines.push_back(std::move(line)); }
  void launch(const Instr& in) {
    const Work& w = schedule.works[in.a];
    const std::string on = " on " + std::to_string(in.stream);
    if (is_collective(w.kind)) {
      const Comm& comm = schedule.comms[w.comm.v];
      const int64_t parts = parts_of(w, comm);
      const DType t = moved_as(w, parts);
      add(std::string(name_of(w.kind)) + " " + std::to_string(w.bytes / bytes_of(t) / parts) +
          (t == DType::fp32   ? " fp32"
           : t == DType::bf16 ? " bf16"
                              : " bytes") +
          " comm " + std::to_string(w.comm.v) + on);
    } else if (w.kind == WorkKind::Gemm) {
      add("product " + std::to_string(w.m) + "x" + std::to_string(w.n) + "x" + std::to_string(w.k) +
          on);
    } else if (w.kind == WorkKind::Kernel) {
      const bool attention = w.kernel == KernelClass::attention && w.flops > 0;
      add((attention ? "attention " : "stream ") + std::to_string(w.bytes / 32 * 32) + on);
    } else {
      add(std::string(name_of(w.kind)) + " " + std::to_string(w.bytes) + on);
    }
  }
  void instruction(const Instr& in, const Segment& s) {
    const std::string on = " on " + std::to_string(in.stream);
    switch (in.kind) {
      case Kind::Launch: return launch(in);
      case Kind::Record: return add("record " + std::to_string(s.event(in).v) + on);
      case Kind::Wait: return add("wait " + std::to_string(s.event(in).v) + on);
      case Kind::WaitUnlessDone:
        // Whether it had passed is the device's to say: the line is one that may be missing.
        if (in.looked == 0 || !trace.left_out[left_out++])
          add((in.looked == 0 ? "?wait " : "wait ") + std::to_string(in.a) + on);
        return;
      default: return;
    }
  }
};

std::vector<std::string> expected(const Schedule& schedule, const Trace& trace) {
  Expected e{schedule, trace, {}};
  schedule.for_each([&](const Instr& in, const Segment& s) { e.instruction(in, s); });
  return e.lines;
}

std::string type_name(int64_t t) {
  return t == ncclFloat32 ? " fp32" : t == ncclBfloat16 ? " bf16" : " bytes";
}

// What the device was asked, in the same words: without its timing events, the allocator's (ids from
// the schedule's number on), and without what prepare() does.
std::vector<std::string> played(const Schedule& schedule, const std::vector<Record>& records,
                                const std::vector<int>& comm_of_id) {
  std::vector<std::string> out;
  const auto collective = [&](const Record& r, const char* name) {
    const auto c = std::find(comm_of_id.begin(), comm_of_id.end(), r.comm);
    out.push_back(std::string(name) + " " + std::to_string(r.bytes) + type_name(r.extra) +
                  " comm " + std::to_string(c - comm_of_id.begin()) + " on " +
                  std::to_string(r.stream));
  };
  bool begun = false;
  for (const Record& r : records) {
    const std::string on = " on " + std::to_string(r.stream);
    // The first timed record is the first launch's.
    if (r.call == "cudaEventRecord") begun = true;
    if (!begun) continue;
    const bool schedules = r.event >= 0 && r.event < static_cast<int>(schedule.events);
    if (r.call == "cudaEventRecord" && schedules)
      out.push_back("record " + std::to_string(r.event) + on);
    if (r.call == "cudaStreamWaitEvent") out.push_back("wait " + std::to_string(r.event) + on);
    if (r.call == "stream_kernel") out.push_back("stream " + std::to_string(r.bytes) + on);
    if (r.call == "attention_kernel") out.push_back("attention " + std::to_string(r.bytes) + on);
    if (r.call == "cublasLtMatmul")
      out.push_back("product " + std::to_string(r.m) + "x" + std::to_string(r.n) + "x" +
                    std::to_string(r.k) + on);
    if (r.call == "cudaMemsetAsync") out.push_back("memset " + std::to_string(r.bytes) + on);
    if (r.call == "cudaMemcpyAsync")
      out.push_back((r.extra == 1   ? "copy_h2d "
                     : r.extra == 2 ? "copy_d2h "
                                    : "copy_d2d ") +
                    std::to_string(r.bytes) + on);
    if (r.call == "ncclAllGather") collective(r, "all_gather");
    if (r.call == "ncclReduceScatter") collective(r, "reduce_scatter");
    if (r.call == "ncclAllReduce") collective(r, "all_reduce");
    if (r.call == "ncclBroadcast") collective(r, "broadcast");
    if (r.call == "ncclReduce") collective(r, "reduce");
  }
  return out;
}

// By CommId, the stand-in's number of the communicator; checks that each was split as it should.
std::vector<int> communicators(const Schedule& schedule, const std::vector<Record>& records,
                               int rank, int64_t world) {
  std::vector<const Record*> made;
  for (const Record& r : records)
    if (r.call == "ncclCommInitRankConfig" || r.call == "ncclCommSplit") made.push_back(&r);
  std::vector<int> out;
  size_t next = 1;
  bool world_taken = false;
  for (const Comm& c : schedule.comms) {
    if (c.size == world && !world_taken) {
      world_taken = true;
      out.push_back(made.at(0)->comm);
      continue;
    }
    const Record& r = *made.at(next++);
    EXPECT_EQ(r.extra, membership(c, rank).first);
    EXPECT_EQ(r.k, rank);
    out.push_back(r.comm);
  }
  EXPECT_EQ(next, made.size());
  return out;
}

void expect_same(const std::vector<std::string>& want, const std::vector<std::string>& got) {
  size_t at = 0;
  for (const std::string& line : want) {
    const bool optional = line[0] == '?';
    const std::string text = optional ? line.substr(1) : line;
    if (at < got.size() && got[at] == text) {
      ++at;
    } else if (!optional) {
      FAIL() << "call " << at << " of " << got.size() << ": expected '" << text << "', got '"
             << (at < got.size() ? got[at] : "nothing") << "'";
    }
  }
  EXPECT_EQ(at, got.size());
}

// Every edge of the schedule's graph held: what comes behind began when what it waits for had ended.
int64_t broken_edges(const Schedule& s, const Replay& r) {
  const ScheduleGraph graph = build_graph(s);
  int64_t broken = 0;
  for (const Edge& e : graph.edges) {
    const uint32_t from = graph.vertices[e.from].launch, to = graph.vertices[e.to].launch;
    if (from == UINT32_MAX || to == UINT32_MAX || e.why == Why::host) continue;
    // Times come as floats of milliseconds.
    // What waits for its communicator does so behind the event that marks its start.
    const Time when = e.why == Why::communicator ? r.trace.end[to] : r.trace.start[to];
    broken += when + Time::ns(100) < r.trace.end[from];
  }
  return broken;
}

uint32_t launches_of(const Schedule& s) {
  uint32_t n = 0;
  s.for_each([&](const Instr& in, const Segment&) { n += in.kind == Kind::Launch; });
  return n;
}

class EveryStrategy : public testing::TestWithParam<const char*> {};

// Rank 0 of the scenario's world, alone: launches, records, waits and communicators are the schedule's,
// each where it must be; the buffers that reserve() gave hold all that is read and written (the
// stand-ins refuse anything else), and all of it is given back.
TEST_P(EveryStrategy, CallsAreTheSchedules) {
  const Played p = small(GetParam(), 3);
  const Replay r = play_alone(p);
  ASSERT_FALSE(r.failure) << r.failure->what;
  const uint32_t launches = launches_of(p.schedule);
  EXPECT_EQ(r.issued, launches);
  EXPECT_EQ(std::count(r.done.begin(), r.done.end(), true), launches);
  EXPECT_EQ(broken_edges(p.schedule, r), 0);
  const std::vector<Record> records = standin::records(0);
  const std::vector<int> comms =
      communicators(p.schedule, records, 0, p.scenario.training.mesh.world());
  expect_same(expected(p.schedule, r.trace), played(p.schedule, records, comms));

  std::vector<int64_t> priorities;
  int64_t reserved = 0, most = 0;
  for (const Record& c : records) {
    if (c.call == "cudaStreamCreateWithPriority") priorities.push_back(c.extra);
    if (c.call == "cudaMalloc") most = std::max(most, reserved += c.bytes);
    if (c.call == "cudaFree") reserved -= c.bytes;
  }
  ASSERT_EQ(priorities.size(), p.schedule.streams.size());
  for (size_t s = 0; s < priorities.size(); ++s)
    EXPECT_EQ(priorities[s], (p.schedule.high_priority >> s & 1) != 0 ? -5 : 0) << s;
  Bytes model = 0;
  for (const MarkRow& m : r.trace.marks) model = std::max(model, m.reserved_peak);
  EXPECT_GE(most, model);
  EXPECT_EQ(standin::live_bytes(0), 0);
  EXPECT_EQ(standin::live_objects(0), 0);
}

// The same twice: the clock is virtual.
TEST_P(EveryStrategy, RepeatsExactly) {
  const Played p = small(GetParam(), 2);
  const Replay a = play_alone(p), b = play_alone(p);
  EXPECT_EQ(a.trace.start, b.trace.start);
  EXPECT_EQ(a.trace.end, b.trace.end);
}

INSTANTIATE_TEST_SUITE_P(Small, EveryStrategy,
                         testing::Values("ddp", "fsdp1", "fsdp1-grad-op", "fsdp1-hybrid",
                                         "fsdp1-hybrid-zero2", "fsdp1-no-shard", "fsdp2",
                                         "fsdp2-hsdp", "zero1", "zero1-torch-a100x4", "zero2",
                                         "zero3"));

class FourRanks : public testing::TestWithParam<const char*> {};

TEST_P(FourRanks, DataArrives) {
  const Played p = small(GetParam(), 2);
  for (const Replay& r : play_ranks(p, {}, cuda_options())) {
    ASSERT_FALSE(r.failure) << r.failure->what;
    EXPECT_TRUE(r.differences.empty()) << r.differences.size() << " of " << r.checked;
    EXPECT_GT(r.checked, 1);
    EXPECT_EQ(broken_edges(p.schedule, r), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Small, FourRanks,
                         testing::Values("ddp", "fsdp1", "fsdp1-hybrid", "fsdp2", "fsdp2-hsdp",
                                         "zero1-torch-a100x4", "zero3"));

// Of a fault on rank 1 of four: what each rank says in the end, and how much it has kept.
struct Ended {
  std::vector<Replay> ranks;
  double seconds = 0;
  const Failure& of(size_t rank) const { return *ranks[rank].failure; }
};

Ended with_fault(const Fault& fault, double timeout_s = 20) {
  const Played p = small("fsdp2", 3);
  const auto began = std::chrono::steady_clock::now();
  Ended e;
  standin::Setup setup;
  setup.faults = {fault};
  e.ranks = play_ranks(p, setup, cuda_options(timeout_s));
  e.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  for (const Replay& r : e.ranks) EXPECT_TRUE(r.failure);
  return e;
}

void expect_kept(const Replay& r) {
  EXPECT_GT(std::count(r.done.begin(), r.done.end(), true), 20);
  EXPECT_LT(std::count(r.done.begin(), r.done.end(), true),
            static_cast<std::ptrdiff_t>(r.done.size()));
}

TEST(Faults, ACallThatFailsIsNamed) {
  for (const auto& [call, code] :
       std::vector<std::pair<std::string, int>>{{"cudaEventRecord", cudaErrorIllegalAddress},
                                                {"cudaStreamWaitEvent", cudaErrorIllegalAddress},
                                                {"cudaEventQuery", cudaErrorIllegalAddress},
                                                {"cublasLtMatmul", CUBLAS_STATUS_EXECUTION_FAILED},
                                                {"ncclAllGather", ncclInternalError}}) {
    const Ended e = with_fault({call, call == "cudaEventRecord" ? 1500 : 20, code, 1});
    EXPECT_EQ(e.of(1).why, Reason::fault) << call;
    EXPECT_EQ(e.of(1).what.find(call + ": "), 0U) << e.of(1).what;
    EXPECT_NE(e.of(1).what.find(std::to_string(code)), std::string::npos) << e.of(1).what;
    for (size_t r : {0U, 2U, 3U}) {
      EXPECT_EQ(e.of(r).why, Reason::other_rank) << call;
      EXPECT_EQ(e.of(r).what, "rank 1: " + e.of(1).what);
      expect_kept(e.ranks[r]);
    }
  }
}

TEST(Faults, AKernelThatFailsToLaunch) {
  const Ended e = with_fault({"cudaLaunchKernel", 500, cudaErrorIllegalAddress, 1});
  EXPECT_NE(e.of(1).what.find(": an illegal memory access was encountered "
                              "(cudaErrorIllegalAddress, 700)"),
            std::string::npos)
      << e.of(1).what;
  expect_kept(e.ranks[1]);
}

TEST(Faults, ACollectiveThatNeverEnds) {
  const Ended e = with_fault({"hang", 30, 1, 1}, 1);
  int timeouts = 0;
  for (const Replay& r : e.ranks) {
    timeouts += r.failure->why == Reason::timeout;
    expect_kept(r);
  }
  EXPECT_GE(timeouts, 1);
  EXPECT_LT(e.seconds, 15);
  const Played p = small("fsdp2", 3);
  const std::vector<std::string> lines = progress(p.schedule, e.ranks[1]);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& l) {
    return l.find("under way") != std::string::npos && l.find("ranks, stride") != std::string::npos;
  })) << testing::PrintToString(lines);
}

TEST(Faults, NcclReportsAnErrorLater) {
  const Ended e = with_fault({"async", 30, ncclSystemError, 1});
  int reported = 0;
  for (const Replay& r : e.ranks)
    reported +=
        r.failure->what.find("NCCL's communicator: an injected fault (2)") != std::string::npos;
  EXPECT_EQ(reported, 4);
}

TEST(Faults, OutOfMemory) {
  // The first call on rank 1 is its scratch memory, later ones are segments.
  const Ended e = with_fault({"cudaMalloc", 5, cudaErrorMemoryAllocation, 1});
  EXPECT_EQ(e.of(1).why, Reason::out_of_memory);
  EXPECT_NE(e.of(1).what.find("the device has no"), std::string::npos) << e.of(1).what;
  EXPECT_EQ(e.of(0).what, "rank 1: " + e.of(1).what);
}

TEST(Faults, TheMemoryLimitIsHonoured) {
  const Played p = small("fsdp2", 2);
  CudaOptions o = cuda_options();
  o.memory_limit = 262 * kMiB;  // 256 are for what kernels read and write
  const Replay r = play_alone(p, {}, o);
  ASSERT_TRUE(r.failure);
  EXPECT_EQ(r.failure->why, Reason::out_of_memory);
  int64_t reserved = 0;
  for (const Record& c : standin::records(0)) {
    if (c.call == "cudaMalloc") reserved += c.bytes;
    if (c.call == "cudaFree") reserved -= c.bytes;
    EXPECT_LE(reserved, o.memory_limit);
  }
  EXPECT_EQ(standin::live_bytes(0), 0);
  EXPECT_EQ(standin::live_objects(0), 0);
}

TEST(Faults, ARankIsMissing) {
  const Played p = small("fsdp2", 2);
  const std::vector<Replay> ranks = play_ranks(p, {}, cuda_options(.5), 1, 3);
  for (size_t r : {0U, 1U, 2U}) {
    EXPECT_EQ(ranks[r].failure->what.find("rank 3 has not come to the meeting at 127.0.0.1:"), 0U)
        << ranks[r].failure->what;
  }
}

TEST(Faults, CtrlC) {
  const Played p = small("fsdp2", 30);
  std::atomic<int> looks = 0;
  CudaOptions o = cuda_options();
  o.limits.interrupted = [&] { return ++looks > 100; };
  const std::vector<Replay> ranks = play_ranks(p, {}, o);
  for (const Replay& r : ranks) {
    ASSERT_TRUE(r.failure);
    EXPECT_NE(r.failure->what.find("interrupted"), std::string::npos) << r.failure->what;
  }
}

TEST(Cuda, NoGpu) {
  standin::Setup none;
  none.devices = 0;
  standin::set_up(none);
  const auto meeting = meet_alone();
  try {
    cuda_device(*meeting, {});
    FAIL();
  } catch (const NoDevice& e) {
    EXPECT_STREQ(e.what(), "this machine has no NVIDIA GPU");
  }
  standin::set_up({});
  CudaOptions o;
  o.local_rank = 3;
  EXPECT_THROW(cuda_device(*meeting, o), Error);
}

// One GPU plays rank 0 of four: a collective is a wait as long as the model says.
TEST(Cuda, OneGpuWaitsInsteadOfCollectives) {
  const Played p = small("fsdp2", 2);
  standin::set_up({});
  const auto meeting = meet_alone();
  CudaOptions o = cuda_options();
  o.single_gpu = true;
  o.single_gpu_world = 4;
  o.collective_time = [](const Work& w) { return Time::ns(100 * w.bytes); };
  const std::unique_ptr<Device> device = cuda_device(*meeting, o);
  EXPECT_EQ(device->world(), 4);
  const Replay r = play(p.schedule, *device, play_options(-1));
  ASSERT_FALSE(r.failure) << r.failure->what;
  EXPECT_EQ(r.checked, 0);
  uint32_t launch = 0;
  p.schedule.for_each([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    const uint32_t n = launch++;
    const Work& w = p.schedule.works[in.a];
    if (is_collective(w.kind)) {
      EXPECT_NEAR((r.trace.end[n] - r.trace.start[n]).as_us(), .1 * w.bytes, 2);
    }
  });
  for (const Record& c : standin::records(0)) EXPECT_NE(c.call.substr(0, 4), "nccl");
  const auto label = std::find_if(r.environment.begin(), r.environment.end(),
                                  [](const auto& e) { return e.first == "collectives"; });
  ASSERT_NE(label, r.environment.end());
  EXPECT_EQ(label->second.find("modelled: one GPU plays rank 0 of 4"), 0U);
}

}  // namespace
}  // namespace shardsim
