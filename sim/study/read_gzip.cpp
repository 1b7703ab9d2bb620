#include "sim/study/read_gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "sim/base/error.h"

namespace shardsim {

std::string read_maybe_gzip(const std::string& path, int64_t largest, int64_t head) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found)
    throw Error("there is no such file", {path});
  if (error) throw Error(fmt::format("cannot be read: {}", error.message()), {path});
  if (std::filesystem::is_directory(status)) throw Error("this is a directory, not a file", {path});
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };
  errno = 0;
  // Plain text passes through as it is.
  const std::unique_ptr<gzFile_s, Close> file(gzopen(path.c_str(), "rb"));
  if (!file) throw Error(fmt::format("cannot be read: {}", std::strerror(errno)), {path});
  gzbuffer(file.get(), 1 << 18);
  std::string text, chunk(1 << 20, '\0');
  while (head == 0 || static_cast<int64_t>(text.size()) < head) {
    const int n = gzread(file.get(), chunk.data(), static_cast<unsigned>(chunk.size()));
    if (n < 0) {
      int code = 0;
      const char* what = gzerror(file.get(), &code);
      if (code == Z_ERRNO)
        throw Error(fmt::format("cannot be read: {}", std::strerror(errno)), {path});
      throw Error(fmt::format("damaged gzip data after {} bytes of text: {}", text.size(), what),
                  {path});
    }
    text.append(chunk, 0, static_cast<size_t>(n));
    if (static_cast<int64_t>(text.size()) > largest)
      throw Error(fmt::format("the text is larger than {} MiB", largest >> 20), {path},
                  "profile fewer steps, or fewer kinds of events");
    if (n < static_cast<int>(chunk.size())) {
      // gzread says of a member that is cut off only when asked.
      int code = Z_OK;
      gzerror(file.get(), &code);
      if (code == Z_BUF_ERROR)
        throw Error(fmt::format("the gzip file is cut off after {} bytes of text", text.size()),
                    {path}, "it was copied or written only in part");
      if (n == 0) break;
    }
  }
  return text;
}

}  // namespace shardsim
