// A user's mistake. Thrown where it is found, caught once in sim/cli/main.cpp, printed as
//   file.yaml:12:5: error: training.micro_batch: expected a whole number from 1 to 65536, got 'two'
//     hint: sequences per data-parallel rank in one forward pass
// What shows only after reading has no place of its own but a key, which whoever has the text turns
// into one: Error::at("training.wrap.modules[1]", "no module matches 'x'").
// A broken invariant of the program itself is SHARDSIM_ASSERT, with a sentence that says what held.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace shardsim {

// line and column count from 1; 0 where there is none.
struct Place {
  std::string file;
  int line = 0;
  int column = 0;
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, Place place = {}, std::string hint = {})
      : std::runtime_error(what), place_(std::move(place)), hint_(std::move(hint)) {}
  // The message is "key: what".
  static Error at(std::string key, const std::string& what, std::string hint = {}) {
    Error e(key + ": " + what, {}, std::move(hint));
    e.key_ = std::move(key);
    return e;
  }
  const std::string& key() const { return key_; }
  // The same of a longer key.
  Error within(const std::string& prefix) const {
    Error e(prefix + what(), place_, hint_);
    e.key_ = prefix + key_;
    return e;
  }
  const Place& place() const { return place_; }
  const std::string& hint() const { return hint_; }
  // The lines a person sees, without a trailing newline; control characters as \x1b.
  std::string text() const;

 private:
  Place place_;
  std::string hint_, key_;
};

// "training.frozen", 2 -> "training.frozen[2]".
inline std::string element(const std::string& key, size_t i) {
  return key + "[" + std::to_string(i) + "]";
}

// A fault of the program. Thrown, so that one recording of many cannot take the others' results with
// it; sim/cli/main.cpp reports it and exits with 70.
class BrokenInvariant : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void assertion_failed(const char* condition, const char* sentence, const char* file,
                                   int line);

}  // namespace shardsim

#define SHARDSIM_ASSERT(condition, sentence) \
  ((condition) ? void() : ::shardsim::assertion_failed(#condition, sentence, __FILE__, __LINE__))
