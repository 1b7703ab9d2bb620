#include "sim/cluster/catalogue.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace shardsim {
namespace {

struct Source {
  std::string_view text, date, basis;
};

constexpr Figure from(double value, const Source& s) { return {value, s.text, s.date, s.basis}; }

constexpr Source kMlEngineering{
    "github stas00/ml-engineering compute/accelerator and network README (vendor datasheets)", "",
    "published"};
constexpr Source kMemory{"vendor specification, from memory, not verified", "", "assumed"};
constexpr Source kReportedRule{"0.985 x nominal GB, read as GiB", "", "assumed"};
constexpr Source kContext{"no published figure for this GPU; others report 274 to 636 MiB", "",
                          "assumed"};

constexpr Source kA100Capacity80{"out-of-memory message in levihsu/OOTDiffusion issue 235",
                                 "2025-03-17", "measured"};
constexpr Source kA100Capacity40{"out-of-memory message in TianheWu/CoSeR issue 10", "2025-01-10",
                                 "measured"};
constexpr Source kH100Capacity80{"73.32 GiB printed as 92.70 % in pytorch/torchtitan issue 1789",
                                 "2025-10-02", "measured"};
constexpr Source kRtx4090Capacity{"out-of-memory message in ali-vilab/VGen issue 104", "2024-04-02",
                                  "measured"};
constexpr Source kTorchtitanH100{"github pytorch/torchtitan benchmarks (96 GB HBM2e, 500 W)",
                                 "2024-12", "published"};

constexpr Source kNvlinks{"vendor datasheet", "", "published"};

struct GpuRow {
  std::string_view name;
  const Source& base;
  double sms = 0, compute_capability = 0;
  double fp32 = 0, tf32 = 0, bf16 = 0, fp16 = 0;
  double memory_gbps = 0;
  Figure memory_gib{};
  double pcie_gbps = 0;
  std::string_view note = "";
  double nvlinks = 0;
};

constexpr GpuEntry entry(const GpuRow& r) {
  return {r.name,
          r.note,
          from(r.sms, r.base),
          from(r.compute_capability, r.base),
          from(r.fp32, r.base),
          from(r.tf32, r.base),
          from(r.bf16, r.base),
          from(r.fp16, r.base),
          from(r.memory_gbps, r.base),
          r.memory_gib,
          from(500, kContext),
          from(r.pcie_gbps, r.base),
          from(r.nvlinks, kNvlinks)};
}

constexpr Figure reported(double nominal) { return from(0.985 * nominal, kReportedRule); }

constexpr GpuEntry kGpus[] = {
    entry({"v100-sxm2-16gb", kMemory, 80, 70, 15.7, 0, 0, 125, 900, reported(16), 15.75,
           "no bf16 tensor cores", 6}),
    entry({"v100-sxm2-32gb", kMemory, 80, 70, 15.7, 0, 0, 125, 900, reported(32), 15.75,
           "no bf16 tensor cores", 6}),
    entry({"a100-sxm4-40gb", kMlEngineering, 108, 80, 19.5, 156, 312, 312, 1555,
           from(39.50, kA100Capacity40), 31.5, "memory rate is the vendor's, from memory", 12}),
    entry({"a100-sxm4-80gb", kMlEngineering, 108, 80, 19.5, 156, 312, 312, 2039,
           from(79.25, kA100Capacity80), 31.5, "", 12}),
    entry({"a100-pcie-80gb", kMlEngineering, 108, 80, 19.5, 156, 312, 312, 1935,
           from(79.25, kA100Capacity80), 31.5, "NVLink only as a bridge of two"}),
    entry({"h100-sxm5-80gb", kMlEngineering, 132, 90, 67, 494.5, 989, 989, 3350,
           from(79.10, kH100Capacity80), 63, "", 18}),
    entry({"h100-sxm5-96gb", kTorchtitanH100, 132, 90, 67, 494.5, 989, 989, 2400, reported(96), 63,
           "the 500 W part of torchtitan's tables", 18}),
    entry({"h100-pcie-80gb", kMlEngineering, 114, 90, 51, 378, 756, 756, 2000,
           from(79.10, kH100Capacity80), 63, "NVLink only as a bridge of two"}),
    entry({"h200-sxm-141gb", kMlEngineering, 132, 90, 67, 494.5, 989, 989, 4800, reported(141), 63,
           "", 18}),
    entry({"gh200-96gb", kMlEngineering, 132, 90, 67, 494.5, 989, 989, 4000, reported(96), 63, "",
           18}),
    entry({"gh200-141gb", kMlEngineering, 132, 90, 67, 494.5, 989, 989, 4800, reported(141), 63, "",
           18}),
    entry({"b200-sxm", kMlEngineering, 148, 100, 80, 1125, 2250, 2250, 8000, reported(180), 63, "",
           18}),
    entry({"b300-sxm", kMlEngineering, 148, 103, 80, 1125, 2250, 2250, 8000, reported(288), 121,
           "152 SMs are seen too", 18}),
    entry({"gb200", kMlEngineering, 152, 100, 80, 1250, 2500, 2500, 8000, reported(186), 63,
           "host over NVLink-C2C; pcie_gbps stands for it and is low", 18}),
    entry({"l40s", kMlEngineering, 142, 89, 91.6, 183, 362, 362, 864, reported(48), 31.5}),
    entry({"l4", kMemory, 58, 89, 30.3, 60, 121, 121, 300, reported(24), 31.5}),
    entry({"a10g", kMemory, 80, 86, 35, 35, 70, 70, 600, reported(24), 31.5}),
    entry({"a40", kMemory, 84, 86, 37.4, 74.8, 149.7, 149.7, 696, reported(48), 31.5}),
    entry({"rtx4090", kMemory, 128, 89, 82.6, 82.6, 165.2, 165.2, 1008,
           from(23.64, kRtx4090Capacity), 31.5, "330 fp16 TFLOPS with fp16 accumulation"}),
    entry({"mi300x", kMlEngineering, 304, 0, 163.4, 653.7, 1307, 1307, 5300, reported(192), 63,
           "gfx942; for reference, no cost constants of its own"}),
};

constexpr Source kSystems{"vendor's instance or system page (github stas00/ml-engineering network)",
                          "", "published"};
constexpr Source kHopperNode{
    "ring, messages of 32 MiB and more, 8xH100: github xxrjun/nccl-tests-cluster and others", "",
    "fitted"};
constexpr Source kA100NodeBus{"all-reduce asymptote, github Azure/AI-benchmarking-guide ND_A100_v4",
                              "", "measured"};
constexpr Source kA100NodeAlpha{"from memory; only all-reduce of 32 MiB and more is measured", "",
                                "assumed"};
constexpr Source kB200NodeBus{"ring, github stas00/ml-engineering network/README.md", "",
                              "measured"};
constexpr Source kAsHopper{"as 8xH100", "", "assumed"};
constexpr Source kNodeRule{"0.95 x NCCL's total", "", "assumed"};
constexpr Source kPcieBus{
    "NCCL's rate through an Intel socket link (src/graph/topo.h); no sweep found", "", "assumed"};
constexpr Source kPcieAlpha{"hop latency of ring Simple over PCIe, NCCL src/graph/tuning.cc", "",
                            "published"};
constexpr Source kNdr{"10 nodes of 8 NICs: github xxrjun/nccl-tests-cluster", "", "fitted"};
constexpr Source kNdrRail{"10 nodes, one GPU a node: github xxrjun/nccl-tests-cluster", "",
                          "fitted"};
constexpr Source kAsNdr{"as 8x400 Gb/s InfiniBand (dgx-h100)", "", "assumed"};
constexpr Source kHdr{"2 nodes: github argonne-lcf/alcf-nccl-tests", "", "fitted"};
constexpr Source kP5{"2 to 32 nodes: github crazyguitar/aws-gpu-communication-benchmark", "",
                     "fitted"};
constexpr Source kAsEfa{"as aws-p5.48xlarge", "", "assumed"};
constexpr Source kP5en{"all-reduce, ring, 4 nodes: github stas00/ml-engineering network/README.md",
                       "", "measured"};
constexpr Source kP6{"all-reduce, 4 nodes, 16 GiB: github stas00/ml-engineering network/README.md",
                     "", "measured"};
constexpr Source kRoce{"flat ring over 4x100 Gb/s nodes, from published step times", "", "fitted"};
constexpr Source kP3Floor{"all-reduce floor over 2(n-1) steps, 16 to 64 GPUs: gist jacobkahn", "",
                          "measured"};
constexpr Source kPolaris{"all-gather with aws-ofi-nccl: github argonne-lcf/alcf-nccl-tests", "",
                          "measured"};
constexpr Source kSimAi{"ratio table of github aliyun/SimAI nic_ratio.csv, 16 to 1024 GPUs", "",
                        "fitted"};
constexpr Source kNicRule{"0.9 x line rate of the node's NICs, at most the bus inside a node", "",
                          "assumed"};
constexpr Source kRailRule{"0.9 x line rate of the node's NICs / GPUs of the node", "", "assumed"};
constexpr Source kNone{"one node", "", "published"};

constexpr LinkEntry kHopper{from(5.0, kHopperNode), from(354, kHopperNode)};
constexpr LinkEntry kHopper200{from(5.0, kAsHopper), from(354, kAsHopper)};
constexpr LinkEntry kAmpere{from(4.0, kA100NodeAlpha), from(230, kA100NodeBus)};
constexpr LinkEntry kBlackwell{from(5.0, kAsHopper), from(682, kB200NodeBus)};
constexpr LinkEntry kBlackwellRule{from(5.0, kAsHopper), from(685.7, kNodeRule)};
constexpr LinkEntry kVolta{from(5.0, kAsHopper), from(114, kNodeRule)};
constexpr LinkEntry kPcie{from(5.7, kPcieAlpha), from(10, kPcieBus)};
constexpr LinkEntry kNoLink{from(0, kNone), from(0, kNone)};
constexpr LinkEntry kNdrInter{from(7.6, kNdr), from(318, kNdr)};
constexpr LinkEntry kNdrInterAssumed{from(7.6, kAsNdr), from(318, kAsNdr)};
constexpr LinkEntry kNdrRailLink{from(9.0, kNdrRail), from(47.5, kNdrRail)};
constexpr LinkEntry kNdrRailAssumed{from(9.0, kAsNdr), from(47.5, kAsNdr)};

// line_gbps: of all NICs of a node.
constexpr LinkEntry ib_rail(double line_gbps, int gpus) {
  return {from(9.0, kAsNdr), from(0.9 * line_gbps / gpus, kRailRule)};
}
constexpr LinkEntry cloud_rail(double line_gbps, int gpus) {
  return {from(9.7, kAsEfa), from(0.9 * line_gbps / gpus, kRailRule)};
}
constexpr LinkEntry ib(double line_gbps, double bus_inside) {
  return {from(7.6, kAsNdr),
          from(0.9 * line_gbps < bus_inside ? 0.9 * line_gbps : bus_inside, kNicRule)};
}
constexpr LinkEntry cloud(double line_gbps, double bus_inside) {
  return {from(9.7, kAsEfa),
          from(0.9 * line_gbps < bus_inside ? 0.9 * line_gbps : bus_inside, kNicRule)};
}
constexpr Figure gpus(double n) { return from(n, kSystems); }

constexpr Source kNoLatency{"InfiniBand and RoCE plugins state none", "", "published"};
constexpr Source kEfaPlugin{"github aws/aws-ofi-nccl, table of instance types", "", "published"};
constexpr Source kEfaPluginAssumed{"as of other instances of its generation", "", "assumed"};
constexpr Source kEfaSeen{"sweeps of AWS p5 and p6-b200", "", "fitted"};
constexpr Source kSlingshotSeen{
    "all-gather floor over 128 nodes: github argonne-lcf/alcf-nccl-tests", "", "fitted"};

constexpr NetworkEntry ib_nics(double n, double gbps, std::string_view cpu = "intel") {
  return {from(n, kSystems), from(gbps, kSystems), from(0, kNoLatency), from(0, kNoLatency), cpu};
}
constexpr Source kLlama3{"Llama 3 paper (arXiv 2407.21783), from memory, not verified", "",
                         "assumed"};
constexpr NetworkEntry meta_nics() {
  NetworkEntry n = ib_nics(8, 50);
  n.pod_nodes = from(384, kLlama3);
  n.oversubscription = from(7, kLlama3);
  return n;
}
constexpr NetworkEntry efa_nics(double n, double gbps, double plugin, const Source& source,
                                std::string_view cpu) {
  return {from(n, kSystems),
          from(gbps, kSystems),
          from(35, kEfaSeen),
          from(plugin, source),
          cpu,
          true,
          true};
}
constexpr NetworkEntry slingshot_nics(double n, double gbps) {
  return {from(n, kSystems),
          from(gbps, kSystems),
          from(22, kSlingshotSeen),
          from(22, kSlingshotSeen),
          "amd",
          false};
}

constexpr SystemEntry kSystemTable[] = {
    {"dgx-1-v100", "v100-sxm2-32gb", "hybrid cube mesh, 4x100 Gb/s EDR", gpus(8), kVolta,
     ib(50, 114), ib_rail(50, 8), ib_nics(4, 12.5)},
    {"dgx-2", "v100-sxm2-32gb", "NVSwitch, 8x100 Gb/s EDR", gpus(16), kVolta, ib(100, 114),
     ib_rail(100, 16), ib_nics(8, 12.5)},
    {"hgx-a100", "a100-sxm4-80gb", "one node", gpus(8), kAmpere, kNoLink, kNoLink},
    {"dgx-a100",
     "a100-sxm4-80gb",
     "8x200 Gb/s HDR; Azure ND A100 v4 is alike",
     gpus(8),
     kAmpere,
     {from(4.85, kHdr), from(177, kHdr)},
     ib_rail(200, 8),
     ib_nics(8, 25, "amd")},
    {"hgx-h100", "h100-sxm5-80gb", "one node", gpus(8), kHopper, kNoLink, kNoLink},
    {"dgx-h100", "h100-sxm5-80gb", "8x400 Gb/s NDR, a NIC per GPU", gpus(8), kHopper, kNdrInter,
     kNdrRailLink, ib_nics(8, 50)},
    {"hgx-h200", "h200-sxm-141gb", "8x400 Gb/s NDR assumed between nodes", gpus(8), kHopper200,
     kNdrInterAssumed, kNdrRailAssumed, ib_nics(8, 50)},
    {"hgx-b200", "b200-sxm", "8x400 Gb/s assumed between nodes", gpus(8), kBlackwell, ib(400, 682),
     ib_rail(400, 8), ib_nics(8, 50)},
    {"dgx-b300", "b300-sxm", "8x800 Gb/s XDR", gpus(8), kBlackwellRule, ib(800, 685.7),
     ib_rail(800, 8), ib_nics(8, 100)},
    {"gb200-nvl72", "gb200", "a node is the NVLink domain of 72; 18 trays of 4x400 Gb/s", gpus(72),
     kBlackwellRule, ib(3600, 685.7), ib_rail(3600, 72), ib_nics(72, 50, "other")},
    {"aws-p3dn.24xlarge",
     "v100-sxm2-32gb",
     "1x100 Gb/s EFA",
     gpus(8),
     kVolta,
     {from(5.1, kP3Floor), from(11.25, kNicRule)},
     {from(5.1, kP3Floor), from(1.40625, kRailRule)},
     efa_nics(1, 12.5, 150, kEfaPlugin, "intel")},
    {"aws-p4d.24xlarge",
     "a100-sxm4-40gb",
     "4x100 Gb/s EFA; all-reduce by tree measured 78 GB/s",
     gpus(8),
     kAmpere,
     {from(5.0, kRoce), from(45, kRoce)},
     cloud_rail(50, 8),
     efa_nics(4, 12.5, 75, kEfaPlugin, "intel")},
    {"aws-p4de.24xlarge",
     "a100-sxm4-80gb",
     "4x100 Gb/s EFA; all-reduce by tree measured 78 GB/s",
     gpus(8),
     kAmpere,
     {from(5.0, kRoce), from(45, kRoce)},
     cloud_rail(50, 8),
     efa_nics(4, 12.5, 75, kEfaPlugin, "intel")},
    {"aws-p5.48xlarge",
     "h100-sxm5-80gb",
     "32x100 Gb/s EFA",
     gpus(8),
     kHopper,
     {from(9.7, kP5), from(376, kP5)},
     cloud_rail(400, 8),
     efa_nics(8, 50, 75, kEfaPlugin, "amd")},
    {"aws-p5en.48xlarge",
     "h200-sxm-141gb",
     "16x200 Gb/s EFA",
     gpus(8),
     kHopper200,
     {from(9.7, kAsEfa), from(365, kP5en)},
     cloud_rail(400, 8),
     efa_nics(8, 50, 35, kEfaPluginAssumed, "intel")},
    {"aws-p6-b200.48xlarge",
     "b200-sxm",
     "8x400 Gb/s EFA",
     gpus(8),
     kBlackwell,
     {from(9.7, kAsEfa), from(382, kP6)},
     cloud_rail(400, 8),
     efa_nics(8, 50, 35, kEfaPluginAssumed, "intel")},
    {"aws-p6-b300.48xlarge", "b300-sxm", "16x400 Gb/s EFA", gpus(8), kBlackwellRule,
     cloud(800, 685.7), cloud_rail(800, 8), efa_nics(8, 100, 35, kEfaPluginAssumed, "intel")},
    {"aws-g5.48xlarge", "a10g", "PCIe, 1x100 Gb/s", gpus(8), kPcie, cloud(12.5, 10),
     cloud_rail(12.5, 8), efa_nics(1, 12.5, 75, kEfaPluginAssumed, "amd")},
    {"azure-nd-a100-v4",
     "a100-sxm4-40gb",
     "8x200 Gb/s HDR",
     gpus(8),
     kAmpere,
     {from(4.85, kHdr), from(177, kHdr)},
     ib_rail(200, 8),
     ib_nics(8, 25, "amd")},
    {"azure-nd-h100-v5", "h100-sxm5-80gb", "8x400 Gb/s NDR", gpus(8), kHopper, kNdrInterAssumed,
     kNdrRailAssumed, ib_nics(8, 50)},
    {"azure-nd-h200-v5", "h200-sxm-141gb", "8x400 Gb/s NDR", gpus(8), kHopper200, kNdrInterAssumed,
     kNdrRailAssumed, ib_nics(8, 50)},
    {"gcp-a3-high", "h100-sxm5-80gb", "4x200 Gb/s, GPUDirect-TCPX", gpus(8), kHopper,
     cloud(100, 354), cloud_rail(100, 8), ib_nics(4, 25)},
    {"gcp-a3-mega", "h100-sxm5-80gb", "8x200 Gb/s, GPUDirect-TCPXO", gpus(8), kHopper,
     cloud(200, 354), cloud_rail(200, 8), ib_nics(8, 25)},
    {"gcp-a3-ultra", "h200-sxm-141gb", "8x400 Gb/s RoCE", gpus(8), kHopper200, kNdrInterAssumed,
     kNdrRailAssumed, ib_nics(8, 50)},
    {"oci-bm-gpu-h100", "h100-sxm5-80gb", "16x200 Gb/s RoCE", gpus(8), kHopper, kNdrInterAssumed,
     kNdrRailAssumed, ib_nics(16, 25)},
    {"alibaba-h800",
     "h100-sxm5-80gb",
     "8x400 Gb/s; H800 with the H100's figures",
     gpus(8),
     kHopper,
     {from(4.7, kSimAi), from(390, kSimAi)},
     kNdrRailAssumed,
     ib_nics(8, 50)},
    {"meta-llama3-h100", "h100-sxm5-80gb", "8x400 Gb/s RoCE, 1:7 between pods of 3072", gpus(8),
     kHopper, kNdrInterAssumed, kNdrRailAssumed, meta_nics()},
    {"alcf-polaris",
     "a100-sxm4-40gb",
     "2x200 Gb/s Slingshot-11",
     gpus(4),
     kAmpere,
     {from(9.7, kAsEfa), from(36, kPolaris)},
     cloud_rail(50, 4),
     slingshot_nics(2, 25)},
};

Link link(const LinkEntry& e) { return {e.alpha_us.value, e.bus_gbps.value}; }

Network network(const NetworkEntry& e) {
  Network n;
  n.nics = static_cast<int>(e.nics.value);
  n.nic_gbps = e.nic_gbps.value;
  n.nic_latency_us = e.latency_us.value;
  n.plugin_latency_us = e.plugin_latency_us.value;
  n.near_nics = e.near_nics;
  n.plugin_tunes = e.plugin_tunes;
  if (e.pod_nodes.value > 0) {
    n.pod_nodes = static_cast<int>(e.pod_nodes.value);
    n.oversubscription = e.oversubscription.value;
  }
  n.cpu = e.cpu == "amd" ? CpuVendor::amd : e.cpu == "intel" ? CpuVendor::intel : CpuVendor::other;
  return n;
}

template <class Table>
std::string names_of(const Table& table) {
  std::string out;
  for (const auto& e : table) {
    if (!out.empty()) out += ", ";
    out += e.name;
  }
  return out;
}

void figure(std::string& out, int indent, std::string_view key, const Figure& f) {
  // Up to six digits after the point are exact here; %g would turn 1125 x 0.985 into noise.
  std::string value = fmt::format("{:.6f}", f.value);
  value.erase(value.find_last_not_of('0') + 1);
  if (value.back() == '.') value.pop_back();
  fmt::format_to(std::back_inserter(out), "{:{}}{}: {{value: {}, basis: {}, source: \"{}\"", "",
                 indent, key, value, f.basis, f.source);
  if (!f.date.empty()) fmt::format_to(std::back_inserter(out), ", date: \"{}\"", f.date);
  out += "}\n";
}

void links(std::string& out, std::string_view key, const LinkEntry& e) {
  if (e.bus_gbps.value == 0) return;
  fmt::format_to(std::back_inserter(out), "    {}:\n", key);
  figure(out, 6, "alpha_us", e.alpha_us);
  figure(out, 6, "bus_gbps", e.bus_gbps);
}

void nics(std::string& out, const NetworkEntry& e) {
  if (e.nics.value == 0) return;
  fmt::format_to(std::back_inserter(out), "    nics:\n");
  figure(out, 6, "count", e.nics);
  figure(out, 6, "nic_gbps", e.nic_gbps);
  figure(out, 6, "latency_us", e.latency_us);
  figure(out, 6, "plugin_latency_us", e.plugin_latency_us);
  fmt::format_to(std::back_inserter(out), "      cpu: {}\n", e.cpu);
  if (!e.near_nics) out += "      path: cpu\n";
  if (e.plugin_tunes) out += "      plugin_tunes: true\n";
  if (e.pod_nodes.value == 0) return;
  fmt::format_to(std::back_inserter(out), "    fabric:\n");
  figure(out, 6, "pod_nodes", e.pod_nodes);
  figure(out, 6, "oversubscription", e.oversubscription);
}

constexpr std::string_view kLegend =
    "# basis: published (a vendor's figure), measured (a run in the source), fitted (least "
    "squares\n"
    "# over published sweeps) or assumed (from memory, or by the rules in "
    "sim/cluster/catalogue.h).\n"
    "# The program has this table built in; a test keeps the two equal.\n";

}  // namespace

