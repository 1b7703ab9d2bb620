#include "sim/cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <string_view>
#include <thread>

#include "sim/cli/command.h"

namespace shardsim {

Interrupt::Interrupt() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([this, signals] {
    int signal = 0;
    while (sigwait(&signals, &signal) != 0) continue;
    if (asks_) {
      requested_ = true;
      while (sigwait(&signals, &signal) != 0) continue;
    }
    // Never unlocked: the file must not be renamed into place after this.
    mutex_.lock();
    if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
    const std::string_view said = sentence_.load();
    // Not through stdio, whose lock the main thread may hold.
    if (!said.empty() && ::write(STDERR_FILENO, said.data(), said.size()) < 0)
      ::_exit(kInterrupted);
    ::_exit(kInterrupted);
  }).detach();
}

void Interrupt::begin_file(const std::string& path) {
  const std::lock_guard lock(mutex_);
  unfinished_ = path;
}

void Interrupt::end_file() {
  const std::lock_guard lock(mutex_);
  unfinished_.clear();
}

}  // namespace shardsim
