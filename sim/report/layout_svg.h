// A layout as a picture: one row a rank, FSDP1, FSDP1 with use_orig_params and FSDP2 beside each other on
// one scale, a colour a parameter, padding hatched (in the parameter's colour where it is its own).
// Elements are drawn one by one where there is room, otherwise as bars. Light and dark by the
// viewer's prefers-color-scheme.
#pragma once

#include <string>

#include "sim/report/layout.h"

namespace shardsim {

std::string layout_svg(const Layout& layout);

}  // namespace shardsim
