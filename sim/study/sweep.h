// Plays the points of a study that its store has no row for, on several threads.
//
// A point whose scenario cannot be read or played is a row with its error; if no point of the whole study
// can be, the first one's error is thrown, at its place in the study, and the rows stay. Rows are written
// twice a second, each whole.
// Worked example: 24 points, --shard 1/2: points 0, 2, 4, ... of those that are not left out.
#pragma once

#include <functional>
#include <string>

#include "sim/study/sweep_store.h"

namespace shardsim {

struct SweepOptions {
  int threads = 1;
  int64_t shard = 1, shards = 1;  // from 1
  std::function<bool()> interrupted = [] { return false; };
  // Points done and to do, of them found in the store; called from one thread at a time.
  std::function<void(int64_t done, int64_t all, int64_t found)> progress;
};

struct SweepResult {
  int64_t points = 0, found = 0, played = 0, failed = 0;
  bool whole = true;  // false: interrupted
};

SweepResult sweep(const Study& study, SweepStore& store, const SweepOptions& options);

}  // namespace shardsim
