#include "sim/config/nccl_tests.h"

#include <gtest/gtest.h>

#include "sim/base/error.h"

namespace shardsim {
namespace {

// As NVIDIA/nccl-tests 2.13 prints, shortened.
constexpr const char* kText =
    R"(# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid   1234 on      node1 device  0 [0x19] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1234 on      node2 device  1 [0x3b] NVIDIA H100 80GB HBM3
node1:1234:1234 [0] NCCL INFO Bootstrap : Using eth0
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float    none      -1     0.15    0.00    0.00      0     0.15    0.00    0.00      0
     1048576        131072     float    none      -1    20.00   52.43   26.21      0    21.00   49.93   24.97      0
     4194304        524288     float    none      -1    40.00  104.86   52.43    N/A    41.00  102.30   51.15    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 39.2
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid   1234 on      node1 device  0 [0000:19:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1234 on      node1 device  1 [0000:3b:00] NVIDIA H100 80GB HBM3
     1048576        262144     float     sum      -1    25.00   41.94   41.94      0    26.00   40.33   40.33      0
)";

TEST(NcclTests, Text) {
  const NcclTable t = parse_nccl_tests(kText, "sweep.txt");
  ASSERT_EQ(t.sweeps.size(), 2u);
  EXPECT_EQ(t.contents(), "all_gather over 2 ranks on 2 nodes, all_reduce over 2 ranks");
  ASSERT_EQ(t.sweeps[0].points.size(), 2u);
  EXPECT_EQ(t.sweeps[0].points[1].bytes, 4'194'304);
  EXPECT_EQ(t.sweeps[0].points[1].us, 40);
  // Half way in logarithms: sqrt(20 x 40).
  EXPECT_NEAR(t.us("all_gather", 2, 2, 2'097'152).value(), 28.2843, 1e-4);
  EXPECT_EQ(t.us("all_gather", 2, 1, 2'097'152), std::nullopt);
  EXPECT_EQ(t.us("all_reduce", 2, 1, 1'048'576), 25);
}

TEST(NcclTests, TheCollectiveByItsColumns) {
  const auto kind = [](const std::string& line) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += "#  Rank  0 Pid 1 on host device 0 [0x19] H100\n";
    return parse_nccl_tests(text + line, "x").sweeps.at(0).collective;
  };
  EXPECT_EQ(kind("67108864 16777216 float sum -1 200 335.5 293.6 0 200 335.5 293.6 0"),
            "reduce_scatter");
  EXPECT_EQ(kind("67108864 16777216 float sum -1 300 223.7 391.5 0 300 223.7 391.5 0"),
            "all_reduce");
  EXPECT_EQ(kind("67108864 16777216 float sum 0 300 223.7 223.7 0 300 223.7 223.7 0"), "reduce");
  EXPECT_EQ(kind("67108864 16777216 float none 0 300 223.7 223.7 0 300 223.7 223.7 0"),
            "broadcast");
  // Versions of 2019 print no root, and a timestamp may follow.
  EXPECT_EQ(
      kind("67108864 16777216 float sum 300 223.7 391.5 0 300 223.7 391.5 0 2026-01-28 14:50:17"),
      "all_reduce");
}

TEST(NcclTests, Json) {
  const char* text = R"({"version": 3, "args": ["./build/reduce_scatter_perf", "-J", "out.json"],
"config": {"nthreads": 1, "devices": [{"rank": 0, "hostname": "a"}, {"rank": 1, "hostname": "b"}]},
"results": [
 {"size": 1048576, "count": 131072, "type": "float", "redop": "sum", "root": "    -1",
  "out_of_place": {"time": 20.5, "alg_bw": 51.0, "bus_bw": 25.5, "nwrong": 0.0},
  "in_place": {"time": 21.0, "alg_bw": 50.0, "bus_bw": 25.0, "nwrong": 0.0}},
 {"size": 2097152, "count": 262144, "type": "float", "redop": "sum", "root": "    -1",
  "out_of_place": null, "in_place": {"time": 30.0, "alg_bw": 70.0, "bus_bw": 35.0, "nwrong": null}}]})";
  const NcclTable t = parse_nccl_tests(text, "out.json");
  ASSERT_EQ(t.sweeps.size(), 1u);
  EXPECT_EQ(t.contents(), "reduce_scatter over 2 ranks on 2 nodes");
  EXPECT_EQ(t.us("reduce_scatter", 2, 2, 1 << 20), 20.5);
  EXPECT_EQ(t.us("reduce_scatter", 2, 2, 2 << 20), 30.0);
}

