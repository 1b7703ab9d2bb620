#include "sim/plan/deepspeed_estimate.h"

#include <algorithm>

namespace shardsim {

namespace {

constexpr double kBufferFactor = 1.5;  // additional_buffer_factor

// int() of Python: towards zero.
Bytes whole(double x) { return static_cast<Bytes>(x); }

}  // namespace

std::vector<DeepSpeedEstimate> deepspeed_estimates(const DeepSpeedSetup& s) {
  const auto p = static_cast<double>(s.params);
  const auto node = static_cast<double>(s.gpus_per_node);
  const auto gpus = static_cast<double>(s.nodes * s.gpus_per_node);
  const double nodes_share = 1 / static_cast<double>(s.nodes);
  std::vector<DeepSpeedEstimate> out;
  out.push_back({"zero2", "optimizer", false, 2 * s.params,
                 whole(p * std::max(4 * gpus, 16.0) * kBufferFactor)});
  out.push_back({"zero2", "none", false, 2 * s.params + whole(18 * p / gpus),
                 whole(p * 4 * node * kBufferFactor)});
  if (s.largest_layer == 0) return out;
  const Bytes layer = 4 * s.largest_layer;
  for (const bool parameters : {true, false})
    for (const bool zero_init : {true, false}) {
      const double host = parameters ? 18 : 16;
      out.push_back({"zero3", parameters ? "optimizer and parameters" : "optimizer", zero_init,
                     layer + (parameters ? 0 : whole(2 * p / gpus)),
                     zero_init
                         ? whole(p * host * nodes_share * kBufferFactor)
                         : whole(p * std::max(4 * node, host * nodes_share) * kBufferFactor)});
    }
  for (const bool zero_init : {true, false})
    out.push_back({"zero3", "none", zero_init, layer + whole(18 * p / gpus),
                   zero_init ? whole(static_cast<double>(layer) * node * kBufferFactor)
                             : whole(p * 4 * node * kBufferFactor)});
  return out;
}

int64_t largest_layer(const Model& model) {
  int64_t largest = 0;
  for (const Module& m : model.modules) {
    int64_t own = 0;
    for (uint32_t i = m.first_param; i < m.first_param + m.own_params; ++i)
      own += model.params[i].shape.numel();
    largest = std::max(largest, own);
  }
  return largest;
}

}  // namespace shardsim
