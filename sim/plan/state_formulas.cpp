#include "sim/plan/state_formulas.h"

#include "sim/plan/plan.h"
#include "sim/plan/plan_fsdp1.h"

namespace shardsim {

std::string_view name_of(Scheme scheme) {
  switch (scheme) {
    case Scheme::ddp: return "ddp";
    case Scheme::zero1: return "zero1";
    case Scheme::zero2: return "zero2";
    case Scheme::zero3: return "zero3";
    case Scheme::full_shard: return "full_shard";
    case Scheme::shard_grad_op: return "shard_grad_op";
    case Scheme::no_shard: return "no_shard";
  }
  return "?";
}

bool shards_params(Scheme scheme) {
  return scheme == Scheme::zero3 || scheme == Scheme::full_shard || scheme == Scheme::shard_grad_op;
}

int64_t passes(Scheme scheme) {
  return scheme == Scheme::zero3 || scheme == Scheme::full_shard ? 3 : 2;
}

Bytes StateFormula::parameters() const {
  return share(params * bytes, shards_params() ? ranks : 1);
}

Bytes StateFormula::gradients() const { return share(params * bytes, shards_grads() ? ranks : 1); }

Bytes StateFormula::optimizer() const {
  return share(params * optimizer_bytes, shards_optimizer() ? ranks : 1);
}

Bytes StateFormula::communication() const {
  const int64_t gathers = shards_params() ? passes() - 1 : 0;
  const Bytes all = params * (gathers * gather_bytes.value_or(bytes) +
                              (passes() - gathers) * reduce_bytes.value_or(bytes));
  return all - share(all, ranks);
}

namespace {

Scheme scheme_of(const Training& t) {
  for (const Scheme s : kSchemes)
    if (name_of(s) == name_of(t.strategy)) return s;
  if (keeps_parameters_whole(t.strategy)) return Scheme::ddp;
  if (t.mesh.shard == 1) return Scheme::no_shard;
  if (t.strategy == Strategy::fsdp2)
    return t.fsdp2.reshard_after_forward.kind == Reshard::Kind::no ? Scheme::shard_grad_op
                                                                   : Scheme::full_shard;
  switch (effective_sharding_strategy(t)) {
    case ShardingStrategy::full_shard:
    case ShardingStrategy::hybrid_shard: return Scheme::full_shard;
    case ShardingStrategy::shard_grad_op:
    case ShardingStrategy::hybrid_shard_zero2: return Scheme::shard_grad_op;
    case ShardingStrategy::no_shard: break;
  }
  return Scheme::no_shard;
}

}  // namespace

StateFormula formula_of(const Training& training, int64_t params) {
  StateFormula f;
  f.scheme = scheme_of(training);
  f.params = params;
  f.ranks = f.shards_optimizer() ? training.mesh.shard : training.mesh.world();
  f.bytes = bytes_of(compute_dtype(training.precision));
  return f;
}

}  // namespace shardsim
