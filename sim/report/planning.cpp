#include "sim/report/planning.h"

#include <cmath>

namespace shardsim {

std::optional<Planning> plan_tokens(int64_t tokens, int64_t tokens_per_step, double step_time_s,
                                    int64_t gpus, double price_per_gpu_hour) {
  constexpr double kHour = 3600;
  if (tokens <= 0 || tokens_per_step <= 0 || step_time_s <= 0) return std::nullopt;
  const auto all = static_cast<double>(tokens), ranks = static_cast<double>(gpus);
  const auto of_step = static_cast<double>(tokens_per_step);
  Planning p;
  p.tokens = tokens;
  p.steps = static_cast<int64_t>(std::ceil(all / (of_step * ranks)));
  p.gpu_hours = all / (of_step / step_time_s) / kHour;
  p.hours = p.gpu_hours / ranks;
  p.price = price_per_gpu_hour;
  return p;
}

}  // namespace shardsim
