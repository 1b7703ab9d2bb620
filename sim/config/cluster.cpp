#include "sim/config/cluster.h"

#include <fmt/format.h>

#include "sim/base/escape.h"
#include "sim/base/spelling.h"
#include "sim/cluster/catalogue.h"
#include "sim/cluster/network.h"
#include "sim/config/calibration.h"

namespace shardsim {
namespace {

constexpr double kLeastTflops = 0.01, kMostTflops = 1e6;
constexpr double kLeastGbps = 0.001, kMostGbps = 1e6;
constexpr double kMostAlphaUs = 1e5;
constexpr int64_t kMostGpusPerNode = 1024;
constexpr int64_t kMostNvlinks = 144;
constexpr int64_t kMostNics = 1024;
constexpr double kMostOversubscription = 1000;
constexpr int64_t kMostNodes = 1 << 17;
constexpr int64_t kMostThreads = 4096;

template <class Entries>
std::string hint_for(const Value& value, const Entries& entries, std::string_view noun) {
  std::vector<std::string_view> names;
  for (const auto& entry : entries) names.push_back(entry.name);
  return value.is_scalar() ? spelling_hint(value.word(), names, noun) : "";
}

Gpu gpu_of_catalogue(const Value& value) {
  if (const std::optional<Gpu> gpu = find_gpu(value.word())) return *gpu;
  value.fail_expected("the name of a GPU", hint_for(value, gpu_catalogue(), "GPUs"));
}

Gpu read_gpu(const Value& value) {
  if (!value.is_map()) return gpu_of_catalogue(value);
  const Map map(value, {"preset", "name", "sms", "compute_capability", "fp32_tflops", "tf32_tflops",
                        "bf16_tflops", "fp16_tflops", "memory_bandwidth", "memory", "context",
                        "pcie_bandwidth", "nvlinks"});
  const std::optional<Value> preset = map.find("preset");
  Gpu gpu;
  if (preset) gpu = gpu_of_catalogue(*preset);
  // Without a preset to fall back to, the first figures are required.
  const auto read = [&](std::string_view key, bool required) -> std::optional<Value> {
    if (required && !preset) return map.at(key, "a GPU without preset states its figures");
    return map.find(key);
  };
  const auto tflops = [&](std::string_view key, double& out, bool required) {
    if (const std::optional<Value> v = read(key, required))
      out = v->quantity(Dimension::flops, kLeastTflops, kMostTflops);
  };
  if (const std::optional<Value> v = read("name", !preset)) gpu.name = printable(v->text());
  if (const std::optional<Value> v = read("sms", true))
    gpu.sms = static_cast<int>(v->whole(1, 4096, "streaming multiprocessors"));
  if (const std::optional<Value> v = read("compute_capability", true))
    gpu.compute_capability = static_cast<int>(v->whole(10, 999, "90 for an H100"));
  tflops("fp32_tflops", gpu.fp32_tflops, true);
  tflops("tf32_tflops", gpu.tf32_tflops, false);
  tflops("bf16_tflops", gpu.bf16_tflops, true);
  tflops("fp16_tflops", gpu.fp16_tflops, false);
  if (const std::optional<Value> v = read("memory_bandwidth", true))
    gpu.memory_gbps = v->quantity(Dimension::rate, kLeastGbps, kMostGbps);
  if (const std::optional<Value> v = read("memory", true))
    gpu.memory_bytes = v->bytes(kMiB, 1024 * 1024 * kGiB, "what the device reports as its total");
  if (const std::optional<Value> v = map.find("context"))
    gpu.context_bytes = v->bytes(0, 1024 * kGiB, "taken by the CUDA context");
  if (const std::optional<Value> v = map.find("pcie_bandwidth"))
    gpu.pcie_gbps = v->quantity(Dimension::rate, kLeastGbps, kMostGbps);
  if (const std::optional<Value> v = map.find("nvlinks"))
    gpu.nvlinks = static_cast<int>(v->whole(0, kMostNvlinks, "NVLinks of one GPU, 18 on an H100"));
  if (!preset && gpu.fp16_tflops == 0) gpu.fp16_tflops = gpu.bf16_tflops;
  if (gpu.context_bytes >= gpu.memory_bytes)
    value.fail(fmt::format("the CUDA context ({}) leaves nothing of the memory ({})",
                           format_bytes(gpu.context_bytes), format_bytes(gpu.memory_bytes)));
  return gpu;
}

// Of a link: it is quoted in bits here, in bytes there, so a number alone could be either.
double link_rate(const Value& value, const std::string& hint) {
  if (value.is_scalar() && parse_decimal(value.word()).value > 0)
    value.fail_expected("a rate with its unit",
                        fmt::format("{0} Gb/s are bits, {0} GB/s bytes", value.word()));
  return value.quantity(Dimension::rate, kLeastGbps, kMostGbps, hint);
}

Link read_link(const Value& value) {
  const Map map(value, {"alpha", "bus"});
  return {map.at("alpha", "latency of one step of a ring, such as 5 us")
              .quantity(Dimension::time, 0, kMostAlphaUs),
          link_rate(map.at("bus", "bus bandwidth of a GPU, such as 354 GB/s"),
                    "bus bandwidth of a GPU, such as 354 GB/s"),
          true};
}

void read_links(const Value& value, Cluster& cluster) {
  if (value.is_scalar()) {
    for (const auto& [key, link] : read_link_file(value))
      (key == "intra"   ? cluster.intra
       : key == "inter" ? cluster.inter
                        : cluster.rail) = {link.alpha_us, link.bus_gbps, true};
    return;
  }
  const Map map(value, {"intra", "inter", "rail"});
  if (const std::optional<Value> v = map.find("intra")) cluster.intra = read_link(*v);
  if (const std::optional<Value> v = map.find("inter")) cluster.inter = read_link(*v);
  if (const std::optional<Value> v = map.find("rail")) cluster.rail = read_link(*v);
}

void read_nics(const Value& value, Cluster& cluster) {
  const Map map(value, {"count", "rate", "latency", "path"});
  Network& n = cluster.network;
  n.nics = static_cast<int>(map.at("count", "NICs of a node").whole(1, kMostNics));
  constexpr const char* kRate = "line rate of one NIC, such as 400 Gb/s";
  n.nic_gbps = link_rate(map.at("rate", kRate), kRate);
  if (const std::optional<Value> v = map.find("latency"))
    n.nic_latency_us = n.plugin_latency_us = v->quantity(Dimension::time, 0, kMostAlphaUs);
  if (const std::optional<Value> v = map.find("path"))
    n.near_nics = v->choice<bool>({{"switch", true}, {"cpu", false}});
  links_of_nics(cluster);
}

void read_host(const Value& value, HostMachine& host) {
  const Map map(value, {"memory_bandwidth", "threads"});
  if (const std::optional<Value> v = map.find("memory_bandwidth"))
    host.memory_gbps = v->quantity(Dimension::rate, kLeastGbps, kMostGbps);
  if (const std::optional<Value> v = map.find("threads"))
    host.threads = static_cast<int>(v->whole(1, kMostThreads, "of a rank, OMP_NUM_THREADS"));
}

void read_fabric(const Value& value, Network& n) {
  const Map map(value, {"pod_nodes", "oversubscription", "hop_latency", "sharp"});
  if (const std::optional<Value> v = map.find("pod_nodes"))
    n.pod_nodes = static_cast<int>(v->whole(1, kMostNodes, "nodes under one set of leaves"));
  if (const std::optional<Value> v = map.find("oversubscription")) {
    n.oversubscription = v->decimal(1, kMostOversubscription, "7 is 7:1 above a pod");
    if (n.pod_nodes == 0)
      value.fail("the key 'pod_nodes' is missing", "what leaves a pod is oversubscribed");
  }
  if (const std::optional<Value> v = map.find("hop_latency"))
    n.hop_us = v->quantity(Dimension::time, 0, kMostAlphaUs, "one more switch on the way");
  if (const std::optional<Value> v = map.find("sharp")) n.sharp = v->boolean();
}

}  // namespace

Cluster read_cluster(const Value& value) {
  const Map map(value, {"preset", "name", "gpu", "gpus_per_node", "nodes", "links", "nics",
                        "fabric", "cpu", "host", "price_per_gpu_hour"});
  Cluster cluster;
  if (const std::optional<Value> preset = map.find("preset")) {
    const std::optional<Cluster> found = find_system(preset->word());
    if (!found)
      preset->fail_expected("the name of a system",
                            hint_for(*preset, system_catalogue(), "systems"));
    cluster = *found;
  } else if (!map.has("gpu")) {
    value.fail("one of the keys preset, gpu is missing",
               "a system of `shardsim list clusters`, or GPUs and links written out");
  }
  if (const std::optional<Value> v = map.find("gpu")) {
    cluster.gpu = read_gpu(*v);
    if (cluster.name.empty()) cluster.name = cluster.gpu.name;
  }
  if (const std::optional<Value> v = map.find("name")) cluster.name = printable(v->text());
  if (const std::optional<Value> v = map.find("gpus_per_node"))
    cluster.gpus_per_node = static_cast<int>(v->whole(1, kMostGpusPerNode));
  if (const std::optional<Value> v = map.find("nodes"))
    cluster.nodes = static_cast<int>(v->whole(1, kMostNodes));
  if (const std::optional<Value> v = map.find("cpu"))
    cluster.network.cpu = v->choice<CpuVendor>(
        {{"intel", CpuVendor::intel}, {"amd", CpuVendor::amd}, {"other", CpuVendor::other}});
  if (const std::optional<Value> v = map.find("host")) read_host(*v, cluster.host);
  if (const std::optional<Value> v = map.find("nics")) read_nics(*v, cluster);
  if (const std::optional<Value> v = map.find("fabric")) read_fabric(*v, cluster.network);
  if (const std::optional<Value> v = map.find("links")) read_links(*v, cluster);
  if (const std::optional<Value> v = map.find("price_per_gpu_hour"))
    cluster.price_per_gpu_hour = v->decimal(0, 1e6);
  if (cluster.world() > kMostRanks)
    value.fail(fmt::format("{} nodes of {} GPUs are more than {} GPUs", cluster.nodes,
                           cluster.gpus_per_node, kMostRanks));
  const auto need = [&](const Link& link, const char* key, const char* why) {
    if (link.bus_gbps == 0)
      value.fail(fmt::format("the key 'links.{}' is missing", key),
                 fmt::format("{}; write links: {{{}: {{alpha: 5 us, bus: 50 GB/s}}}}", why, key));
  };
  if (cluster.gpus_per_node > 1) need(cluster.intra, "intra", "GPUs of a node are linked");
  if (cluster.nodes > 1) need(cluster.inter, "inter", "the cluster has several nodes");
  return cluster;
}

}  // namespace shardsim
