#include "sim/base/output_names.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "sim/base/error.h"

namespace shardsim {

namespace fs = std::filesystem;

namespace {

struct Output {
  std::string option, path;
};

// Filled while the command line is read, by one thread.
std::vector<Output>& outputs() {
  static std::vector<Output> all;
  return all;
}

bool is_regular_or_new(const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  return type == fs::file_type::regular || type == fs::file_type::not_found;
}

}  // namespace

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const fs::path one = fs::weakly_canonical(a, error);
  if (error) return a == b;
  const fs::path other = fs::weakly_canonical(b, error);
  return error ? a == b : one == other;
}

void name_output(const std::string& option, const std::string& path) {
  if (!is_regular_or_new(path)) return;
  for (const Output& o : outputs())
    if (o.option != option && same_file(o.path, path))
      throw Error(option + " and " + o.option + " name one file", {path}, "give another file");
  outputs().push_back({option, path});
}

void refuse_named_output(const std::string& path) {
  for (const Output& o : outputs())
    if (same_file(o.path, path))
      throw Error(o.option + " is the input itself, which would be lost", {o.path},
                  "give another file");
}

}  // namespace shardsim
