// Ctrl-C. SIGINT and SIGTERM are blocked everywhere and taken by one thread, which may therefore do
// ordinary work: it removes the file that is being written and ends the program with 130.
// One object, made in main before any other thread.
#pragma once

#include <mutex>
#include <string>

namespace shardsim {

class Interrupt {
 public:
  Interrupt();
  // Between begin and end, `path` is removed if the user interrupts.
  void begin_file(const std::string& path);
  void end_file();

 private:
  std::mutex mutex_;
  std::string unfinished_;
};

}  // namespace shardsim
