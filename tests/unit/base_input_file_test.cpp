// What is no file, and what never ends, is one Error at once.
#include "sim/base/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "sim/base/error.h"

namespace shardsim {
namespace {

std::string error_of(const std::string& path, int64_t largest = 1 << 20) {
  try {
    read_whole(path, largest);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(InputFile, RefusesWhatIsNoFile) {
  const std::string folder = ::testing::TempDir() + "shardsim_input." + std::to_string(::getpid());
  std::filesystem::create_directory(folder);
  EXPECT_EQ(error_of(folder), "this is a directory, not a file");
  EXPECT_EQ(error_of(folder + "/none"), "there is no such file");
  EXPECT_EQ(error_of(folder + "/none/more"), "there is no such file");
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of(pipe), "this is a named pipe, not a file");
  std::ofstream(folder + "/text") << "twelve bytes";
  EXPECT_EQ(read_whole(folder + "/text", 12), "twelve bytes");
  EXPECT_EQ(error_of(folder + "/text", 11), "the file is larger than 0 MiB");
  std::filesystem::remove_all(folder);
}

TEST(InputFile, EndsWhereTheFileDoesNot) {
  EXPECT_EQ(error_of("/dev/zero", 3 << 20), "the file is larger than 3 MiB");
  EXPECT_EQ(read_whole("/dev/null", 1), "");
}

// <(command) of a shell is a pipe that is open already.
TEST(InputFile, ReadsOpenPipes) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "text", 4), 4);
  ::close(ends[1]);
  EXPECT_EQ(read_whole("/dev/fd/" + std::to_string(ends[0]), 100), "text");
  ::close(ends[0]);
}

}  // namespace
}  // namespace shardsim
