#include "backends/cuda/scope.h"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include "sim/schedule/fsdp_scope.h"
#include "sim/schedule/works.h"

namespace shardsim {

Scopes::Range::Range(const char* name) { nvtxRangePushA(name); }
Scopes::Range::~Range() { nvtxRangePop(); }

const char* Scopes::name(const Work& w) {
  const std::string_view scope = fsdp_scope(w);
  if (scope.empty()) return *w.name != '\0' ? w.name : name_of(w.kind).data();
  const auto [at, made] = names_.try_emplace({std::string(scope), w.group.v});
  if (made)
    at->second = w.group.v < groups_.size() ? fmt::format("{} ({})", scope, groups_[w.group.v])
                                            : std::string(scope);
  return at->second.c_str();
}

}  // namespace shardsim
