#include "sim/config/fsdp1.h"

namespace shardsim {

void read_fsdp1(const Value& value, Fsdp1Options& o) {
  using Prefetch = Fsdp1Options::BackwardPrefetch;
  using StateDict = Fsdp1Options::StateDict;
  const Map map(value,
                {"sharding_strategy", "backward_prefetch", "forward_prefetch", "limit_all_gathers",
                 "use_orig_params", "cpu_offload", "no_sync", "keep_low_precision_grads",
                 "cast_root_forward_inputs", "state_dict", "summon_full_params"});
  if (const std::optional<Value> v = map.find("sharding_strategy"))
    o.sharding_strategy =
        v->choice<ShardingStrategy>({{"full_shard", ShardingStrategy::full_shard},
                                     {"shard_grad_op", ShardingStrategy::shard_grad_op},
                                     {"no_shard", ShardingStrategy::no_shard},
                                     {"hybrid_shard", ShardingStrategy::hybrid_shard},
                                     {"hybrid_shard_zero2", ShardingStrategy::hybrid_shard_zero2}});
  if (const std::optional<Value> v = map.find("backward_prefetch"))
    o.backward_prefetch = v->choice<Prefetch>(
        {{"pre", Prefetch::pre}, {"post", Prefetch::post}, {"none", Prefetch::none}});
  const auto flag = [&](std::string_view key, bool& to) {
    if (const std::optional<Value> v = map.find(key)) to = v->boolean();
  };
  flag("forward_prefetch", o.forward_prefetch);
  flag("limit_all_gathers", o.limit_all_gathers);
  flag("use_orig_params", o.use_orig_params);
  flag("cpu_offload", o.cpu_offload);
  flag("no_sync", o.no_sync);
  flag("keep_low_precision_grads", o.keep_low_precision_grads);
  flag("cast_root_forward_inputs", o.cast_root_forward_inputs);
  flag("summon_full_params", o.summon_full_params);
  if (const std::optional<Value> v = map.find("state_dict"))
    o.state_dict = v->choice<StateDict>({{"none", StateDict::none},
                                         {"full", StateDict::full},
                                         {"full_offload", StateDict::full_offload},
                                         {"full_offload_rank0", StateDict::full_offload_rank0},
                                         {"sharded", StateDict::sharded},
                                         {"sharded_offload", StateDict::sharded_offload},
                                         {"local", StateDict::local}});
}

}  // namespace shardsim
