// Text from files, made safe for where it is written.
#pragma once

#include <string>
#include <string_view>

namespace shardsim {

// As it stands between the quotes of a JSON or Graphviz string, for writers too large for a document in
// memory: escaped("a\"b") = a\"b, a newline is \u000a.
std::string escaped(std::string_view text);

// As a terminal may show it: control characters, which could steer it, as \x1b, and what could show it in
// another order or on another line as \u202e. `lines`: tabs and the ends of lines stay.
std::string printable(std::string_view text, bool lines = false);

}  // namespace shardsim