// nccl-tests' writeDeviceReport (src/util.cu) parses one line of each process into config.devices,
// however many GPUs it drives: one process of -g 8 is 8 ranks, two processes of -t 2 -g 2 on two hosts 8.
TEST(NcclTests, JsonListsProcesses) {
  const auto contents = [](const std::string& config) {
    return parse_nccl_tests(
               R"({"args": ["all_gather_perf"], "config": )" + config +
                   R"(, "results": [{"size": 1048576, "redop": "none", "root": "-1", "out_of_place":
                      {"time": 20, "alg_bw": 52, "bus_bw": 45}}]})",
               "out.json")
        .contents();
  };
  EXPECT_EQ(contents(R"({"nthreads": 1, "ngpus": 8, "devices": [{"rank": 0, "hostname": "a"}]})"),
            "all_gather over 8 ranks");
  EXPECT_EQ(contents(R"({"nthreads": 2, "ngpus": 2, "devices": [{"rank": 0, "hostname": "a"},
                     {"rank": 4, "hostname": "b"}]})"),
            "all_gather over 8 ranks on 2 nodes");
}

void expect_error(const std::string& text, const std::string& what, int line) {
  try {
    parse_nccl_tests(text, "sweep.txt");
    FAIL() << "no error: " << what;
  } catch (const Error& e) {
    EXPECT_EQ(e.what(), what);
    EXPECT_EQ(e.place().line, line);
    EXPECT_EQ(e.place().file, "sweep.txt");
  }
}

TEST(NcclTests, Mistakes) {
  const std::string rank = "#  Rank  0 Pid 1 on host device 0 [0x19] H100\n";
  expect_error("", "there are no results of nccl-tests", 1);
  expect_error("\n1024 256 float sum -1 20 1 1 0\n", "numbers before any line '# Rank 0 ...'", 2);
  expect_error(rank + "1024 256 float sum\n",
               "expected size, count, type, redop, root and times, got 4 columns", 2);
  expect_error(rank + "1024 256 float sum -1 20 fast 1 0\n",
               "expected time, algbw and busbw, got '20 fast 1'", 2);
  expect_error(rank + "1024 256 float sum -1 0 1 1 0\n", "expected a time above 0, got '0'", 2);
  expect_error("# Collective test starting: alltoall_perf\n",
               "alltoall_perf is not a collective that is priced", 1);
}

// User case UC115 (nccl-tests issue 123): one A100 node, 2 to 5 GPUs; the least-squares line is 31.34 us
// at 8, where 33.7 were measured. 16 MiB more than the floor: 160 us at 5 ranks are 160 (7/8)/(4/5) = 175
// us at 8.
TEST(NcclTests, RanksThatWereNotSwept) {
  NcclTable table;
  const double us[] = {10, 13.76, 16.88, 20.8};
  for (int64_t n = 2; n <= 5; ++n)
    table.sweeps.push_back({"all_reduce",
                            n,
                            1,
                            {{8, us[n - 2]},
                             {128, us[n - 2]},
                             {16 << 20, us[n - 2] + 32.0 * static_cast<double>(n)}}});
  EXPECT_NEAR(table.us("all_reduce", 8, 1, 128).value(), 31.34, 0.005);
  EXPECT_NEAR(table.us("all_reduce", 8, 1, 0).value(), 31.34, 0.005);
  EXPECT_NEAR(table.us("all_reduce", 8, 1, 16 << 20).value(), 31.34 + 175, 0.005);
  EXPECT_EQ(table.us("all_reduce", 3, 1, 8).value(), 13.76);
  EXPECT_FALSE(table.us("all_reduce", 16, 2, 8));
  EXPECT_FALSE(table.us("all_gather", 8, 1, 8));
  table.sweeps.resize(2);
  EXPECT_FALSE(table.us("all_reduce", 8, 1, 8));
}

}  // namespace
}  // namespace shardsim
