// Independent pieces of work on several threads: f(i) for each i below n, each index once. The first
// exception stops the rest and is thrown again. Results are the same on any number of threads where
// f(i) writes to place i alone.
// Worked example: parallel_for(731, 2, [&](size_t i) { rows[i] = predict(i); });
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace shardsim {

template <class F>
void parallel_for(size_t n, int threads, F&& f) {
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run = [&] {
    try {
      for (size_t i = next++; i < n; i = next++) f(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = n;
    }
  };
  std::vector<std::thread> others;
  try {
    for (int t = 1; t < threads && static_cast<size_t>(t) < n; ++t) others.emplace_back(run);
  } catch (const std::exception&) {  // no more threads can be made: those there are do the work
  }
  run();
  for (std::thread& t : others) t.join();
  if (failure) std::rethrow_exception(failure);
}

// 0 or less: as many as the machine runs at once.
inline int threads_or_all(int wanted) {
  return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace shardsim
