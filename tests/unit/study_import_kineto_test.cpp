// Traces of PyTorch's profiler: one made of a simulated run with noise, renamed kernels and without
// arrows, whose answers are the simulation's; and small ones by hand for what real traces show.
#include "sim/study/import_kineto.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sim/base/error.h"
#include "sim/config/scenario.h"
#include "sim/report/chrome_trace.h"
#include "sim/report/op_compare.h"
#include "sim/study/read_gzip.h"
#include "sim/study/read_op_log.h"
#include "sim/study/run_report.h"

namespace shardsim {
namespace {

using nlohmann::json;

OpLog imported(const std::string& text, const KinetoChoice& choice = {}) {
  return op_log_of(read_kineto_events(text, "trace.json"), "trace.json", choice);
}

std::string error_of(const std::string& text, const KinetoChoice& choice = {}) {
  try {
    imported(text, choice);
  } catch (const Error& e) {
    return e.text();
  }
  return "";
}

struct TracedRun {
  Scenario scenario;
  Simulation simulation;
  json trace;
};

// Four FSDP2 blocks, flat costs, eight ranks; the host's calls take 1 us, so that its steps stand where
// it issues them.
TracedRun run_of(const char* file) {
  TracedRun r{load_scenario(std::string(SHARDSIM_SOURCE_DIR "/scenarios/small/") + file), {}, {}};
  r.scenario.cost.flat.host_us = 1;
  r.simulation = simulate(r.scenario);
  const CostTable costs = price(r.scenario, r.simulation.schedule);
  ChromeTraceOptions o;
  o.rank = 3;
  o.world = 8;
  o.gpu = r.scenario.cluster.gpu;
  o.host = costs.host;
  o.launch = costs.launch;
  std::vector<std::string> groups;
  for (const GroupRow& g : group_rows(r.simulation.model, r.simulation.plan, r.scenario.training))
    groups.push_back(g.name);
  std::ostringstream out;
  write_chrome_trace(out, r.simulation.schedule, r.simulation.trace, groups, o);
  r.trace = json::parse(out.str());
  return r;
}

// Without arrows, gathers by NCCL's names before 2.19 and .85 or .95 of their time by turns.
void disturb(json& trace) {
  json events = json::array();
  int n = 0;
  for (json& e : trace["traceEvents"]) {
    if (e.value("cat", "") == "ac2g") continue;
    const std::string name = e["name"];
    if (e.value("cat", "") == "kernel" && name.find("AllGather") != std::string::npos) {
      e["dur"] = e["dur"].get<double>() * (n++ % 2 == 0 ? .85 : .95);
      e["name"] = "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)";
    }
    events.push_back(e);
  }
  trace["traceEvents"] = events;
}

TEST(ImportKineto, OfASimulatedRunIsTheRun) {
  TracedRun r = run_of("stack-flat.yaml");
  const OpLog predicted = op_log_of(r.scenario, r.simulation);
  disturb(r.trace);
  const OpLog log = imported(r.trace.dump(), {std::nullopt, r.simulation.steps - 1});
  EXPECT_EQ(log.source, OpSource::kineto);
  EXPECT_EQ(log.rank, 3);
  EXPECT_EQ(log.world, 8);
  EXPECT_EQ(log.environment.at("GPU"), "h100-sxm5-80gb");
  // Kineto's nanoseconds: both ends of the step are rounded.
  EXPECT_NEAR(log.step_time.as_us(), predicted.step_time.as_us(), .002);

  const OpComparison c = compare_ops(predicted, log);
  EXPECT_EQ(c.pairs.size(), predicted.ops.size());
  EXPECT_TRUE(c.unmatched.empty());
  EXPECT_TRUE(c.flags.empty());
  ASSERT_TRUE(c.step_error_pct());
  EXPECT_NEAR(*c.step_error_pct(), 0, .01);
  for (const OpRow& row : c.by_kind) {
    EXPECT_EQ(row.count[0], row.count[1]);
    // .85 and .95 by turns are .9 of the time of gathers that are all alike.
    const double wanted = row.kind == WorkKind::AllGather ? .9 : 1;
    EXPECT_NEAR(row.time[1].as_us() / row.time[0].as_us(), wanted, .001);
    if (is_collective(row.kind)) {
      EXPECT_EQ(row.bytes[0], row.bytes[1]);
    }
  }
  // Each block is gathered twice, forward and backward, and its gradients are reduced once.
  for (const OpRow& row : c.by_group)
    if (row.kind == WorkKind::AllGather && row.key == "layers.2") {
      EXPECT_EQ(row.count[1], 2);
      EXPECT_EQ(row.bytes[1], 2 * 4'194'304);
    }
  std::vector<std::string> streams;
  for (const std::string& s : log.streams) streams.push_back(s.substr(0, s.find(' ')));
  EXPECT_NE(std::find(streams.begin(), streams.end(), "compute"), streams.end());
  EXPECT_NE(std::find(streams.begin(), streams.end(), "all_gather"), streams.end());
  EXPECT_NE(std::find(streams.begin(), streams.end(), "reduce_scatter"), streams.end());
}

TEST(ImportKineto, TwiceTheBytesAreFlagged) {
  TracedRun r = run_of("stack-flat.yaml");
  for (json& e : r.trace["traceEvents"])
    if (e.value("cat", "") == "kernel" &&
        e["name"].get<std::string>().find("AllGather") != std::string::npos)
      e["args"]["dtype"] = "Float";  // bf16 gathered in fp32
  const OpComparison c =
      compare_ops(op_log_of(r.scenario, r.simulation),
                  imported(r.trace.dump(), {std::nullopt, r.simulation.steps - 1}));
  ASSERT_EQ(c.flags.size(), 1u);
  EXPECT_NE(c.flags[0].find("all_gather layers.*: each measured op moves twice"),
            std::string::npos);
}

TEST(ImportKineto, TheMedianStep) {
  // Steps end at 90, 210 (host range from 100) and 330 us; their kernels begin where the one before
  // has ended: 90 - 0, 210 - 90 = 120, 330 - 210 = 120, and a last one of 10: sorted 10, 90, 120, 120.
  const char* text = R"([
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "pid": 1, "tid": 1, "ts": 0, "dur": 100},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "pid": 1, "tid": 1, "ts": 100, "dur": 100},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#6", "pid": 1, "tid": 1, "ts": 200, "dur": 100},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 1, "tid": 1, "ts": 300, "dur": 100},
    {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#4", "pid": 0, "tid": 7, "ts": 10, "dur": 80},
    {"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 10, "dur": 80, "args": {"stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 110, "dur": 100, "args": {"stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 220, "dur": 110, "args": {"stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 335, "dur": 5, "args": {"stream": 7}}
  ])";
  const OpLog log = imported(text);
  EXPECT_EQ(log.environment.at("step"), "ProfilerStep#4");  // the lower of the two in the middle
  EXPECT_EQ(log.step_time, Time::us(90));
  EXPECT_EQ(log.repeats, 4);
  EXPECT_EQ(log.statistic, "median step");
  EXPECT_EQ(log.ops[0].start, Time::us(10));
  const OpLog fifth = imported(text, {std::nullopt, 5});
  EXPECT_EQ(fifth.step_time, Time::us(120));
  EXPECT_EQ(fifth.ops[0].start, Time::us(20));  // 110 - 90
  EXPECT_EQ(error_of(text, {std::nullopt, 8}),
            "trace.json: error: --step: the trace has no ProfilerStep#8\n"
            "  hint: it has ProfilerStep#4, ProfilerStep#5, ProfilerStep#6, ProfilerStep#7");
}

