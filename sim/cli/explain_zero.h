// What `shardsim explain` says of DeepSpeed's stages: how the parameters are cut, and the buckets that
// a step reduces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/plan.h"
#include "sim/plan/scenario.h"
#include "sim/schedule/schedule.h"

namespace shardsim {

std::string zero_parts(const Plan& plan, const Training& training);

// Elements of each reduction of gradients in the last step, padding included, in their order.
std::vector<int64_t> reduce_buckets(const Schedule& schedule);
std::string zero_buckets(const Schedule& schedule, const Training& training);

}  // namespace shardsim
