// The host's own work: published times of optimizers on CPUs, and the worked numbers of the header.
#include "sim/cost/host_work.h"

#include <gtest/gtest.h>

#include "sim/cluster/catalogue.h"

namespace shardsim {
namespace {

HostWork adam(int64_t elements, int accesses, int size, int fresh = 0) {
  HostWork w;
  w.elements = elements;
  w.accesses = accesses * elements;
  w.bytes = accesses * elements * size;
  w.fresh = fresh * elements * size;
  return w;
}

double seconds(const Cluster& c, const HostWork& w) {
  return host_work_us(host_rates(c), Calibration{}, w) / 1e6;
}

constexpr int64_t kBillion = 1'000'000'000;

// One thread 21e9 / 4.9e9 s and 7e9 / 4.9e9 s; with 26 threads the memory's 30.72 GB/s of a rank:
// 84 / 30.72 and 28 / 30.72 s. In bf16 a thread takes as long, memory half as long.
TEST(HostWork, WorkedNumbers) {
  Cluster c = *find_system("dgx-h100");
  EXPECT_NEAR(seconds(c, adam(kBillion, 21, 4)), 4.2857, 1e-4);
  EXPECT_NEAR(seconds(c, adam(kBillion, 7, 4)), 1.4286, 1e-4);
  EXPECT_NEAR(seconds(c, adam(kBillion, 21, 2)), 4.2857, 1e-4);
  c.host.threads = 26;
  EXPECT_NEAR(seconds(c, adam(kBillion, 21, 4)), 2.7344, 1e-4);
  EXPECT_NEAR(seconds(c, adam(kBillion, 7, 4)), .9115, 1e-4);
  EXPECT_NEAR(seconds(c, adam(kBillion, 21, 2)), 1.3672, 1e-4);
  // Nine operators of 14.6 us.
  HostWork w = adam(1000, 21, 4);
  w.operators = 9;
  EXPECT_NEAR(seconds(c, w), 131.4e-6 + 84e3 / 30.72e9, 1e-8);
}

// A core of a Xeon of 2023 with PyTorch 2.15, ns an element: AdamW's loop, fused, SGD, SGD with
// momentum, a product; and the loop on tensors whose temporaries are new pages.
TEST(HostWork, MeasuredOnOneCore) {
  Cluster c = *find_system("dgx-h100");
  c.host.threads = 1;
  const struct {
    int accesses, fresh;
    double ns, tolerance;
  } rows[] = {{21, 0, 4.284, .02}, {7, 0, 1.237, .16}, {3, 0, .688, .12},
              {8, 0, 1.618, .02},  {2, 0, .414, .02},  {21, 2, 8.955, .02}};
  for (const auto& r : rows)
    EXPECT_NEAR(seconds(c, adam(kBillion, r.accesses, 4, r.fresh)), r.ns, r.tolerance * r.ns)
        << r.accesses;
}

// ZeRO-Offload's table of Adam on the 48 cores of a DGX-2, 256 GB/s, one process: DeepSpeed's in one
// pass, torch's operator by operator on tensors of gigabytes.
TEST(HostWork, ZeroOffloadsTable) {
  Cluster c = *find_system("dgx-2");
  c.gpus_per_node = 1;
  c.host = {256, 48};
  const struct {
    int64_t billions;
    double cpu_adam, torch;
  } rows[] = {{1, .22, 1.39}, {2, .51, 2.75}, {4, 1.03, 5.71}, {8, 2.41, 11.93}, {10, 2.57, 14.76}};
  for (const auto& r : rows) {
    const int64_t n = r.billions * kBillion;
    EXPECT_NEAR(seconds(c, adam(n, 7, 4)) / r.cpu_adam, 1, .25) << r.billions;
    EXPECT_NEAR(seconds(c, adam(n, 21, 4, 2)) / r.torch, 1, .10) << r.billions;
  }
}

// Not stated: by the GPU's generation, and one thread where several ranks are started on a node.
TEST(HostWork, RatesThatAreNotStated) {
  EXPECT_EQ(host_rates(*find_system("dgx-a100")).memory_gbps, 51.2);
  EXPECT_EQ(host_rates(*find_system("hgx-b200")).memory_gbps, 89.6);
  Cluster c = *find_system("dgx-h100");
  EXPECT_EQ(host_rates(c).threads, 1);
  c.host.memory_gbps = 400;
  EXPECT_EQ(host_rates(c).memory_gbps, 50);
  c.gpus_per_node = 1;
  EXPECT_EQ(host_rates(c).threads, 16);
}

}  // namespace
}  // namespace shardsim
