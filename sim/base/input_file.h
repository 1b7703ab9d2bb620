// A file that a user names, opened for reading: what every reader looks at first. Pipes that are open
// already (/dev/stdin, /dev/fd/63 of <(...)) are read; a named one, whose opening would wait for a writer
// that may never come, is not.
// Worked example: read_whole("/dev/zero", kMiB) is an Error after one MiB: the file is larger than 1 MiB.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace shardsim {

class InputFile {
 public:
  // Error where there is no such file, it is a directory, it cannot be read, or an option names it to be
  // written (sim/base/output_names.h).
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // The next bytes, how many; 0 at the end. Error where reading fails.
  size_t read(std::span<char> into);
  // The descriptor, which is the caller's from now on.
  int release();

 private:
  std::string path_;
  int descriptor_ = -1;
};

// All of it; Error where that is more than `largest` bytes.
std::string read_whole(const std::string& path, int64_t largest);

}  // namespace shardsim
