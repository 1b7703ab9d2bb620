#include "sim/cluster/catalogue.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

namespace shardsim {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

// The YAML is the table for people. Where it differs, the right text is left in the working folder.
void expect_file(const std::string& name, const std::string& text) {
  const std::string path = std::string(SHARDSIM_SOURCE_DIR) + "/scenarios/clusters/" + name;
  if (text_of(path) == text) return;
  std::ofstream(name) << text;
  ADD_FAILURE() << path
                << " is not what sim/cluster/catalogue.cpp says; the right text was written "
                << "to " << name << " in the working folder";
}

TEST(Catalogue, YamlEqualsTheTable) {
  expect_file("gpus.yaml", gpus_yaml());
  expect_file("systems.yaml", systems_yaml());
}

void expect_sourced(const Figure& f, std::string_view of) {
  static const std::set<std::string_view> kBases{"published", "measured", "fitted", "assumed"};
  EXPECT_FALSE(f.source.empty()) << of;
  EXPECT_EQ(kBases.count(f.basis), 1u) << of;
  EXPECT_GE(f.value, 0) << of;
}

TEST(Catalogue, EveryFigureHasASourceAndABasis) {
  std::set<std::string_view> names;
  for (const GpuEntry& e : gpu_catalogue()) {
    EXPECT_TRUE(names.insert(e.name).second) << e.name;
    for (const Figure& f :
         {e.sms, e.compute_capability, e.fp32_tflops, e.tf32_tflops, e.bf16_tflops, e.fp16_tflops,
          e.memory_gbps, e.memory_gib, e.context_mib, e.pcie_gbps})
      expect_sourced(f, e.name);
    EXPECT_GT(e.fp32_tflops.value, 0) << e.name;
    EXPECT_GT(e.memory_gbps.value, 0) << e.name;
    EXPECT_GT(e.pcie_gbps.value, 0) << e.name;
  }
  for (const SystemEntry& e : system_catalogue()) {
    EXPECT_TRUE(names.insert(e.name).second) << e.name;
    EXPECT_TRUE(find_gpu(e.gpu).has_value()) << e.name;
    for (const LinkEntry& l : {e.intra, e.inter, e.rail}) {
      expect_sourced(l.alpha_us, e.name);
      expect_sourced(l.bus_gbps, e.name);
    }
    EXPECT_GT(e.intra.bus_gbps.value, 0) << e.name;
    // A rail is a part of the node's network.
    EXPECT_LE(e.rail.bus_gbps.value, e.inter.bus_gbps.value) << e.name;
  }
}

TEST(Catalogue, FindsGpus) {
  const Gpu h100 = find_gpu("h100-sxm5-80gb").value();
  EXPECT_EQ(h100.name, "h100-sxm5-80gb");
  EXPECT_EQ(h100.sms, 132);
  EXPECT_EQ(h100.compute_capability, 90);
  EXPECT_EQ(h100.bf16_tflops, 989);
  EXPECT_EQ(h100.memory_gbps, 3350);
  EXPECT_EQ(h100.context_bytes, 524'288'000);
  // 79.10 GiB = 79.10 * 2^30, to the nearest byte.
  EXPECT_EQ(h100.memory_bytes, 84'932'978'278);
  // 0.985 * 141 GiB = 138.885 GiB.
  EXPECT_NEAR(static_cast<double>(find_gpu("h200-sxm-141gb")->memory_bytes) / kGiB, 138.885, 1e-6);
  EXPECT_FALSE(find_gpu("h100"));
  EXPECT_FALSE(find_gpu(""));
}

TEST(Catalogue, FindsSystems) {
  const Cluster c = find_system("dgx-h100").value();
  EXPECT_EQ(c.world(), 8);
  EXPECT_EQ(c.gpu.name, "h100-sxm5-80gb");
  EXPECT_EQ(c.intra.alpha_us, 5.0);
  EXPECT_EQ(c.intra.bus_gbps, 354);
  EXPECT_EQ(c.inter.alpha_us, 7.6);
  EXPECT_EQ(c.inter.bus_gbps, 318);
  EXPECT_EQ(c.rail.bus_gbps, 47.5);
  // 8 x 200 Gb/s = 200 GB/s, 0.9 of it.
  EXPECT_EQ(find_system("gcp-a3-mega")->inter.bus_gbps, 180);
  for (const char* name : {"dgx-a100", "aws-p5.48xlarge", "aws-p4d.24xlarge", "hgx-h200",
                           "hgx-b200", "gcp-a3-mega", "gb200-nvl72"})
    EXPECT_TRUE(find_system(name)) << name;
  EXPECT_FALSE(find_system("dgx"));
  EXPECT_NE(system_names().find("dgx-h100, "), std::string::npos);
  EXPECT_NE(gpu_names().find("a100-sxm4-80gb, "), std::string::npos);
}

}  // namespace
}  // namespace shardsim
