// What published tables call GPUs, and which of the catalogue stands for them.
// Worked example: "H100 (Meta variant)" is h100-sxm5-96gb, assumed "the 96 GB part of 500 W".
#pragma once

#include <optional>
#include <string_view>

namespace shardsim {

struct PublishedGpu {
  std::string_view gpu;      // of the catalogue
  std::string_view assumed;  // what the name leaves open; empty: nothing
};

// The catalogue's own names stand for themselves; none: no entry is known for it.
std::optional<PublishedGpu> published_gpu(std::string_view text);

}  // namespace shardsim
