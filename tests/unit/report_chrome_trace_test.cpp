// The rules are those of HolisticTraceAnalysis and Perfetto, listed in sim/report/chrome_trace.h;
// analysis/check_trace.py checks the file that the last test leaves, with Python alone.
#include "sim/report/chrome_trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "sim/cluster/catalogue.h"
#include "tests/unit/hand_schedule.h"

namespace shardsim {
namespace {

using nlohmann::json;
using test::HandSchedule;

// Two steps, each: copy-in and gather of a group, its copy-out, a kernel, a product, a reduction.
HandSchedule program() {
  HandSchedule h(4);
  h.schedule.streams = {"compute", "all-gather copy-in", "all-gather", "reduce-scatter"};
  const uint32_t comm = h.comm(4, "shard", 2);
  uint32_t e[4];
  for (uint32_t& x : e) x = h.event();
  const uint32_t b = h.buffer(5000);
  h.mark("after_init", -1, false);
  for (int step = 0; step < 2; ++step) {
    const std::string name = "step" + std::to_string(step) + ".";
    h.mark(name + "begin", step, true);
    Work& in = h.kernel(1, 5, "foreach_copy");
    in.kernel = KernelClass::foreach_op;
    in.group = {0};
    h.record(1, e[0]);
    h.wait(2, e[0]);
    Work& gather = h.collective(2, WorkKind::AllGather, 40, comm, 0);
    gather.bytes = 4000, gather.dtype = DType::bf16;
    h.record(2, e[1]);
    h.wait(0, e[1]);
    h.alloc(b);
    h.copy(0, 3).bytes = 75'000;
    Work& out = h.kernel(0, 6, "copy_out");
    out.kernel = KernelClass::copy_out;
    out.group = {0};
    h.kernel(0, 20, "rms_norm");
    Work& g = h.launch(0, WorkKind::Gemm, 50, "linear");
    g.m = 8, g.n = 16, g.k = 32, g.dtype = DType::bf16;
    h.mark(name + "0.after_forward", step, false);
    h.free(b);
    Work& cat = h.kernel(0, 4, "chunk_cat");
    cat.kernel = KernelClass::chunk_cat;
    cat.group = {0};
    h.record(0, e[2]);
    h.wait(3, e[2]);
    Work& scatter = h.collective(3, WorkKind::ReduceScatter, 30, comm, 0);
    scatter.bytes = 8000;
    h.record(3, e[3]);
    h.host_wait(e[3]);
    h.launch(0, WorkKind::Memset, 2, "").bytes = 64;
    h.mark(name + "after_optimizer", step, false);
  }
  h.done();
  return h;
}

std::string text_of(HandSchedule& h, Time host_call) {
  ChromeTraceOptions o;
  o.rank = 3;
  o.world = 8;
  o.gpu = find_gpu("h100-sxm5-80gb").value();
  o.host = HostCosts::every(host_call);
  const std::vector<Time> launch(h.schedule.works.size(), host_call);
  o.launch = launch;
  std::ostringstream out;
  const std::vector<std::string> groups{"layers.0"};
  write_chrome_trace(out, h.schedule, h.play(host_call), groups, o);
  return out.str();
}

TEST(ChromeTrace, HeaderAsKinetoWritesIt) {
  HandSchedule h = program();
  const std::string text = text_of(h, Time::us(2));
  const json j = json::parse(text);
  EXPECT_EQ(j["schemaVersion"], 1);
  EXPECT_EQ(j["displayTimeUnit"], "ms");
  EXPECT_EQ(j["deviceProperties"][0]["numSms"], 132);
  EXPECT_EQ(j["deviceProperties"][0]["computeMajor"], 9);
  EXPECT_EQ(j["distributedInfo"]["rank"], 3);
  EXPECT_EQ(j["distributedInfo"]["world_size"], 8);
  // Rank 3 with stride 2: 3 / 2 mod 4 is place 1, so the group is 1, 3, 5, 7.
  EXPECT_EQ(j["distributedInfo"]["pg_config"][0]["ranks"], json({1, 3, 5, 7}));
  EXPECT_NE(text.find("\"rank\": 3"), std::string::npos);
  EXPECT_LT(text.find("distributedInfo"), text.find("traceEvents"));
}

TEST(ChromeTrace, StepsArePlayedStepsAndOneMore) {
  HandSchedule h = program();
  const json j = json::parse(text_of(h, Time::us(2)));
  std::vector<std::string> steps;
  double last_step = 0, last_host = 0;
  for (const json& e : j["traceEvents"]) {
    if (e["name"].get<std::string>().rfind("ProfilerStep", 0) == 0) {
      steps.push_back(e["name"]);
      last_step = e["ts"];
    } else if (e.value("cat", "") == "cuda_runtime") {
      last_host = std::max(last_host, e["ts"].get<double>());
    }
  }
  EXPECT_EQ(steps,
            (std::vector<std::string>{"ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"}));
  EXPECT_GT(last_step, last_host);
}

TEST(ChromeTrace, EveryDeviceEventHasOneLaunch) {
  HandSchedule h = program();
  const json j = json::parse(text_of(h, Time::us(2)));
  std::map<int, int> launches, arrows_out, arrows_in;
  std::map<int, json> kernels;
  size_t index = 0, first_launch = 0;
  for (const json& e : j["traceEvents"]) {
    const std::string cat = e.value("cat", ""), ph = e["ph"];
    const std::string name = e["name"];
    if (cat == "cuda_runtime" && (name.rfind("cudaLaunch", 0) == 0 || name == "cudaMemcpyAsync" ||
                                  name == "cudaMemsetAsync")) {
      ++launches[e["args"]["correlation"].get<int>()];
      if (first_launch == 0) first_launch = index;
    }
    if (cat == "kernel" || cat == "gpu_memcpy" || cat == "gpu_memset") {
      EXPECT_TRUE(kernels.emplace(e["args"]["correlation"].get<int>(), e).second);
      EXPECT_GE(e["tid"].get<int>(), 1);
      EXPECT_EQ(e["tid"], e["args"]["stream"]);
    }
    if (ph == "s") ++arrows_out[e["id"].get<int>()];
    if (ph == "f") ++arrows_in[e["id"].get<int>()];
    ++index;
  }
  EXPECT_GT(first_launch, 0u);
  EXPECT_EQ(kernels.size(), 18u);  // nine launches a step
  for (const auto& [correlation, e] : kernels) {
    EXPECT_EQ(launches[correlation], 1);
    EXPECT_EQ(arrows_out[correlation], 1);
    EXPECT_EQ(arrows_in[correlation], 1);
  }
}

json find(const json& j, const std::string& cat, const std::string& name) {
  for (const json& e : j["traceEvents"])
    if (e.value("cat", "") == cat && e["name"] == name) return e;
  return {};
}

TEST(ChromeTrace, Events) {
  HandSchedule h = program();
  const json j = json::parse(text_of(h, Time::us(2)));
  const json gather =
      find(j, "kernel", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  ASSERT_FALSE(gather.is_null());
  EXPECT_EQ(gather["args"]["Collective name"], "_allgather_base");
  EXPECT_EQ(gather["args"]["In msg nelems"], 500);  // 4000 bytes of bf16 over 4 ranks
  EXPECT_EQ(gather["args"]["Out msg nelems"], 2000);
  EXPECT_EQ(gather["args"]["Group size"], 4);
  EXPECT_EQ(gather["args"]["dtype"], "BFloat16");
  EXPECT_EQ(gather["args"]["Process Group Ranks"], "[1, 3, 5, 7]");
  EXPECT_EQ(gather["tid"], 20);
  EXPECT_EQ(gather["dur"], 40.0);
  const json scatter = find(
      j, "kernel", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  ASSERT_FALSE(scatter.is_null());
  EXPECT_EQ(scatter["args"]["In msg nelems"], 2000);
  EXPECT_EQ(scatter["args"]["Out msg nelems"], 500);
  EXPECT_EQ(find(j, "kernel", "rms_norm")["tid"], 7);
  EXPECT_EQ(find(j, "kernel", "nvjet_bf16_8x16x32")["dur"], 50.0);
  // 75,000 bytes in 3 us are 25 GB/s.
  const json copy = find(j, "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)");
  EXPECT_EQ(copy["args"]["memory bandwidth (GB/s)"], 25.0);
  EXPECT_FALSE(find(j, "gpu_memset", "Memset (Device)").is_null());
  // Copy-in issued at 4 (after two marks), record at 6, wait at 8, gather at 10 to 12.
  const json scope = find(j, "cpu_op", "FSDP::all_gather (layers.0)");
  EXPECT_EQ(scope["ts"], 4.0);
  EXPECT_EQ(scope["dur"], 8.0);
  EXPECT_FALSE(find(j, "cpu_op", "FSDP::all_gather_copy_out (layers.0)").is_null());
  EXPECT_FALSE(find(j, "cpu_op", "FSDP::post_backward_reduce (layers.0)").is_null());
  EXPECT_FALSE(find(j, "user_annotation", "nccl:_all_gather_base").is_null());
  EXPECT_FALSE(find(j, "user_annotation", "forward").is_null());
  EXPECT_FALSE(find(j, "cuda_runtime", "cudaEventSynchronize").is_null());
  // The gather's stream waits for the copy-in's: streams 2 and 1 are 20 and 16.
  const json wait = find(j, "cuda_sync", "Stream Wait Event");
  EXPECT_EQ(wait["args"]["wait_on_stream"], 16);
  double peak = 0;
  for (const json& e : j["traceEvents"])
    if (e["ph"] == "C") peak = std::max(peak, e["args"]["allocated bytes"].get<double>());
  EXPECT_EQ(peak, 5120);
}

// Of one row, slices nest or follow; on a device stream they follow, but for waits of no length.
void expect_slices_nest(const json& j) {
  std::map<std::pair<int, int>, std::vector<std::pair<int64_t, int64_t>>> rows;
  for (const json& e : j["traceEvents"]) {
    if (e["ph"] != "X") continue;
    const auto from = std::llround(e["ts"].get<double>() * 1e3);
    const auto length = std::llround(e["dur"].get<double>() * 1e3);
    EXPECT_GE(length, 0) << e;
    rows[{e["pid"].get<int>(), e["tid"].get<int>()}].emplace_back(from, from + length);
  }
  for (auto& [row, slices] : rows) {
    std::stable_sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<int64_t> open;
    for (const auto& [from, to] : slices) {
      while (!open.empty() && open.back() <= from) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(to, open.back()) << row.first << " " << row.second << " at " << from;
        if (row.first == 0 && to > from) {
          EXPECT_GE(from, open.back()) << "device slices follow";
        }
      }
      open.push_back(to);
    }
  }
}

TEST(ChromeTrace, SlicesNest) {
  HandSchedule h = program();
  expect_slices_nest(json::parse(text_of(h, Time::us(2))));
  expect_slices_nest(json::parse(text_of(h, {})));
  expect_slices_nest(json::parse(text_of(h, Time{333})));
  expect_slices_nest(json::parse(text_of(h, Time::us(500))));
}

TEST(ChromeTrace, Ranks) {
  EXPECT_EQ(ranks_text({4, 1, ""}, 6), "[4, 5, 6, 7]");
  EXPECT_EQ(ranks_text({2, 8, ""}, 11), "[3, 11]");
  const std::string many = ranks_text({64, 1, ""}, 0);
  EXPECT_EQ(many.substr(0, 9), "[0, 1, 2,");
  EXPECT_NE(many.find("28, ..., 63]"), std::string::npos);
}

// The file for analysis/check_trace.py.
TEST(ChromeTrace, LeavesAFile) {
  HandSchedule h = program();
  std::ofstream("rank3.pt.trace.json") << text_of(h, Time::us(2));
}

}  // namespace
}  // namespace shardsim
