// A user's mistake. Thrown where it is found, caught once in sim/cli/main.cpp, printed as
//   file.yaml:12:5: error: training.micro_batch: expected a whole number from 1 to 65536, got 'two'
//     hint: sequences per data-parallel rank in one forward pass
// A broken invariant of the program itself is SHARDSIM_ASSERT, with a sentence that says what held.
#pragma once

#include <stdexcept>
#include <string>

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
  const Place& place() const { return place_; }
  const std::string& hint() const { return hint_; }
  // The lines a person sees, without a trailing newline.
  std::string text() const;

 private:
  Place place_;
  std::string hint_;
};

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
