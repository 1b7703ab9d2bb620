// A scenario under another strategy: which of its keys go, which are put in other words, so that it
// trains the same model the same way as far as the other strategy can.
//
//   fsdp2, fsdp2-keep   fully_shard over all ranks, reshard_after_forward true and false
//   hsdp                fully_shard inside each node, replicas over the nodes
//   fsdp1, fsdp1-grad-op   FullyShardedDataParallel, FULL_SHARD and SHARD_GRAD_OP
//   ddp, zero1, zero2, zero3   zero1 is torch's where the scenario's is
// What a strategy cannot play of the scenario is refused by the reader of scenarios, as from a file.
// Worked example: fsdp2 with precision {storage: fp32, compute: bf16, reduce: fp32} is, under ddp,
// {storage: fp32, autocast: bf16}, without wrap and mesh.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/config/document.h"
#include "sim/plan/scenario.h"

namespace shardsim {

// In the order of the list above.
const std::vector<std::string>& strategy_variants();

struct ClusterSize {
  int64_t nodes = 1, gpus_per_node = 1;
  int64_t gpus() const { return nodes * gpus_per_node; }
};

class StrategyVariant {
 public:
  // `scenario` is what `text` says.
  StrategyVariant(std::string name, std::shared_ptr<const Document> text, std::string file,
                  const Scenario& scenario);

  const std::string& name() const { return name_; }
  // Why the scenario cannot be asked for under it, whatever its sizes; empty: it can.
  const std::string& impossible() const { return impossible_; }
  // What was put in other words, for people; empty: nothing.
  const std::vector<std::string>& changes() const { return changes_; }
  bool replicates() const { return name_ == "hsdp"; }

  // Throws Error where that is no scenario. seq_len 0: the scenario has none.
  Scenario at(const ClusterSize& size, int64_t micro_batch, int64_t seq_len) const;

 private:
  struct Edit {
    std::string path, value;  // no value: the key goes
  };
  void set(const std::string& path, const std::string& value) { edits_.push_back({path, value}); }
  void drop(const std::string& path) { edits_.push_back({path, ""}); }
  void edit_fully_shard(const Scenario& scenario);
  void edit_fsdp1(const Scenario& scenario);
  void edit_ddp(const Scenario& scenario);
  void edit_zero(const Scenario& scenario);
  void from_deepspeed(const Scenario& scenario);

  std::string name_, file_, impossible_;
  std::shared_ptr<const Document> text_;
  std::vector<Edit> edits_;
  std::vector<std::string> changes_;
};

}  // namespace shardsim