std::span<const GpuEntry> gpu_catalogue() { return kGpus; }
std::span<const SystemEntry> system_catalogue() { return kSystemTable; }

std::optional<Gpu> find_gpu(std::string_view name) {
  for (const GpuEntry& e : kGpus) {
    if (e.name != name) continue;
    Gpu g;
    g.name = e.name;
    g.sms = static_cast<int>(e.sms.value);
    g.compute_capability = static_cast<int>(e.compute_capability.value);
    g.fp32_tflops = e.fp32_tflops.value;
    g.tf32_tflops = e.tf32_tflops.value;
    g.bf16_tflops = e.bf16_tflops.value;
    g.fp16_tflops = e.fp16_tflops.value;
    g.memory_gbps = e.memory_gbps.value;
    g.memory_bytes = std::llround(e.memory_gib.value * static_cast<double>(kGiB));
    g.context_bytes = std::llround(e.context_mib.value * static_cast<double>(kMiB));
    g.pcie_gbps = e.pcie_gbps.value;
    g.nvlinks = static_cast<int>(e.nvlinks.value);
    return g;
  }
  return std::nullopt;
}

std::optional<Cluster> find_system(std::string_view name) {
  for (const SystemEntry& e : kSystemTable) {
    if (e.name != name) continue;
    Cluster c;
    c.name = e.name;
    c.gpu = find_gpu(e.gpu).value();
    c.gpus_per_node = static_cast<int>(e.gpus_per_node.value);
    c.nodes = 1;
    c.intra = link(e.intra);
    c.inter = link(e.inter);
    c.rail = link(e.rail);
    c.network = network(e.network);
    return c;
  }
  return std::nullopt;
}

