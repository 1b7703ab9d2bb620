#include "sim/base/error.h"

#include "sim/base/escape.h"

namespace shardsim {

std::string Error::text() const {
  std::string out;
  if (!place_.file.empty()) {
    out += printable(place_.file) + ":";
    if (place_.line > 0) out += std::to_string(place_.line) + ":";
    if (place_.column > 0) out += std::to_string(place_.column) + ":";
    out += " ";
  }
  out += "error: ";
  out += printable(what());
  if (!hint_.empty()) out += "\n  hint: " + printable(hint_);
  return out;
}

void assertion_failed(const char* condition, const char* sentence, const char* file, int line) {
  throw BrokenInvariant(std::string(file) + ":" + std::to_string(line) +
                        ": broken invariant: " + sentence + " (" + condition + ")");
}

}  // namespace shardsim
