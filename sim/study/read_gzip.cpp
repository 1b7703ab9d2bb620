#include "sim/study/read_gzip.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "sim/base/error.h"
#include "sim/base/input_file.h"

namespace shardsim {

namespace {

constexpr int64_t kSmallText = int64_t{64} << 20;
constexpr int64_t kMostOfPacked = 250;  // deflate reaches 1032 of zeros, and some 30 of traces

}  // namespace

std::string read_maybe_gzip(const std::string& path, int64_t largest, int64_t head) {
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };
  const int descriptor = InputFile(path).release();
  // Plain text passes through as it is.
  const std::unique_ptr<gzFile_s, Close> file(gzdopen(descriptor, "rb"));
  if (!file) {
    ::close(descriptor);
    throw std::bad_alloc();
  }
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
    const auto size = static_cast<int64_t>(text.size());
    if (gzdirect(file.get()) == 0 && size > kSmallText &&
        size / kMostOfPacked > gzoffset(file.get()))
      throw Error(fmt::format("{} MiB of text come out of {} KiB of gzip data: this is no trace",
                              size >> 20, gzoffset(file.get()) >> 10),
                  {path});
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
