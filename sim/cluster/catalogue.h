// The GPUs and systems that a scenario can name, every figure with where it comes from.
//
// basis says what kind of number it is:
//   published  a vendor's figure, read in the source named
//   measured   read off a run that the source shows
//   fitted     least squares of t = (n-1)*alpha + (n-1)/n*S/bus (all-gather, reduce-scatter) over
//              published nccl-tests rows
//   assumed    from memory, or by a rule below
// Rules for what nobody published, so that a reader can redo them:
//   memory the device reports   0.985 x the nominal GB read as GiB (A100 40 GB: 39.50, H100 80 GB:
//                               79.10, RTX 4090 24 GB: 23.64 are measured; 0.985-0.991)
//   bus inside an NVLink node   0.95 x NCCL's own total (V100 120, A100 240, H100 370.8, B200 721.8
//                               GB/s); measured ratios are 0.955, 0.958 and 0.945
//   bus between nodes           min(0.9 x line rate of a node's NICs, bus inside a node); the 0.9
//                               was found on 4x100 and 8x100 Gb/s RoCE nodes
//   rail (one rank a node)      0.9 x line rate of a node's NICs / GPUs of a node
//   alpha                       InfiniBand, RoCE: 7.6 us as fitted on 8x400 Gb/s; EFA and other
//                               cloud transports: 9.7 us as fitted on AWS p5
// scenarios/clusters/gpus.yaml and systems.yaml show the same tables; a test keeps them equal.
// Worked number: find_system("dgx-h100") has 8 H100 of 3350 GB/s and 989 bf16 TFLOPS; inside the
// node alpha 5.0 us and 354 GB/s, between nodes 7.6 us and 318 GB/s, on one rail 9.0 us and 47.5.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/cluster/cluster.h"

namespace shardsim {

struct Figure {
  double value = 0;
  std::string_view source;
  std::string_view date;  // of the source, where it says; otherwise empty
  std::string_view basis;
};

struct GpuEntry {
  std::string_view name;
  std::string_view note;
  Figure sms, compute_capability;
  Figure fp32_tflops, tf32_tflops, bf16_tflops, fp16_tflops;  // dense; 0: the GPU has none
  Figure memory_gbps, memory_gib, context_mib, pcie_gbps;
  Figure nvlinks;  // 0: none
};

struct LinkEntry {
  Figure alpha_us, bus_gbps;
};

// The NICs of a node as NCCL sees them: EFA's plugin makes one of all that are a GPU's. plugin_latency_us is what their plugin states to NCCL, which chooses by it;
// latency_us what published sweeps show of it.
struct NetworkEntry {
  Figure nics, nic_gbps, latency_us, plugin_latency_us;
  std::string_view cpu = "intel";
  bool near_nics = true;      // under a PCIe switch with their GPUs
  bool plugin_tunes = false;  // EFA's has a tuner of its own
  Figure pod_nodes{}, oversubscription{};
};

struct SystemEntry {
  std::string_view name;
  std::string_view gpu;
  std::string_view note;
  Figure gpus_per_node;
  LinkEntry intra, inter, rail;  // inter, rail: 0 where the system is one node
  NetworkEntry network{};        // no nics: one node
};

std::span<const GpuEntry> gpu_catalogue();
std::span<const SystemEntry> system_catalogue();

std::optional<Gpu> find_gpu(std::string_view name);
// With nodes = 1.
std::optional<Cluster> find_system(std::string_view name);

// "a100-sxm4-40gb, a100-sxm4-80gb, ...", in the order of the catalogue, for error messages.
std::string gpu_names();
std::string system_names();

// The text of scenarios/clusters/gpus.yaml and systems.yaml.
std::string gpus_yaml();
std::string systems_yaml();

}  // namespace shardsim