TEST(ImportKineto, AsOldTracesAreWritten) {
  // As PyTorch 1.13 wrote them: whole microseconds of the epoch, no bytes of collectives, no ranks, no
  // ranges of FSDP; a negative duration, an event of synchronization and a send are no ops.
  const OpLog log = imported(R"json({"schemaVersion": 1, "traceEvents": [
    {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 1669783687929400, "dur": 5, "args": {"correlation": 1}},
    {"ph": "X", "cat": "Kernel", "name": "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "pid": 1, "tid": 14, "ts": 1669783687929439, "dur": 15, "args": {"stream": 14, "correlation": 1}},
    {"ph": "X", "cat": "Kernel", "name": "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "pid": 1, "tid": 14, "ts": 1669783687929460, "dur": 5, "args": {"stream": 14}},
    {"ph": "X", "cat": "Kernel", "name": "ampere_sgemm_128x64_tn", "pid": 1, "tid": 7, "ts": 1669783687929440, "dur": 30, "args": {"stream": 7, "correlation": 2}},
    {"ph": "X", "cat": "Kernel", "name": "bad", "pid": 1, "tid": 7, "ts": 1669783687929480, "dur": -1, "args": {"stream": 7}},
    {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 1, "tid": 7, "ts": 1669783687929480, "dur": 1, "args": {"stream": 7}},
    {"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 1, "tid": 7, "ts": 1669783687929471, "dur": 2, "args": {"stream": 7, "bytes": 4000}},
    {"ph": "X", "cat": "Memset", "name": "Memset (Device)", "pid": 1, "tid": 7, "ts": 1669783687929474, "dur": 1, "args": {"stream": 7, "bytes": 64}},
    {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1669783687929400, "args": {"Device Type": 1, "Total Allocated": 5000, "Total Reserved": 9000}},
    {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1669783687929400, "args": {"Device Type": 0, "Total Allocated": 70000}}
  ]})json");
  ASSERT_EQ(log.ops.size(), 4u);
  EXPECT_EQ(log.ops[0].kind, WorkKind::AllReduce);
  EXPECT_FALSE(log.ops[0].bytes);
  EXPECT_EQ(log.ops[0].start, Time::us(0));
  EXPECT_EQ(log.ops[1].kind, WorkKind::Gemm);
  EXPECT_EQ(log.ops[2].kind, WorkKind::CopyH2D);
  EXPECT_EQ(log.ops[2].bytes, 4000);
  EXPECT_EQ(log.ops[3].kind, WorkKind::Memset);
  EXPECT_EQ(log.step_time, Time::us(36));  // 439 to 475
  EXPECT_EQ(log.peak_allocated, 5000);
  EXPECT_EQ(log.peak_reserved, 9000);
  EXPECT_EQ(log.world, 1);
  ASSERT_EQ(log.warnings.size(), 7u);
  EXPECT_EQ(
      log.warnings[0],
      "left out, as op logs have no such kind: 1 of ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t");
  EXPECT_EQ(log.warnings[1], "left out, for want of a time or stream: 1 of the events");
  EXPECT_EQ(log.warnings[2].substr(0, 27), "4 of 5 device events have n");
}

TEST(ImportKineto, TimesPastADoublesDigits) {
  EXPECT_EQ(nanoseconds("1711000000000000.123"), 1'711'000'000'000'000'123);
  EXPECT_EQ(nanoseconds("4458677009853.4"), 4'458'677'009'853'400);
  EXPECT_EQ(nanoseconds("-0.5"), -500);
  EXPECT_EQ(nanoseconds("7"), 7000);
  EXPECT_EQ(nanoseconds("1.23456"), 1234);
  EXPECT_EQ(nanoseconds("1e3"), 1'000'000);
  EXPECT_FALSE(nanoseconds("99999999999999999999"));
  EXPECT_FALSE(nanoseconds("1e300"));
  EXPECT_FALSE(nanoseconds(""));
}

TEST(ImportKineto, KernelsByTheirNames) {
  const auto kind = [](const char* kernel, const char* collective = "", const char* scope = "") {
    return kernel_kind(kernel, collective, scope);
  };
  EXPECT_EQ(kind("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)"), WorkKind::AllGather);
  EXPECT_EQ(kind("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            WorkKind::ReduceScatter);
  EXPECT_EQ(kind("ncclKernel_Reduce_RING_LL_Sum_float(ncclWorkElem)"), WorkKind::Reduce);
  EXPECT_EQ(kind("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            WorkKind::Broadcast);
  EXPECT_EQ(
      kind("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "", "nccl:all_reduce"),
      WorkKind::AllReduce);
  EXPECT_EQ(kind("ncclDevKernel_Generic_1", "_reduce_scatter_base"), WorkKind::ReduceScatter);
  EXPECT_FALSE(kind("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "all_to_allv"));
  EXPECT_EQ(kind("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT"), WorkKind::Gemm);
  EXPECT_EQ(kind("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"), WorkKind::Gemm);
  EXPECT_EQ(kind("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32"), WorkKind::Gemm);
  EXPECT_EQ(kind("void pytorch_flash::flash_fwd_kernel<cutlass::gemm::x>"), WorkKind::Kernel);
  EXPECT_EQ(kind("triton_poi_fused_add_mul_0"), WorkKind::Kernel);
  EXPECT_EQ(kind("void at::native::vectorized_elementwise_kernel<4>"), WorkKind::Kernel);
}

TEST(ImportKineto, RefusesWhatItCannotRead) {
  EXPECT_EQ(error_of("{\"traceEvents\": [\n{\"ph\": \"X\", \"cat\": \"ker"),
            "trace.json:2:24: error: the trace ends in the middle of its JSON\n"
            "  hint: the profiler was stopped while it wrote, or the file was copied only in part");
  EXPECT_EQ(error_of("{\"traceEvents\": [\n{\"ph\": inf}]}").substr(0, 35),
            "trace.json:2:8: error: not valid JS");
  EXPECT_EQ(error_of("{\"a\": 1}"),
            "trace.json: error: this is no trace of a profiler: it has no traceEvents\n"
            "  hint: torch.profiler's export_chrome_trace or tensorboard_trace_handler writes one");
  EXPECT_EQ(error_of("{\"traceEvents\": []}"),
            "trace.json: error: the trace has no kernels\n"
            "  hint: profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]");
  EXPECT_EQ(error_of(" "), "trace.json: error: the file is empty");
}

class Folder {
 public:
  Folder() {
    path_ = std::filesystem::temp_directory_path() /
            ("shardsim-kineto-" + std::to_string(std::rand()) + std::to_string(::getpid()));
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name, const std::string& text, bool zip = false) const {
    const std::string path = (path_ / name).string();
    if (zip) {
      gzFile out = gzopen(path.c_str(), "wb");
      gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
      gzclose(out);
    } else {
      std::ofstream(path, std::ios::binary) << text;
    }
    return path;
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string trace_of_rank(int rank, int us) {
  return "{\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": " + std::to_string(rank) +
         ", \"world_size\": 4}, \"traceEvents\": [{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": "
         "\"k\", \"ts\": 5, \"dur\": " +
         std::to_string(us) + ", \"args\": {\"stream\": 7}}]}";
}

TEST(ImportKineto, AFolderOfRanks) {
  const Folder folder;
  folder.file("b.pt.trace.json.gz", trace_of_rank(1, 10), true);
  folder.file("a.pt.trace.json", trace_of_rank(2, 20));
  folder.file("notes.txt", "no trace");
  EXPECT_EQ(import_kineto(folder.path(), {}).rank, 1);
  const OpLog second = import_kineto(folder.path(), {2, std::nullopt});
  EXPECT_EQ(second.rank, 2);
  EXPECT_EQ(second.step_time, Time::us(20));
  try {
    import_kineto(folder.path(), {3, std::nullopt});
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "--rank: the folder has no trace of rank 3");
    EXPECT_EQ(e.hint(), "it has those of 1, 2");
  }
  folder.file("c.json", trace_of_rank(2, 20));
  EXPECT_THROW(import_kineto(folder.path(), {}), Error);
}

TEST(ReadGzip, CutOffOrDamagedIsAnError) {
  const Folder folder;
  std::string text = trace_of_rank(0, 3);
  for (int i = 0; i < 2000; ++i) text += std::to_string(i * 7919 % 1000);
  const std::string whole = folder.file("whole.gz", text, true);
  EXPECT_EQ(read_maybe_gzip(whole, 1 << 20), text);
  std::ifstream in(whole, std::ios::binary);
  std::string packed((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto error = [&](const std::string& path, int64_t largest = 1 << 20) {
    try {
      read_maybe_gzip(path, largest);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(error(folder.file("cut.gz", packed.substr(0, packed.size() / 2))).find("cut off"),
            std::string::npos);
  packed[packed.size() / 2] = static_cast<char>(~packed[packed.size() / 2]);
  EXPECT_NE(error(folder.file("bad.gz", packed)).find("damaged"), std::string::npos);
  EXPECT_EQ(error(whole, 100), "the text is larger than 0 MiB");
  EXPECT_EQ(error(folder.path()), "this is a directory, not a file");
  EXPECT_EQ(error(folder.path() + "/none"), "there is no such file");
}

// 80 MiB of zeros are some 80 KiB of gzip data; no trace repeats itself so.
TEST(ReadGzip, ABombIsAnError) {
  const Folder folder;
  const std::string bomb = folder.file("bomb.gz", std::string(80 << 20, '0'), true);
  try {
    read_maybe_gzip(bomb, int64_t{4} << 30);
    FAIL() << "read";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("this is no trace"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace shardsim