std::string gpu_names() { return names_of(kGpus); }
std::string system_names() { return names_of(kSystemTable); }

std::string gpus_yaml() {
  std::string out =
      "# GPUs that a scenario can name in cluster.gpu, with the source of each figure.\n";
  out += kLegend;
  out += "gpus:\n";
  for (const GpuEntry& e : kGpus) {
    fmt::format_to(std::back_inserter(out), "  {}:\n", e.name);
    if (!e.note.empty()) fmt::format_to(std::back_inserter(out), "    note: \"{}\"\n", e.note);
    figure(out, 4, "sms", e.sms);
    figure(out, 4, "compute_capability", e.compute_capability);
    figure(out, 4, "fp32_tflops", e.fp32_tflops);
    figure(out, 4, "tf32_tflops", e.tf32_tflops);
    figure(out, 4, "bf16_tflops", e.bf16_tflops);
    figure(out, 4, "fp16_tflops", e.fp16_tflops);
    figure(out, 4, "memory_gbps", e.memory_gbps);
    figure(out, 4, "memory_gib", e.memory_gib);
    figure(out, 4, "context_mib", e.context_mib);
    figure(out, 4, "pcie_gbps", e.pcie_gbps);
    figure(out, 4, "nvlinks", e.nvlinks);
  }
  return out;
}

std::string systems_yaml() {
  std::string out =
      "# Systems that a scenario can name in cluster.preset, with the source of each figure.\n";
  out += kLegend;
  out += "systems:\n";
  for (const SystemEntry& e : kSystemTable) {
    fmt::format_to(std::back_inserter(out), "  {}:\n    note: \"{}\"\n    gpu: {}\n", e.name,
                   e.note, e.gpu);
    figure(out, 4, "gpus_per_node", e.gpus_per_node);
    links(out, "intra", e.intra);
    links(out, "inter", e.inter);
    links(out, "rail", e.rail);
    nics(out, e.network);
  }
  return out;
}

}  // namespace shardsim
