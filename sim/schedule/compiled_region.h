// A compiled part of a model played as a region: one autograd node with one forward and one backward
// call, whose allocations and launches Inductor's graph names (model/compiled.h). All gradients leave
// the backward together; only then do parameters accumulate theirs.
// Worked example, a block with 9 parameters: its backward is the graph's, then 9 gradients in the order
// in which autograd's queue hands out nodes that are ready at once.
#pragma once

#include <memory>
#include <vector>

#include "sim/model/compiled.h"
#include "sim/schedule/region.h"

namespace shardsim {

class CompiledTape {
 public:
  CompiledTape(Host& host, const StageClass& stage, const RegionOptions& options, GroupId group,
               ModuleHooks* hooks);

  void run_forward(BufferId input, Region::Forward& result);
  void run_backward(const GradModes& modes, const GradForm& form, BufferId gradient, uint8_t last,
                    Region::Backward& result);
  // The graph goes without a backward.
  void discard(bool keep_input);

 private:
  struct Storage {
    BufferId buffer;
    Reloc reloc = Reloc::none;
    int32_t refs = 0;
    int external = -1;
  };
  bool direct() const { return hooks_ != nullptr; }
  bool ignored(uint32_t param) const { return param < 64 && (options_.ignored >> param & 1) != 0; }
  Reloc local(Reloc r) const { return direct() ? Reloc::none : r; }
  void play(const CompiledPass& pass, bool backward, std::vector<int32_t>& slots);
  int32_t storage(BufferId b, Reloc reloc);
  int32_t allocate(Bytes bytes, Category category, Reloc reloc);
  void release(int32_t s);
  void accumulate(uint32_t param, int32_t storage, const GradModes& modes,
                  Region::Backward& result);
  GradMode mode_of(uint32_t param, const GradModes& modes) const;
  DType accumulated_type(uint32_t param) const;
  std::vector<uint32_t> accumulation_order() const;

  Host* host_;
  const StageClass* stage_;
  RegionOptions options_;
  GroupId group_;
  ModuleHooks* hooks_;
  std::shared_ptr<const CompiledGraph> graph_;
  std::vector<Storage> storages_;
  std::vector<int32_t> saved_;  // storages, in the graph's order
  int32_t input_ = -1;
  uint8_t last_ = 0;
};

}  // namespace shardsim
