#include "sim/config/ddp.h"

namespace shardsim {

namespace {

constexpr double kMostMb = 1e6;

// Arguments that PyTorch 2.7 does not have.
void refuse_new(const Map& map) {
  for (std::string_view key : {"bucket_cap_mb_list", "batched_grad_copy", "lazy_bucket_allocation"})
    if (map.has(key))
      map.fail_key(key, "PyTorch 2.7 has no such argument",
                   "it raises TypeError: DistributedDataParallel.__init__() got an unexpected "
                   "keyword argument '" +
                       std::string(key) + "'");
}

}  // namespace

void read_ddp(const Value& value, const Training& training, DdpOptions& o) {
  using CommHook = DdpOptions::CommHook;
  const Map map(value, {"bucket_cap_mb", "bucket_cap_mb_list", "set_last_bucket_cap",
                        "gradient_as_bucket_view", "static_graph", "find_unused_parameters",
                        "broadcast_buffers", "init_sync", "batched_grad_copy",
                        "lazy_bucket_allocation", "comm_hook", "no_sync"});
  if (training.pytorch == "2.7") refuse_new(map);
  if (const std::optional<Value> v = map.find("bucket_cap_mb"))
    o.bucket_cap_mb = v->decimal(0, kMostMb, "MiB of gradients in one bucket");
  if (const std::optional<Value> v = map.find("bucket_cap_mb_list")) {
    for (const Value& cap : v->list("MiB of gradients, one number a bucket", 1))
      o.bucket_cap_mb_list.push_back(cap.decimal(0, kMostMb));
    if (o.bucket_cap_mb)
      map.fail_key("bucket_cap_mb", "does nothing beside bucket_cap_mb_list",
                   "PyTorch takes the list and says nothing; leave one of them out");
  }
  const auto flag = [&](std::string_view key, bool& to) {
    if (const std::optional<Value> v = map.find(key)) to = v->boolean();
  };
  flag("set_last_bucket_cap", o.small_last_bucket);
  flag("gradient_as_bucket_view", o.gradient_as_bucket_view);
  flag("static_graph", o.static_graph);
  flag("find_unused_parameters", o.find_unused_parameters);
  flag("broadcast_buffers", o.broadcast_buffers);
  flag("init_sync", o.init_sync);
  flag("batched_grad_copy", o.batched_grad_copy);
  flag("lazy_bucket_allocation", o.lazy_bucket_allocation);
  flag("no_sync", o.no_sync);
  if (const std::optional<Value> v = map.find("comm_hook"))
    o.comm_hook = v->choice<CommHook>({{"none", CommHook::none},
                                       {"allreduce_hook", CommHook::allreduce},
                                       {"bf16_compress_hook", CommHook::bf16_compress},
                                       {"fp16_compress_hook", CommHook::fp16_compress}});
  if (o.no_sync && o.static_graph)
    map.fail_key("no_sync", "does not go with static_graph: the first backward is not reduced",
                 "PyTorch raises RuntimeError: \"expect_autograd_hooks_ INTERNAL ASSERT FAILED\"; "
                 "leave one of them out");
  if (o.no_sync && training.grad_accum == 1)
    map.fail_key("no_sync", "needs grad_accum: 2 or more, passes that come before the last",
                 "one pass alone would never be synchronized");
}

}  // namespace shardsim
