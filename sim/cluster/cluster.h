// What it runs on, as plain values: one kind of GPU, nodes of several, and the links inside and
// between nodes. Figures come from sim/cluster/catalogue.h (each with source, date and whether it
// was measured) or from the scenario.
// Worked number: dgx-h100 with nodes 2 has 16 GPUs; inside a node ring all-gathers run at
// alpha 5.0 us a step and 354 GB/s, between nodes at 7.6 us and 318 GB/s (cost-model A.5).
#pragma once

#include <cstdint>
#include <string>

#include "sim/base/units.h"
#include "sim/cluster/network.h"

namespace shardsim {

struct Gpu {
  std::string name;
  int sms = 0;
  int compute_capability = 0;  // 90 for H100
  double fp32_tflops = 0;      // dense peaks, vendor figures
  double tf32_tflops = 0;
  double bf16_tflops = 0;
  double fp16_tflops = 0;
  double memory_gbps = 0;            // HBM, 1e9 bytes a second
  Bytes memory_bytes = 0;            // what the device reports as its total
  Bytes context_bytes = 500 * kMiB;  // taken by the CUDA context before any tensor
  double pcie_gbps = 31.5;           // host link, one direction, line rate; 31.5 is Gen4 x16
  int nvlinks = 0;                   // of one GPU; 0: none, or not stated
};

// A ring collective over n ranks of S whole bytes takes (n-1)*alpha + (n-1)/n * S/bus for an
// all-gather or reduce-scatter and twice that for an all-reduce (cost-model A.5).
struct Link {
  double alpha_us = 0;  // per ring step
  double bus_gbps = 0;  // bus bandwidth per GPU, 1e9 bytes a second
  bool given = false;  // by the scenario: collectives over it are such rings, whatever NCCL chooses
};

// The CPUs of a node, which work where parameters are offloaded (sim/cost/host_work.h).
struct HostMachine {
  double memory_gbps = 0;  // of all of a node's memory, line rate; 0: not stated
  int threads = 0;         // that a rank's operators run on (OMP_NUM_THREADS); 0: not stated
};

struct Cluster {
  std::string name;
  Gpu gpu;
  int gpus_per_node = 8;
  int nodes = 1;
  Link intra;  // NVLink, NVSwitch or PCIe inside a node
  Link inter;  // the network between nodes, for a ring through all of a node's GPUs
  // The network for a ring with one rank a node, while every other GPU of the node runs its own
  // (HSDP's replica communicators). bus_gbps 0: inter with 1/gpus_per_node of its bandwidth.
  Link rail;
  Network network;
  HostMachine host;
  double price_per_gpu_hour = 0;  // 0: not stated

  int64_t world() const { return static_cast<int64_t>(gpus_per_node) * nodes; }
};

}  // namespace shardsim
