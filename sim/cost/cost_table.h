// The price of a schedule: what each work takes and, where works share the machine, what it asks of
// it; and what the host's calls cost. This is the seam between what runs and how long it takes: a cost
// model fills the table, the machine only reads it, and a test may write one by hand.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/base/units.h"

namespace shardsim {

// What works that run at once share, as one GPU sees it.
enum class Resource : uint8_t {
  hbm,
  nvlink,
  nic,
  spine,    // of the network, above the leaves
  pcie_in,  // the host link towards the GPU, and the opposite direction
  pcie_out,
  count_,
};
inline constexpr int kResources = static_cast<int>(Resource::count_);

// What a work asks for while it runs at full speed.
struct Demand {
  std::array<float, kResources> load{};  // fraction of the resource
  float latency = 0;      // fraction of its time that waits for no resource, and is not stretched
  uint16_t ctas = 0;      // thread blocks that hold SMs: a collective's
  bool sm_bound = false;  // slowed by them: products and attention

  float& operator[](Resource r) { return load[static_cast<size_t>(r)]; }
  float operator[](Resource r) const { return load[static_cast<size_t>(r)]; }
};

// How collectives slow what computes (sim/engine/sharing.h).
struct Sharing {
  double sms = 0;       // of the GPU; 0: nothing is slowed
  double sm_steal = 2;  // SMs that a collective's thread block costs a product
};

enum class HostCall : uint8_t { record, wait, sync, malloc, other, count_ };

struct HostCosts {
  std::array<Time, static_cast<size_t>(HostCall::count_)> time{};
  Time operator[](HostCall c) const { return time[static_cast<size_t>(c)]; }
  Time& operator[](HostCall c) { return time[static_cast<size_t>(c)]; }
  static HostCosts every(Time t) {
    HostCosts h;
    h.time.fill(t);
    return h;
  }
};

struct CostTable {
  std::vector<Time> work;      // by WorkId, at full speed
  std::vector<Demand> demand;  // by WorkId; empty: nothing is shared, the machine plays in order
  Sharing sharing;
  // Charged after each call's own start has been computed.
  HostCosts host;
  std::vector<Time> launch;  // by WorkId
  // What the host computes itself, by Schedule::host_works; empty: it takes no time.
  std::vector<Time> host_work;
};

}  // namespace shardsim
