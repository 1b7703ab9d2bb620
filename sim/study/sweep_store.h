// What a sweep has found, in one SQLite file: rows are there whole or not at all, whenever the program
// ends, so that a sweep goes on where it was.
//
//   meta   (key, value)   schema, version (the program's), study (its text), name, question, axes (JSON
//                         list of names), require, total (the study's points), scenarios
//                         (sweep_scenarios.h)
//   points (point, key, labels)   a point of the study, the scenario that it is, its place on each axis
//                                 (JSON list)
//   rows   (key, error, step_time_s, ...)   one for each scenario: points that are alike share it
// Worked number: 12 points of which 4 are the same scenario: 12 points, 9 rows.
//
// One process writes to a store at a time; others may read meanwhile. Throws Error that names the
// file: no database, another study's, another version's, an older or newer schema, written to by another
// process, damaged, or one that cannot be written. A file that is no store is not touched.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "sim/base/short_key.h"
#include "sim/config/study.h"
#include "sim/study/sweep_row.h"

struct sqlite3;

namespace shardsim {

// Whether the file is an SQLite database, by its first bytes.
bool is_database(const std::string& path);

struct StoredPoint {
  int64_t point = 0;
  std::string key;
  std::vector<std::string> labels;  // by axis
};

struct StoredSweep {
  std::string name, question, study, scenarios, version;
  int64_t total = 0;  // points of the study
  std::vector<std::string> axes;
  Requirements require;
  std::vector<StoredPoint> points;       // in order
  std::map<std::string, SweepRow> rows;  // by key; of a sweep that is not done not all are there
};

class SweepStore {
 public:
  // Opens or makes the store of a study, for writing.
  SweepStore(const std::string& path, const Study& study);
  ~SweepStore();
  SweepStore(const SweepStore&) = delete;
  SweepStore& operator=(const SweepStore&) = delete;

  // Keys that have their row.
  std::unordered_set<std::string> finished() const;
  void add(const std::vector<StoredPoint>& points, const std::vector<SweepRow>& rows);
  // Throws Error where the file was removed or replaced while this wrote to it.
  void require_there() const;
  // Whether a scenario could be played.
  bool any_played() const;

  static StoredSweep read(const std::string& path);
  // All that stores of one study hold, into `path`, which is made new, whole or not at all. Throws Error
  // where they are of different studies or versions, or say different things of one scenario.
  static void merge(const std::vector<std::string>& from, const std::string& path);

 private:
  SweepStore() = default;
  void lock(const std::string& path);
  void open_for_writing();
  void make(const StoredSweep& sweep);

  std::string path_;
  sqlite3* db_ = nullptr;
  int lock_ = -1;
  bool made_ = true;  // false: the file is new, and no store yet
};

}  // namespace shardsim
