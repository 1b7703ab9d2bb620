// NVTX ranges around the host's calls, named as PyTorch's FSDP names its own, so that
// `nsys profile -t cuda,nvtx` groups a replay and a training run alike. Free when nothing profiles.
// Worked example: a block's gather is "FSDP::all_gather (layers.3)".
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/schedule/instruction.h"

namespace shardsim {

class Scopes {
 public:
  explicit Scopes(std::vector<std::string> groups) : groups_(std::move(groups)) {}

  class Range {
   public:
    explicit Range(const char* name);
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
  };
  // Lives as long as the scope does.
  const char* name(const Work& work);

 private:
  const std::vector<std::string> groups_;
  std::map<std::pair<std::string, uint32_t>, std::string> names_;
};

}  // namespace shardsim
