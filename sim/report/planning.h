// What training on a number of tokens takes, at the steady step's rate: no restarts, checkpoints or
// evaluations.
//
//   steps      tokens / tokens of a step on all GPUs, rounded up
//   hours      tokens / tokens_per_s / 3600
//   gpu_hours  hours x GPUs
//   cost       gpu_hours x cluster.price_per_gpu_hour
// Worked number: 1e9 tokens on 8 GPUs with 7,851 tokens a second each are 4.42 hours, 35.4 GPU-hours,
// and at 2 an hour 70.76.
#pragma once

#include <cstdint>
#include <optional>

namespace shardsim {

struct Planning {
  int64_t tokens = 0, steps = 0;
  double hours = 0, gpu_hours = 0;
  double price = 0;  // of a GPU-hour; 0: not stated
  double days() const { return hours / 24; }
  std::optional<double> cost() const {
    if (price > 0) return price * gpu_hours;
    return std::nullopt;
  }
};

// `tokens_per_step` are of one GPU. None where no tokens are planned or no step has ended.
std::optional<Planning> plan_tokens(int64_t tokens, int64_t tokens_per_step, double step_time_s,
                                    int64_t gpus, double price_per_gpu_hour);

}  // namespace shardsim
