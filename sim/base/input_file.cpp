#include "sim/base/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "sim/base/error.h"
#include "sim/base/output_names.h"

namespace shardsim {

namespace {

[[noreturn]] void fail_read(const std::string& path, int error) {
  throw Error(fmt::format("cannot be read: {}", std::strerror(error)), {path});
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  using std::filesystem::file_type;
  std::error_code error;
  const file_type type = std::filesystem::status(path_, error).type();
  if (type == file_type::not_found) throw Error("there is no such file", {path_});
  if (error) throw Error(fmt::format("cannot be read: {}", error.message()), {path_});
  if (type == file_type::directory) throw Error("this is a directory, not a file", {path_});
  const bool open_already = path_.starts_with("/dev/") || path_.starts_with("/proc/");
  if (type == file_type::fifo && !open_already)
    throw Error("this is a named pipe, not a file", {path_}, "give a file, or /dev/stdin");
  if (type == file_type::block || type == file_type::socket)
    throw Error("this is a device or a socket, not a file", {path_});
  refuse_named_output(path_);
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail_read(path_, errno);
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

size_t InputFile::read(std::span<char> into) {
  while (true) {
    const ssize_t n = ::read(descriptor_, into.data(), into.size());
    if (n >= 0) return static_cast<size_t>(n);
    if (errno != EINTR) fail_read(path_, errno);
  }
}

int InputFile::release() { return std::exchange(descriptor_, -1); }

std::string read_whole(const std::string& path, int64_t largest) {
  InputFile file(path);
  std::string text, chunk(size_t{1} << 16, '\0');
  while (const size_t n = file.read(chunk)) {
    text.append(chunk, 0, n);
    if (static_cast<int64_t>(text.size()) > largest)
      throw Error(fmt::format("the file is larger than {} MiB", largest >> 20), {path});
  }
  return text;
}

}  // namespace shardsim
