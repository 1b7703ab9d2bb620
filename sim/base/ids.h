// Dense integer ids. An id of one kind cannot be used as another; `.v` indexes a vector.
#pragma once

#include <compare>
#include <cstdint>

namespace shardsim {

template <class Tag>
struct Id {
  uint32_t v = UINT32_MAX;  // UINT32_MAX: none
  constexpr bool valid() const { return v != UINT32_MAX; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

using BufferId = Id<struct BufferTag>;
using EventId = Id<struct EventTag>;
using WorkId = Id<struct WorkTag>;
using CommId = Id<struct CommTag>;
using GroupId = Id<struct GroupTag>;    // a parameter group of the plan
using ModuleId = Id<struct ModuleTag>;  // a module of the model's tree
using ParamId = Id<struct ParamTag>;

}  // namespace shardsim
