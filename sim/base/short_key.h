// A digest of a text, to tell texts and files apart: 32 hexadecimal digits. It guards against chance, not
// against people.
// Worked example: FNV-1a's start value, short_key("").substr(0, 16) == "cbf29ce484222325".
#pragma once

#include <string>
#include <string_view>

namespace shardsim {

std::string short_key(std::string_view text);

}  // namespace shardsim
