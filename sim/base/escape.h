// Text as it stands between the quotes of a JSON or Graphviz string, for writers too large for a
// document in memory: escaped("a\"b") = a\"b, a newline is \u000a.
#pragma once

#include <string>
#include <string_view>

namespace shardsim {

std::string escaped(std::string_view text);

}  // namespace shardsim
