#include "sim/cli/explain_zero.h"

#include <fmt/format.h>

#include <utility>

#include "sim/plan/plan_zero.h"
#include "sim/report/ledger.h"

namespace shardsim {

namespace {

// Stages 1 and 2: one buffer, and the gradients of which rank 0 keeps the whole.
std::string flat_parts(const Group& g) {
  int64_t owned = 0, count = 0;
  for (const ShardedParam& p : g.params)
    if (p.local > 0) {
      owned += p.numel;
      ++count;
    }
  return fmt::format(
      "parts    one flat buffer of {} elements, {} of them padding, in {} parts of {}\n"
      "         rank 0 keeps {} whole gradient{}: {} elements\n",
      g.flat, g.flat - g.numel, g.ranks, g.shard, count, count == 1 ? "" : "s", owned);
}

}  // namespace

std::string zero_parts(const Plan& plan, const Training& t) {
  if (t.strategy != Strategy::zero3) return flat_parts(plan.groups[0]);
  int64_t padding = 0, count = 0, numel = 0;
  std::vector<std::pair<uint32_t, int64_t>> params;
  for (const Group& g : plan.groups) {
    padding += g.padded() - g.numel;
    for (const ShardedParam& p : g.params) params.emplace_back(p.id.v, p.numel);
  }
  std::vector<int64_t> numels;
  numels.reserve(params.size());
  for (const auto& [id, n] : params) numels.push_back(n);
  const std::vector<bool> persists = persistent_parameters(
      numels, t.zero.param_persistence_threshold, t.zero.model_persistence_threshold);
  for (size_t i = 0; i < numels.size(); ++i)
    if (persists[i]) {
      ++count;
      numel += numels[i];
    }
  return fmt::format(
      "parts    each parameter in {} parts, {} elements of padding in all\n"
      "         {} of {} parameters persist: {} elements\n",
      plan.mesh.shard, padding, count, numels.size(), numel);
}

std::vector<int64_t> reduce_buckets(const Schedule& schedule) {
  std::vector<int64_t> out;
  schedule.for_each_of_last_step([&](const Instr& in, const Segment&) {
    if (in.kind != Kind::Launch) return;
    const Work& w = schedule.works[in.a];
    if (is_collective(w.kind) && reduces_gradients(w)) out.push_back(w.bytes / bytes_of(w.dtype));
  });
  return out;
}

std::string zero_buckets(const Schedule& schedule, const Training& t) {
  const std::vector<int64_t> buckets = reduce_buckets(schedule);
  std::string out = fmt::format("buckets  {} a step, limit {} elements:", buckets.size(),
                                t.zero.reduce_bucket_size);
  constexpr size_t kShown = 6;
  for (size_t i = 0; i < buckets.size() && i < kShown; ++i) out += fmt::format(" {}", buckets[i]);
  if (buckets.size() > kShown) out += " ...";
  return out + "\n";
}

}  // namespace shardsim
