// Ctrl-C. SIGINT and SIGTERM are blocked everywhere and taken by one thread, which may therefore do
// ordinary work: it removes the file that is being written, says one sentence and ends the program with 130. A command
// that has results to keep asks for the first signal itself (ask_first): it stops and ends with 130;
// a second signal ends the program at once.
// One object, made in main before any other thread.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

namespace shardsim {

class Interrupt {
 public:
  Interrupt();
  // Between begin and end, `path` is removed if the user interrupts.
  void begin_file(const std::string& path);
  void end_file();
  // What is said where the program ends at once; static text, empty: nothing.
  void say(const char* sentence) { sentence_ = sentence; }
  void ask_first() { asks_ = true; }
  bool requested() const { return requested_; }

 private:
  std::mutex mutex_;
  std::string unfinished_;
  std::atomic<bool> asks_ = false, requested_ = false;
  std::atomic<const char*> sentence_ = "interrupted\n";
};

}  // namespace shardsim
